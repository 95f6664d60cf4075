"""The ways of serving the trace that are compared, and the picture each gives a request."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

from quality.decisions import Decision
from quality.pictures import Run
from quality.trace import CaptionRequest
from skipstone_shared.denoise_runs import ResumeKind
from skipstone_shared.generation import BlockCachePreset
from skipstone_shared.orchestration import HitTier

MOST_STEPS: Final = 50
GRID: Final = (*range(4, 13), 14, 16, 18, 20, 25, 30, 35, 40, 45, 50)
"""Plain numbers of steps that are measured, dense where quality still moves."""

REFERENCE_STEPS: Final = 100
PRESETS: Final = (BlockCachePreset.BALANCED, BlockCachePreset.FAST)


NEW_SEEDS: Final = "latent cache, a new seed for every repeat"
ALIKE_SEEDS: Final = "the same with `min_seed_diversity` 0.9"
FRESH_SEEDS: Final[Mapping[str, Sequence[str]]] = {
    NEW_SEEDS: (),
    ALIKE_SEEDS: ("--min-seed-diversity", "0.9"),
}
"""The product on the trace without exact repeats -> flags of the orchestrator."""


class Reuse(Enum):
    """What is reused between requests, and who decides.

    LATENT is the product with its default gate and policy. TABLE takes the cosine of the search for
    the gate's score and reads a published table with it: what reuse is without a gate.
    """

    NONE = "none"
    EXACT = "exact"
    LATENT = "latent"
    TABLE = "table"

    @property
    def resumes(self) -> bool:
        """Whether runs are resumed from donors."""
        return self in (Reuse.LATENT, Reuse.TABLE)


@dataclasses.dataclass(frozen=True, slots=True)
class Method:
    """One way of serving.

    Attributes:
        name: As printed.
        steps: N of its runs.
        reuse: Between requests.
        preset: Block caching inside requests.
    """

    name: str
    steps: int
    reuse: Reuse = Reuse.NONE
    preset: BlockCachePreset | None = None


def plain(steps: int) -> Method:
    """Every request runs in full, with that many steps."""
    return Method(f"{steps} plain steps", steps)


def cached_blocks(steps: int, preset: BlockCachePreset) -> Method:
    """Every request runs alone, with block caching."""
    return Method(f"block cache {preset.value}", steps, preset=preset)


def alone(method: Method) -> Method:
    """A method without what it reuses between requests."""
    if method.preset is None:
        return plain(method.steps)
    return cached_blocks(method.steps, method.preset)


def compared(steps: int) -> list[Method]:
    """All methods beside the plain ones whose runs have `steps` steps."""
    methods = [cached_blocks(steps, preset) for preset in PRESETS]
    methods.append(Method("published table alone", steps, Reuse.TABLE))
    for reuse in (Reuse.EXACT, Reuse.LATENT):
        methods.append(Method(f"{reuse.value} cache", steps, reuse))
        methods += [
            Method(f"{reuse.value} + block cache {preset.value}", steps, reuse, preset)
            for preset in PRESETS
        ]
    return methods


def run_of(
    method: Method,
    index: int,
    requests: Sequence[CaptionRequest],
    decisions: Sequence[Decision],
) -> Run:
    """The run whose picture a request gets under a method; of an exact hit the earlier run."""
    request = requests[index]
    full = Run(request.caption, request.seed, method.steps, method.preset)
    decision = decisions[index] if method.reuse.resumes else None
    if decision is None or decision.donor is None:
        # What only the exact tier reuses is the picture of the same run.
        return full
    if decision.tier == HitTier.EXACT.value:
        return run_of(method, decision.donor, requests, decisions)
    donor = requests[decision.donor]
    return dataclasses.replace(
        full,
        donor=Run(donor.caption, donor.seed, method.steps, method.preset),
        skip_steps=decision.skip_steps,
        kind=ResumeKind(decision.kind),
    )


def shows_resumed(index: int, decisions: Sequence[Decision]) -> bool:
    """Whether the picture of a request comes from a resumed run, its own or the one it repeats."""
    decision = decisions[index]
    if decision.tier == HitTier.EXACT.value and decision.donor is not None:
        return shows_resumed(decision.donor, decisions)
    return decision.tier == HitTier.APPROXIMATE.value


def executed_steps(method: Method, decision: Decision) -> int:
    """Steps that a request runs under a method."""
    exact = decision.tier == HitTier.EXACT.value
    if method.reuse is Reuse.NONE or (method.reuse is Reuse.EXACT and not exact):
        return method.steps
    return method.steps - decision.skip_steps


def reference_run(request: CaptionRequest) -> Run:
    """A converged run of the same caption from other noise."""
    return Run(request.caption, 2**31 + request.index, REFERENCE_STEPS)
