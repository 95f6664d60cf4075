"""DBCache: decides at every step whether the middle blocks run or are reused.

The first F blocks always run; what they add to the hidden states, compared with what they added at
the last computed step, tells how much the rest would change. After cache-dit's DBCache
(github.com/vipshop/cache-dit), which generalises the first-block cache of ParaAttention; the idea
of a threshold on a relative L1 difference is TeaCache's (Liu et al., 2024, arXiv 2411.19108,
equation 4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import torch
from torch import Tensor

from skipstone_denoise.blockcache.patterns import Streams, StreamShapes
from skipstone_denoise.blockcache.settings import DBCacheSettings
from skipstone_denoise.blockcache.taylorseer import Forecaster, make_forecaster


class Reason(Enum):
    """Why a step was computed or reused."""

    WARM_UP = "warm-up"
    NOTHING_STORED = "nothing stored"
    MASK_COMPUTES = "mask computes"
    MASK_REUSES = "mask reuses"
    MAX_CACHED_STEPS = "max_cached_steps reached"
    MAX_CONTINUOUS = "max_continuous_cached_steps reached"
    MAX_ACCUMULATED = "accumulated difference reached"
    THRESHOLD_ZERO = "threshold is 0"
    THRESHOLD_ONE = "threshold is 1"
    BELOW_THRESHOLD = "difference below threshold"
    NOT_BELOW_THRESHOLD = "difference not below threshold"
    NOT_FINITE = "difference not finite"

    @property
    def reuses(self) -> bool:
        """Whether the step was reused."""
        # By identity: a set would hash the member in Python, twice a call.
        return (
            self is Reason.BELOW_THRESHOLD
            or self is Reason.MASK_REUSES
            or self is Reason.THRESHOLD_ONE
        )


class StepRecord(NamedTuple):
    """One step of one branch.

    Attributes:
        step_index: Absolute step.
        reason: Why it was computed or reused.
        residual_diff: Difference that decided; NaN where none was measured.
    """

    step_index: int
    reason: Reason
    residual_diff: float = math.nan


class DBCacheState:
    """State of one request in one chain of blocks and one guidance branch.

    Steps are the transformer's own, and rise. Not shared between threads.
    """

    __slots__ = (
        "_accumulated_diff",
        "_cached_steps",
        "_encoder",
        "_hidden",
        "_keeps_reference",
        "_keeps_text",
        "_magnitude",
        "_magnitude_value",
        "_reference",
        "_run_length",
        "_settings",
        "_shapes",
        "_stored_step",
        "_warmup_steps",
        "records",
    )

    def __init__(self, settings: DBCacheSettings, *, keeps_text: bool = True) -> None:
        """Holds nothing yet, so that the first step is computed.

        Args:
            settings: The transformer's.
            keeps_text: Whether anything reads the text stream after the middle blocks.
        """
        self._settings = settings
        self._keeps_text = keeps_text
        self._warmup_steps = settings.warmup_steps
        # What is never measured needs no reference to measure against.
        self._keeps_reference = 0.0 < settings.residual_diff_threshold < 1.0 and not (
            settings.static_mask and settings.steps_mask is not None
        )
        self._reference: Tensor | None = None
        self._magnitude: Tensor | None = None
        self._magnitude_value: float | None = None
        self._hidden: Forecaster | None = None
        self._encoder: Forecaster | None = None
        self._shapes: StreamShapes | None = None
        self._stored_step = 0
        self._cached_steps = 0
        self._run_length = 0
        self._accumulated_diff = 0.0
        self.records: list[StepRecord] = []

    @property
    def keeps_reference(self) -> bool:
        """Whether `store` needs the front blocks' residual."""
        return self._keeps_reference

    def rule(self, step: int, shapes: StreamShapes) -> Reason | None:
        """What the rules say before anything is measured; None: the difference decides.

        Args:
            step: The transformer's own step.
            shapes: Of the streams after the front blocks; another size inside a request starts over
                instead of mixing them.
        """
        settings, mask = self._settings, self._settings.steps_mask
        if step in self._warmup_steps:
            return Reason.WARM_UP
        if mask is not None and step < len(mask) and mask[step]:
            return Reason.MASK_COMPUTES
        if shapes != self._shapes:
            return Reason.NOTHING_STORED
        if mask is not None and settings.static_mask:
            return Reason.MASK_REUSES
        if 0 <= settings.max_cached_steps <= self._cached_steps:
            return Reason.MAX_CACHED_STEPS
        if 0 <= settings.max_continuous_cached_steps <= self._run_length:
            return Reason.MAX_CONTINUOUS
        limit = settings.max_accumulated_residual_diff
        if limit is not None and self._accumulated_diff >= limit:
            return Reason.MAX_ACCUMULATED
        if settings.residual_diff_threshold <= 0.0:
            return Reason.THRESHOLD_ZERO
        return Reason.THRESHOLD_ONE if settings.residual_diff_threshold >= 1.0 else None

    def measure(self, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Numerator and denominator of the relative L1 difference, sums of absolute values.

        Args:
            residual: What the front blocks added, as given to `store`.

        Returns:
            `sum|r_ref - r|` and `sum|r_ref|`, scalars; at least float32, since a mean in bfloat16
            has too few digits to be compared with a threshold.
        """
        assert self._reference is not None
        return _sum_of_magnitudes(self._reference - residual), self._reference_magnitude()

    def difference(self, hidden: Tensor, start: Tensor) -> float:
        """The relative L1 difference, for a request that decides alone; one wait for the device.

        Args:
            hidden: Hidden states after the front blocks.
            start: Hidden states before them.
        """
        assert self._reference is not None
        # In place and without the residual itself: a reused call is short and needs no more.
        change = (hidden - start).sub_(self._reference).abs_()
        numerator = change.sum(dtype=_wide(change))
        if self._magnitude_value is None:
            sums = torch.stack((numerator, self._reference_magnitude()))
            value, self._magnitude_value = sums.tolist()
        else:
            value = numerator.item()
        return _ratio(value, self._magnitude_value)

    def judge(self, residual_diff: float) -> Reason:
        """What a measured difference says. Strict, so that NaN computes."""
        if residual_diff > 0.0:
            self._accumulated_diff += residual_diff
        if residual_diff < self._settings.residual_diff_threshold:
            return Reason.BELOW_THRESHOLD
        finite = math.isfinite(residual_diff)
        return Reason.NOT_BELOW_THRESHOLD if finite else Reason.NOT_FINITE

    def record(self, record: StepRecord) -> None:
        """Notes a decision."""
        self.records.append(record)
        if record.reason.reuses:
            self._run_length += 1
            self._cached_steps += 1
        else:
            self._run_length = 0

    def store(self, step: int, residual: Tensor | None, front: Streams, middle: Streams) -> None:
        """Keeps what a computed step leaves for later ones.

        A step that is run again starts over: there is no difference between it and itself.

        Args:
            step: The transformer's own step.
            residual: What the front blocks added to the hidden states, if references are kept.
            front: Streams after the front blocks.
            middle: Streams after the middle blocks.
        """
        shapes = front.shapes
        if self._hidden is None or shapes != self._shapes or step <= self._stored_step:
            self._hidden = make_forecaster(self._settings)
            self._encoder = make_forecaster(self._settings)
        assert self._encoder is not None
        self._shapes, self._stored_step = shapes, step
        self._reference, self._magnitude, self._magnitude_value = residual, None, None
        # What comes after the middle blocks may write into the streams that it is given.
        whole = self._settings.forecast_hidden
        hidden = middle.hidden.clone() if whole else middle.hidden - front.hidden
        self._hidden.update(step, hidden)
        if self._keeps_text and middle.encoder is not None and front.encoder is not None:
            encoder = middle.encoder.clone() if whole else middle.encoder - front.encoder
            self._encoder.update(step, encoder)

    def reuse(self, step: int, front: Streams) -> Streams:
        """The streams after the middle blocks, without running them.

        Args:
            step: The transformer's own step.
            front: Streams after the front blocks.
        """
        assert self._hidden is not None
        assert self._encoder is not None
        hidden, encoder = self._hidden.value_at(step), front.encoder
        whole = self._settings.forecast_hidden
        if encoder is not None and self._encoder.tensors():
            value = self._encoder.value_at(step)
            encoder = value.clone() if whole else encoder + value
        return Streams(hidden.clone() if whole else front.hidden + hidden, encoder)

    def release(self) -> None:
        """Lets go of all that is held; the next step is computed."""
        self._reference = self._magnitude = self._hidden = self._encoder = self._shapes = None

    def _reference_magnitude(self) -> Tensor:
        """`sum|r_ref|`, worked out once for every computed step that is compared with."""
        assert self._reference is not None
        if self._magnitude is None:
            self._magnitude = _sum_of_magnitudes(self._reference)
        return self._magnitude

    def tensors(self) -> tuple[Tensor, ...]:
        """All that is held, for counting bytes."""
        held: tuple[Tensor, ...] = () if self._reference is None else (self._reference,)
        for forecaster in (self._hidden, self._encoder):
            held += forecaster.tensors() if forecaster is not None else ()
        return held


def _sum_of_magnitudes(values: Tensor) -> Tensor:
    return values.abs().sum(dtype=_wide(values))


def _wide(values: Tensor) -> torch.dtype:
    return torch.float64 if values.dtype == torch.float64 else torch.float32


def _ratio(numerator: float, denominator: float) -> float:
    if denominator == 0.0:
        return math.inf if numerator > 0.0 else math.nan
    return numerator / denominator


def relative_differences(
    measured: Sequence[tuple[Tensor, Tensor]], process_group: object | None
) -> list[float]:
    """Relative L1 differences of several states, with one wait for the device.

    Args:
        measured: What `DBCacheState.measure` gave, one pair per state.
        process_group: Ranks of `torch.distributed` that decide together. Numerators and
            denominators are summed over them, and divided afterwards. Where the ranks hold parts of
            a sequence that is the difference of the whole, however uneven the parts (an average of
            the ranks' own differences would not be). Where they all hold the same (tensor
            parallelism) both sums grow by the same factor. Every rank gets the same sums, so all
            decide alike.
    """
    sums = torch.stack([torch.stack(pair) for pair in measured])
    if process_group is not None:
        torch.distributed.all_reduce(sums, group=process_group)
    ratios: list[float] = (sums[:, 0] / sums[:, 1]).tolist()
    return ratios
