"""What a lookup is asked and what it finds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from skipstone_orchestrator.cache_options import CacheUse
from skipstone_orchestrator.drift_guard import ReuseTier
from skipstone_orchestrator.noise_levels import Schedule
from skipstone_orchestrator.prompt_keys import PromptKeys
from skipstone_orchestrator.reuse_policy import ReusePolicy
from skipstone_shared.embeddings import Embedding
from skipstone_shared.latents import LatentRef
from skipstone_shared.orchestration import Candidate, Entry, HitTier, ReuseKind

EXACT_HIT = "EXACT_HIT"
CACHE_OFF = "CACHE_OFF"
WRITE_ONLY = "WRITE_ONLY"
NOT_ALLOWED = "NOT_ALLOWED"
NO_CANDIDATE = "NO_CANDIDATE"
STALE_DONOR = "STALE_DONOR"
LOOKUP_FAILED = "LOOKUP_FAILED"
GATE_UNAVAILABLE = "GATE_UNAVAILABLE"


@dataclasses.dataclass(frozen=True, slots=True)
class Query:
    """What is looked for.

    Attributes:
        namespace: Partition of all stores.
        prompt: Prompt as given.
        seed: Seed of the run, None when it is not known yet.
        exact_wanted: Whether the caller chose the seed and so asks for this very picture.
        decodable: Whether a stored clean latent can be turned into the result.
        compatibility_key: Key of the run.
        model_hash: Hash of its denoiser, as a calibration names it.
        schedule: Noise levels of the run.
        use: Options in force.
        explains: Whether only the decision is wanted, with all that speaks for and against it:
            every candidate that could be taken is checked, and nothing is repaired.
        prompts: How prompts stand in what is saved.
    """

    namespace: str
    prompt: str
    seed: int | None
    exact_wanted: bool
    decodable: bool
    compatibility_key: str
    model_hash: str
    schedule: Schedule
    use: CacheUse
    explains: bool = False
    prompts: PromptKeys = dataclasses.field(default_factory=PromptKeys)

    @property
    def exact_prompt(self) -> str:
        """What stands for the prompt in the ids of entries."""
        return self.prompts.exact(self.prompt)


@dataclasses.dataclass(frozen=True, slots=True)
class ClosedReuse:
    """A reuse that is not done because its tier is closed; it is only good for an audit."""

    tier: ReuseTier
    donor: LatentRef
    skip_steps: int
    kind: ReuseKind


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """What the lookup found.

    Attributes:
        tier: Tier of the request unless the executor refuses the donor.
        reason: Why.
        donor: Snapshot to start from; None on a miss.
        donor_entry: Entry it belongs to, as the index or the store has it.
        donor_depth: Resumed runs between it and noise.
        skip_steps: Steps to skip.
        kind: How the donor's latent is used; None for the exact tier.
        similarity: Of the donor, or of the best candidate of a miss.
        score: The gate's, of the same candidate.
        embedding: Vector of the prompt, for the save; None when it was not computed.
        candidates: All that were considered, best first.
        passed: By id of an entry, why it is not used as deep as its score has earned.
        replaces: Whether an entry of this very request may be stored that was not used.
        choices: Among how many candidates the donor was drawn; 0 when there is none.
        reuse_tier: Tier the donor is used in.
        closed_reuse: What the best candidate would have got if drift had closed no tier.
        policy: That decided on candidates; None when there were none to decide on.
        result_version: Version under which what a resumed run gives answers exact repeats.
    """

    tier: HitTier
    reason: str
    donor: LatentRef | None = None
    donor_entry: Entry | None = None
    donor_depth: int = 0
    skip_steps: int = 0
    kind: ReuseKind | None = None
    similarity: float | None = None
    score: float | None = None
    embedding: Embedding | None = None
    candidates: tuple[Candidate, ...] = ()
    passed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    replaces: bool = False
    choices: int = 0
    reuse_tier: ReuseTier | None = None
    closed_reuse: ClosedReuse | None = None
    policy: ReusePolicy | None = None
    result_version: str = ""

    def policy_version(self, base: ReusePolicy) -> str:
        """Version of the policy that decided, of the base where there was nothing to decide on."""
        return self.result_version or base.version


def miss(
    reason: str,
    *,
    similarity: float | None = None,
    score: float | None = None,
    replaces: bool = False,
) -> Decision:
    """A miss, with what the best candidate had."""
    return Decision(HitTier.MISS, reason, similarity=similarity, score=score, replaces=replaces)
