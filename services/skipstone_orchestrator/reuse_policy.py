"""Which donor and how many steps to skip: pure functions of scores, noise levels and limits.

The table is a published one for 50 steps at shift 1 and text cosine: above .95 skip 25, .90 20,
.85 15, .75 10, .65 5. It is read by sigma, never by index: k of 50 at shift 1 is flow sigma
1 - k / 50, and a run may start at the deepest step whose noise level is not below that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from skipstone_orchestrator.noise_levels import Schedule
from skipstone_shared.latents import canonical_hash
from skipstone_shared.orchestration import ReuseKind

TABLE_STEPS = 50
POLICY_FAMILY = "published-table-1"

DONOR_RESUMED = "DONOR_RESUMED"
BELOW_LOWEST_TIER = "BELOW_LOWEST_TIER"
BELOW_MIN_SIMILARITY = "BELOW_MIN_SIMILARITY"
DONOR_DEPTH = "DONOR_DEPTH"
KIND_UNSUPPORTED = "KIND_UNSUPPORTED"
SEED_IGNORED = "SEED_IGNORED"
SIGMA_FLOOR = "SIGMA_FLOOR"
MAX_SKIP_STEPS = "MAX_SKIP_STEPS"
NO_SNAPSHOT = "NO_SNAPSHOT"


@dataclasses.dataclass(frozen=True, slots=True)
class Tier:
    """A row of the table: a score above `above` may skip `skip_of_50` of 50 steps at shift 1."""

    above: float
    skip_of_50: int

    @property
    def level(self) -> float:
        """Noise level the row resumes at."""
        return 1.0 - self.skip_of_50 / TABLE_STEPS


PUBLISHED_TABLE = (Tier(0.95, 25), Tier(0.90, 20), Tier(0.85, 15), Tier(0.75, 10), Tier(0.65, 5))


@dataclasses.dataclass(frozen=True, slots=True)
class ReusePolicy:
    """What an operator may set about reuse; checked by the configuration.

    Attributes:
        table: Rows by falling score; the skipped steps fall with it.
        sigma_floor: Noise level below which nothing is skipped, 0 to 1.
        min_similarity: Least cosine similarity of a donor, 0 to 1.
        default_kind: How a donor's latent is used when the request does not say.
        max_donor_depth: Most resumed runs between a donor and noise.
        key_levels: Noise levels whose snapshots a trajectory donor stores.
    """

    table: tuple[Tier, ...] = PUBLISHED_TABLE
    sigma_floor: float = 0.5
    min_similarity: float = 0.65
    default_kind: ReuseKind = ReuseKind.RENOISE
    max_donor_depth: int = 0
    key_levels: tuple[float, ...] = (0.9, 0.8, 0.7, 0.6, 0.5)

    @property
    def version(self) -> str:
        """Name of the policy with everything that changes its decisions hashed in."""
        return f"{POLICY_FAMILY}-{canonical_hash(dataclasses.asdict(self))[:8]}"


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """What one request asks of a donor; it can only tighten the policy.

    Attributes:
        min_similarity: Least similarity; None: the policy's.
        max_skip_steps: Most steps to skip; None: the policy's.
        kind: How the latent must be used; None: the policy decides.
    """

    min_similarity: float | None = None
    max_skip_steps: int | None = None
    kind: ReuseKind | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Donor:
    """What the policy looks at in a candidate.

    Attributes:
        similarity: Cosine similarity of the prompts.
        score: What the gate gave it; None when no gate ran and similarity is the score.
        depth: Resumed runs between it and noise.
        steps: Steps of its stored snapshots; N stands for the clean latent.
        same_prompt: Whether its prompt is the request's but for case and white space.
        same_seed: Whether its seed is the request's.
    """

    similarity: float
    steps: Collection[int]
    score: float | None = None
    depth: int = 0
    same_prompt: bool = False
    same_seed: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a candidate: `skip_steps` is 0 and `kind` None when it is refused."""

    reason: str
    skip_steps: int = 0
    kind: ReuseKind | None = None

    @property
    def taken(self) -> bool:
        """Whether the candidate is to be used."""
        return self.skip_steps > 0


