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
class CacheUse:
    """Options in force for one request.

    Attributes:
        mode: What it may do with the cache.
        allow_exact: Whether the exact tier may answer.
        allow_approximate: Whether a donor may be used.
        full_runs_only: Whether an exact answer must come from a run that skipped nothing.
        limits: What it asks of donors.
        top_k: Candidates to consider.
        key_steps: Steps to store; empty: those of the policy.
    """

    mode: CacheMode
    allow_exact: bool
    allow_approximate: bool
    full_runs_only: bool
    limits: Limits
    top_k: int
    key_steps: tuple[int, ...] = ()


def resolve_options(options: CacheOptions, default_mode: CacheMode, default_top_k: int) -> CacheUse:
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
        mode=options.mode or default_mode,
        allow_exact=options.allow_exact is not False,
        allow_approximate=approximate,
        full_runs_only=limited or not approximate,
        limits=Limits(options.min_similarity, options.max_skip_steps, options.reuse_kind),
        top_k=options.top_k or default_top_k,
        key_steps=options.key_steps,
    )


def check_options(options: CacheOptions) -> None:
    """Checks what can be checked before the run is planned.

    Raises:
        InvalidArgument: An option is out of range.
    """
    similarity = options.min_similarity
    if similarity is not None and not (math.isfinite(similarity) and 0.0 <= similarity <= 1.0):
        raise _refused("min_similarity", similarity, "0 to 1")
    if options.max_skip_steps is not None and options.max_skip_steps < 0:
        raise _refused("max_skip_steps", options.max_skip_steps, "0 and up")
    if options.top_k is not None and not 1 <= options.top_k <= MAX_TOP_K:
        raise _refused("top_k", options.top_k, f"1 to {MAX_TOP_K}")


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
