"""Settings under the names of the field, for both libraries."""

from __future__ import annotations

from dataclasses import dataclass

from skipstone_denoise.blockcache.settings import DBCacheSettings, Forecast


@dataclass(frozen=True)
class Setting:
    """One block-cache setting.

    Attributes:
        name: As printed.
        first: Blocks that always run before the decision (`Fn_compute_blocks`).
        last: Blocks that always run after it (`Bn_compute_blocks`).
        warmup: First steps that are always computed.
        warmup_interval: Every how many-th step of the warm-up is computed.
        continuous: Longest run of reused steps; -1 for no limit.
        threshold: Residual difference below which a step is reused.
        forecast: What stands in for the middle blocks. Divided differences are ours alone.
        order: Order of the forecast.
        mask: Step mask, 1 = compute; empty for none.
        static: Reuse at every 0 of the mask, without asking the threshold.
    """

    name: str
    first: int = 1
    last: int = 0
    warmup: int = 4
    warmup_interval: int = 1
    continuous: int = 3
    threshold: float = 0.24
    forecast: Forecast = Forecast.REPEAT
    order: int = 1
    mask: tuple[int, ...] = ()
    static: bool = False

    def ours(self) -> DBCacheSettings:
        """Returns the setting as Skipstone takes it."""
        return DBCacheSettings(
            fn_compute_blocks=self.first,
            bn_compute_blocks=self.last,
            max_warmup_steps=self.warmup,
            warmup_interval=self.warmup_interval,
            max_continuous_cached_steps=self.continuous,
            residual_diff_threshold=self.threshold,
            forecast=self.forecast,
            taylor_order=self.order,
            steps_mask=tuple(map(bool, self.mask)) or None,
            static_mask=self.static,
        )
