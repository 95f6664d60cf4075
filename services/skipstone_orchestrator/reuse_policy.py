"""Which donor and how many steps to skip: pure functions of scores, noise levels and limits.

A table says down to which noise level a score may skip. It is read by sigma, never by index: a run
may start at the deepest step whose noise level is not below the row's. Tables come from a
calibration (`calibration.py`); where none is used, one published for 50 steps at shift 1 and text
cosine holds: above .95 skip 25, .90 20, .85 15, .75 10, .65 5, where k of 50 is sigma 1 - k / 50.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Sequence

from skipstone_orchestrator.noise_levels import Schedule
from skipstone_shared.latents import canonical_hash
from skipstone_shared.orchestration import ReuseKind

TABLE_STEPS = 50
POLICY_FAMILY = "depth-by-score-2"

DONOR_RESUMED = "DONOR_RESUMED"
BELOW_LOWEST_TIER = "BELOW_LOWEST_TIER"
TIERS_CLOSED = "TIERS_CLOSED"
FEWER_STEPS_WIN = "FEWER_STEPS_WIN"
SEED_DIVERSITY = "SEED_DIVERSITY"
BELOW_MIN_SIMILARITY = "BELOW_MIN_SIMILARITY"
DONOR_DEPTH = "DONOR_DEPTH"
KIND_UNSUPPORTED = "KIND_UNSUPPORTED"
SEED_IGNORED = "SEED_IGNORED"
SIGMA_FLOOR = "SIGMA_FLOOR"
MAX_SKIP_STEPS = "MAX_SKIP_STEPS"
NO_SNAPSHOT = "NO_SNAPSHOT"


@dataclasses.dataclass(frozen=True, slots=True)
class Tier:
    """A row of a table: a score above `above` may resume at noise level `level` and higher.

    Attributes:
        above: The score.
        level: The noise level.
        drift: Measured distance from the request's own full run; None: not measured.
        wrong: Lower bound of the measured share of wrong pictures; None: not measured.
        diverse: Whether pictures of one prompt and many seeds stay different from each other.
            Only then it serves a prompt that was answered with another seed before.
    """

    above: float
    level: float
    drift: float | None = None
    wrong: float | None = None
    diverse: bool = True

    @classmethod
    def of_50(cls, above: float, skip_steps: int) -> Tier:
        """The row that skips so many of 50 steps at shift 1."""
        return cls(above, 1.0 - skip_steps / TABLE_STEPS)


PUBLISHED_TABLE = (
    Tier.of_50(0.95, 25),
    Tier.of_50(0.90, 20),
    Tier.of_50(0.85, 15),
    Tier.of_50(0.75, 10),
    Tier.of_50(0.65, 5),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Tables:
    """Rows for each way of using a donor, in any order; none: that way is closed.

    A donor of the request's own seed knows its noise and costs less, so it has tables of its own.
    """

    renoise: tuple[Tier, ...] = PUBLISHED_TABLE
    trajectory: tuple[Tier, ...] = PUBLISHED_TABLE
    renoise_same_seed: tuple[Tier, ...] = PUBLISHED_TABLE
    trajectory_same_seed: tuple[Tier, ...] = PUBLISHED_TABLE

    @classmethod
    def alike(cls, table: tuple[Tier, ...]) -> Tables:
        """One table for all."""
        return cls(table, table, table, table)

    def rows(self, kind: ReuseKind, same_seed: bool) -> tuple[Tier, ...]:
        """The rows of a way of using a donor."""
        if kind is ReuseKind.RENOISE:
            return self.renoise_same_seed if same_seed else self.renoise
        return self.trajectory_same_seed if same_seed else self.trajectory


@dataclasses.dataclass(frozen=True, slots=True)
class Rival:
    """A plain run of few steps: what the same cost buys without a donor.

    Attributes:
        steps: Its steps.
        drift: Measured as that of a tier.
        wrong: Upper bound of its share of wrong pictures; None: not measured.
    """

    steps: int
    drift: float
    wrong: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ReusePolicy:
    """What decides on candidates; checked by the configuration.

    Attributes:
        tables: Down to which noise level a score may skip.
        sigma_floor: Noise level below which nothing is skipped, 0 to 1.
        min_similarity: Least cosine similarity of a donor, 0 to 1.
        default_kind: How a donor's latent is used when the request does not say.
        max_donor_depth: Most resumed runs between a donor and noise.
        key_levels: Noise levels whose snapshots a trajectory donor stores.
        closed: Reason why no candidate may be used at all; empty: some may.
        rivals: Plain runs by ascending steps that a tier must beat; empty: not compared.
        basis: Names all else that decides which policy holds; part of the version.
    """

    tables: Tables = Tables()
    sigma_floor: float = 0.5
    min_similarity: float = 0.65
    default_kind: ReuseKind = ReuseKind.RENOISE
    max_donor_depth: int = 0
    key_levels: tuple[float, ...] = (0.9, 0.8, 0.7, 0.6, 0.5)
    closed: str = ""
    rivals: tuple[Rival, ...] = ()
    basis: str = ""

    @property
    def version(self) -> str:
        """Name of the policy with everything that changes its decisions hashed in."""
        return _version(self)


@functools.lru_cache(maxsize=64)
def _version(policy: ReusePolicy) -> str:
    # Kept, since every request asks for it several times and the tables are long.
    return f"{POLICY_FAMILY}-{canonical_hash(dataclasses.asdict(policy))[:8]}"


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
        prompt_seen: Whether the request's prompt was answered with another seed before.
    """

    similarity: float
    steps: Collection[int]
    score: float | None = None
    depth: int = 0
    same_prompt: bool = False
    same_seed: bool = False
    prompt_seen: bool = False

    @property
    def must_differ(self) -> bool:
        """Whether the caller has seen this prompt's picture of another seed, and wants another.

        Only the same prompt with the same seed asks for a picture again. A donor of another prompt
        has given the earlier picture too, whatever its seed.
        """
        if self.same_prompt:
            return not self.same_seed
        return self.prompt_seen


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a candidate: `skip_steps` is 0 and `kind` None when it is refused.

    `tier` is the row that its score earned, None where it earned none or was not looked up, and
    `same_seed` says of which table. `passed` is the reason why a deeper row that the score has
    earned too was passed over; empty where there is none.
    """

    reason: str
    skip_steps: int = 0
    kind: ReuseKind | None = None
    tier: Tier | None = None
    same_seed: bool = False
    passed: str = ""

    @property
    def taken(self) -> bool:
        """Whether the candidate is to be used."""
        return self.skip_steps > 0


def is_near(policy: ReusePolicy, similarity: float, limits: Limits) -> bool:
    """Whether a candidate is similar enough that a gate's score can make it a donor."""
    least = (policy.min_similarity, limits.min_similarity)
    # Written so that a similarity that is not a number is refused.
    return all(bound is None or similarity >= bound for bound in least)


