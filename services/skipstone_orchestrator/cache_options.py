"""How one request uses the cache: what it says, filled up from the configuration, and checked."""

from __future__ import annotations

import dataclasses
import itertools
import math

from skipstone_orchestrator.reuse_policy import Limits
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.orchestration import CacheMode, CacheOptions

MAX_TOP_K = 100


@dataclasses.dataclass(frozen=True, slots=True)
class CacheDefaults:
    """What holds for requests that do not say.

    Attributes:
        mode: What a request may do with the cache.
        top_k: Candidates to consider.
        donor_choices: Among how many of the best candidates a donor is drawn; 1: none is drawn.
        donor_margin: Most that the score of a donor that is drawn may lie below the best.
    """

    mode: CacheMode = CacheMode.READ_WRITE
    top_k: int = 8
    donor_choices: int = 1
    donor_margin: float = 0.02


@dataclasses.dataclass(frozen=True, slots=True)
class CacheUse:
    """Options in force for one request.

    Attributes:
        mode: What it may do with the cache.
        allow_exact: Whether the exact tier may answer.
        allow_approximate: Whether a donor may be used.
        full_runs_only: Whether an exact answer must come from a run that skipped nothing.
        limits: What it asks of donors.
        top_k: Candidates to consider.
        donor_choices: Among how many of the best candidates the donor is drawn.
        donor_margin: Most that its score may lie below the best.
        key_steps: Steps to store; empty: those of the policy.
    """

    mode: CacheMode
    allow_exact: bool
    allow_approximate: bool
    full_runs_only: bool
    limits: Limits
    top_k: int
    donor_choices: int = 1
    donor_margin: float = 0.0
    key_steps: tuple[int, ...] = ()


def resolve_options(options: CacheOptions, defaults: CacheDefaults) -> CacheUse:
    """The options in force: per request over configuration.

    `reproducible` and a refused approximate tier both mean that the picture must be a full run's,
    so neither accepts the stored result of a resumed run. Nor does a request that limits donors: a
    stored result does not tell how near its donor was and how much it skipped.

    Raises:
        InvalidArgument: An option is out of range.
    """
    check_options(options)
    approximate = options.allow_approximate is not False and not options.reproducible
    limited = options.min_similarity is not None or options.max_skip_steps is not None
    return CacheUse(
        mode=options.mode or defaults.mode,
        allow_exact=options.allow_exact is not False,
        allow_approximate=approximate,
        full_runs_only=limited or not approximate,
        limits=Limits(options.min_similarity, options.max_skip_steps, options.reuse_kind),
        top_k=options.top_k or defaults.top_k,
        donor_choices=options.donor_choices or defaults.donor_choices,
        donor_margin=(
            defaults.donor_margin if options.donor_margin is None else options.donor_margin
        ),
        key_steps=options.key_steps,
    )


def check_options(options: CacheOptions) -> None:
    """Checks what can be checked before the run is planned.

    Raises:
        InvalidArgument: An option is out of range.
    """
    for name in ("min_similarity", "donor_margin"):
        share = getattr(options, name)
        if share is not None and not (math.isfinite(share) and 0.0 <= share <= 1.0):
            raise _refused(name, share, "0 to 1")
    if options.max_skip_steps is not None and options.max_skip_steps < 0:
        raise _refused("max_skip_steps", options.max_skip_steps, "0 and up")
    for name in ("top_k", "donor_choices"):
        count = getattr(options, name)
        if count is not None and not 1 <= count <= MAX_TOP_K:
            raise _refused(name, count, f"1 to {MAX_TOP_K}")


def check_key_steps(key_steps: tuple[int, ...], num_inference_steps: int) -> None:
    """Checks the steps a request wants stored against its number of steps.

    Raises:
        InvalidArgument: They do not ascend, or one lies outside the run.
    """
    ascending = all(a < b for a, b in itertools.pairwise(key_steps))
    inside = all(1 <= step < num_inference_steps for step in key_steps)
    if not (ascending and inside):
        shown = ", ".join(str(step) for step in key_steps[:8])
        last = num_inference_steps - 1
        allowed = f"ascending, each 1 to {last}" if last else "empty, since the run has one step"
        raise _refused("key_steps", shown, allowed)


def _refused(name: str, value: object, allowed: str) -> InvalidArgument:
    return InvalidArgument(f"cache.{name} is {value}", field=f"cache.{name}", allowed=allowed)