def judge(policy: ReusePolicy, schedule: Schedule, donor: Donor, limits: Limits) -> Verdict:
    """Decides on one candidate. Skipped steps never fall when the score rises."""
    if donor.depth > policy.max_donor_depth:
        return Verdict(DONOR_DEPTH)
    # Written so that a similarity that is not a number is refused.
    if limits.min_similarity is not None and not donor.similarity >= limits.min_similarity:
        return Verdict(BELOW_MIN_SIMILARITY)
    score = donor.similarity if donor.score is None else donor.score
    tier = find_tier(policy.table, score)
    if tier is None:
        return Verdict(BELOW_LOWEST_TIER)
    if not donor.similarity >= policy.min_similarity:
        return Verdict(BELOW_MIN_SIMILARITY)
    kind, refusal = choose_kind(policy, schedule, donor, limits.kind)
    if kind is None:
        return Verdict(refusal)
    allowed = schedule.steps_down_to(max(tier.level, policy.sigma_floor))
    if not allowed:
        return Verdict(SIGMA_FLOOR)
    return _deepest(allowed, kind, schedule, donor.steps, limits.max_skip_steps)


def _deepest(
    allowed: range,
    kind: ReuseKind,
    schedule: Schedule,
    stored: Collection[int],
    max_skip_steps: int | None,
) -> Verdict:
    if kind is ReuseKind.RENOISE:
        possible = list(allowed) if schedule.num_inference_steps in stored else []
    else:
        resumable = schedule.resumable_steps or allowed
        possible = [step for step in allowed if step in stored and step in resumable]
    if not possible:
        return Verdict(NO_SNAPSHOT)
    limit = schedule.num_inference_steps if max_skip_steps is None else max_skip_steps
    deepest = max((step for step in possible if step <= limit), default=0)
    return Verdict(DONOR_RESUMED, deepest, kind) if deepest else Verdict(MAX_SKIP_STEPS)


def find_tier(table: Sequence[Tier], score: float) -> Tier | None:
    """The row of a score, None below the lowest. Strictly above, as published."""
    return next((tier for tier in table if score > tier.above), None)


def choose_kind(
    policy: ReusePolicy, schedule: Schedule, donor: Donor, wanted: ReuseKind | None
) -> tuple[ReuseKind | None, str]:
    """How the donor's latent is used, or None and why it cannot be.

    A deterministic sampler that goes on from a donor's snapshot ignores the new seed: the same
    prompt with another seed would give the donor's picture again. So such a request is renoised.
    """
    same_picture = donor.same_prompt and not donor.same_seed
    if same_picture and wanted is ReuseKind.TRAJECTORY:
        return None, SEED_IGNORED
    kinds = [wanted] if wanted is not None else kinds_in_order(policy)
    if same_picture:
        kinds = [ReuseKind.RENOISE]
    kind = next((kind for kind in kinds if kind in schedule.kinds), None)
    return kind, "" if kind is not None else KIND_UNSUPPORTED


def kinds_in_order(policy: ReusePolicy) -> list[ReuseKind]:
    """The default kind first, then the other: not every scheduler can do both."""
    return sorted(ReuseKind, key=lambda kind: kind is not policy.default_kind)


def default_key_steps(
    policy: ReusePolicy, schedule: Schedule, wanted: ReuseKind | None
) -> tuple[int, ...]:
    """Steps whose snapshots a run stores beside its clean latent.

    None when donors are renoised: one clean latent serves every depth, a fifth of the bytes.
    """
    kinds = [wanted] if wanted is not None else kinds_in_order(policy)
    kind = next((kind for kind in kinds if kind in schedule.kinds), None)
    if kind is not ReuseKind.TRAJECTORY:
        return ()
    allowed = schedule.steps_down_to(policy.sigma_floor)
    usable = [s for s in allowed if not schedule.resumable_steps or s in schedule.resumable_steps]
    if not usable:
        return ()
    return tuple(sorted({schedule.nearest_step(level, usable) for level in policy.key_levels}))