def judge(policy: ReusePolicy, schedule: Schedule, donor: Donor, limits: Limits) -> Verdict:
    """Decides on one candidate. All else equal, skipped steps never fall when the score rises."""
    if not is_near(policy, donor.similarity, limits):
        return Verdict(BELOW_MIN_SIMILARITY)
    if policy.closed:
        return Verdict(policy.closed)
    if donor.depth > policy.max_donor_depth:
        return Verdict(DONOR_DEPTH)
    kind, refusal = choose_kind(policy, schedule, donor, limits.kind)
    if kind is None:
        return Verdict(refusal)
    score = donor.similarity if donor.score is None else donor.score
    earned = earned_tiers(policy.tables.rows(kind, donor.same_seed), score)
    if not earned:
        return Verdict(BELOW_LOWEST_TIER)
    verdicts = (_at_tier(policy, schedule, donor, limits, kind, tier) for tier in earned)
    first = next(verdicts)
    if first.taken:
        return first
    taken = next((verdict for verdict in verdicts if verdict.taken), None)
    return first if taken is None else dataclasses.replace(taken, passed=first.reason)


def _at_tier(
    policy: ReusePolicy,
    schedule: Schedule,
    donor: Donor,
    limits: Limits,
    kind: ReuseKind,
    tier: Tier,
) -> Verdict:
    """What a tier gives to a candidate that has earned it; the score has no say any more."""
    if donor.must_differ and not tier.diverse:
        return Verdict(SEED_DIVERSITY, tier=tier)
    allowed = schedule.steps_down_to(max(tier.level, policy.sigma_floor))
    if not allowed:
        return Verdict(SIGMA_FLOOR, tier=tier)
    verdict = _deepest(allowed, kind, tier, schedule, donor.steps, limits.max_skip_steps)
    executed = schedule.num_inference_steps - verdict.skip_steps
    if verdict.taken and loses_to_fewer_steps(tier, policy.rivals, executed, donor.same_seed):
        return Verdict(FEWER_STEPS_WIN, tier=tier)
    return dataclasses.replace(verdict, same_seed=donor.same_seed)


