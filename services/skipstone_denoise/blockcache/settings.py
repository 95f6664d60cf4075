"""Resolved settings of block caching for one transformer."""

from __future__ import annotations

import dataclasses
from enum import Enum


class Forecast(Enum):
    """What stands in for the middle blocks' residual at a reused step."""

    REPEAT = "repeat"
    TAYLOR = "taylor"
    DIVIDED_DIFFERENCE = "divided_difference"


@dataclasses.dataclass(frozen=True, slots=True)
class DBCacheSettings:
    """Settings of one transformer, checked against it; steps count from its own first one.

    Attributes:
        fn_compute_blocks: F, blocks at the front that always run, at least 1.
        bn_compute_blocks: B, blocks at the end that always run, at least 0.
        max_warmup_steps: Steps at the start that are computed.
        warmup_interval: Within the warm-up every n-th step is; the others are decided.
        max_cached_steps: Most reused steps of a branch; -1 for no limit.
        max_continuous_cached_steps: Longest run of reused steps; -1 for no limit.
        residual_diff_threshold: A step is reused below this relative L1 difference of the front
            blocks' residual. 0 reuses never; 1 and more always, and nothing is measured.
        max_accumulated_residual_diff: No step is reused once the measured differences of a branch
            sum up to this; None for no limit.
        forecast: What stands in for the middle blocks.
        taylor_order: Order of the forecast, 1 or 2.
        forecast_hidden: Forecast the hidden states instead of the residual.
        steps_mask: Per step whether it is computed; None where no mask decides. Steps past its end
            count as not computed.
        static_mask: Steps that the mask does not compute are reused unmeasured.
        share_branch_diff: All branches of a step decide by the first branch's difference.
    """

    fn_compute_blocks: int = 1
    bn_compute_blocks: int = 0
    max_warmup_steps: int = 4
    warmup_interval: int = 1
    max_cached_steps: int = -1
    max_continuous_cached_steps: int = 3
    residual_diff_threshold: float = 0.24
    max_accumulated_residual_diff: float | None = None
    forecast: Forecast = Forecast.REPEAT
    taylor_order: int = 1
    forecast_hidden: bool = False
    steps_mask: tuple[bool, ...] | None = None
    static_mask: bool = False
    share_branch_diff: bool = False

    @property
    def warmup_steps(self) -> range:
        """The warm-up steps. A mask that reuses earlier ends the warm-up there."""
        count = self.max_warmup_steps
        if self.steps_mask is not None and False in self.steps_mask:
            count = min(count, self.steps_mask.index(False))
        return range(0, count, self.warmup_interval)
