"""Noise levels of a schedule on one scale, so that depths of different schedules compare.

A step index is not portable: step 25 of 50 is sigma 0.49 at shift 1 and 0.743 at shift 3. So depth
is told by the share of noise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from skipstone_shared.noise_shares import noise_shares, steps_down_to
from skipstone_shared.orchestration import ReuseKind


@dataclasses.dataclass(frozen=True, slots=True)
class Schedule:
    """What the policy needs to know of a planned run.

    Attributes:
        sigmas: Noise level entering each step as the scheduler states it, N + 1 values.
        levels: The same as shares of noise, 0 to 1.
        kinds: Ways of approximate reuse that are safe.
        resumable_steps: Steps a trajectory resume may start at; empty: all of 1 to N - 1.
    """

    sigmas: tuple[float, ...]
    levels: tuple[float, ...]
    kinds: frozenset[ReuseKind]
    resumable_steps: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        sigmas: Sequence[float],
        prediction_type: str,
        kinds: Iterable[ReuseKind],
        resumable_steps: Sequence[int] = (),
    ) -> Schedule:
        """The schedule of a run with these sigmas and this prediction type."""
        levels = noise_shares(sigmas, prediction_type)
        return cls(tuple(sigmas), levels, frozenset(kinds), tuple(resumable_steps))

    @property
    def num_inference_steps(self) -> int:
        """N."""
        return len(self.sigmas) - 1

    def steps_down_to(self, level: float) -> range:
        """Steps a run may start at so that all it skips lies at or above a noise level."""
        return steps_down_to(self.levels, level)

    def nearest_step(self, level: float, steps: Sequence[int]) -> int:
        """The step of `steps` whose noise level is nearest; the earlier of two equally near."""
        return min(steps, key=lambda step: (abs(self.levels[step] - level), step))