def loses_to_fewer_steps(
    tier: Tier, rivals: Sequence[Rival], executed_steps: int, same_seed: bool
) -> bool:
    """Whether a plain run of as many steps would do better than a run resumed at a tier.

    A tier loses when its pictures are shown to be wrong more often. With a donor of the request's
    own seed it must also be nearer to the full run: there is one picture to come near to. With
    another seed's donor the request gets another picture of what it asked for, as another seed
    would give it, and nearness to one of them is no merit.

    Between two measured numbers of steps the better one counts, and beyond the largest a plain run
    is as near as can be. What was not measured is not compared.
    """
    if not rivals or tier.drift is None:
        return False
    rival = next((rival for rival in rivals if rival.steps >= executed_steps), None)
    wrong = (rival or rivals[-1]).wrong
    if tier.wrong is not None and wrong is not None and tier.wrong > wrong:
        return True
    return same_seed and (rival is None or rival.drift <= tier.drift)


def _deepest(
    allowed: range,
    kind: ReuseKind,
    tier: Tier,
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
        return Verdict(NO_SNAPSHOT, tier=tier)
    limit = schedule.num_inference_steps if max_skip_steps is None else max_skip_steps
    deepest = max((step for step in possible if step <= limit), default=0)
    if not deepest:
        return Verdict(MAX_SKIP_STEPS, tier=tier)
    return Verdict(DONOR_RESUMED, deepest, kind, tier)


def earned_tiers(table: Collection[Tier], score: float) -> list[Tier]:
    """The rows that a score is strictly above, deepest first.

    A higher score earns all that a lower one earns. So whichever rows are passed over for other
    reasons, the first that is left is never less deep.
    """
    return sorted((tier for tier in table if score > tier.above), key=lambda tier: tier.level)


def choose_kind(
    policy: ReusePolicy, schedule: Schedule, donor: Donor, wanted: ReuseKind | None
) -> tuple[ReuseKind | None, str]:
    """How the donor's latent is used, or None and why it cannot be. The score has no say in it.

    A deterministic sampler that goes on from a donor's snapshot ignores the new seed: the same
    prompt with another seed would give the donor's picture again. So such a request is renoised.
    With the request's own seed it is the other way round: the donor's path began in the same noise,
    and where its snapshots are stored nothing comes nearer to the full run.
    """
    if donor.must_differ and wanted is ReuseKind.TRAJECTORY:
        return None, SEED_IGNORED
    kinds = [wanted] if wanted is not None else kinds_in_order(policy)
    if donor.must_differ:
        kinds = [ReuseKind.RENOISE]
    elif wanted is None and donor.same_seed and _has_snapshots(schedule, donor):
        kinds = [ReuseKind.TRAJECTORY, ReuseKind.RENOISE]
    possible = [kind for kind in kinds if kind in schedule.kinds]
    if not possible:
        return None, KIND_UNSUPPORTED
    opened = [kind for kind in possible if policy.tables.rows(kind, donor.same_seed)]
    return (opened[0], "") if opened else (None, TIERS_CLOSED)


def _has_snapshots(schedule: Schedule, donor: Donor) -> bool:
    """Whether a donor has more than its clean latent."""
    return any(step < schedule.num_inference_steps for step in donor.steps)


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
