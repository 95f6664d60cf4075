"""Final error against the uncached run at equal computed share, and the bytes held for it.

Every cell is a model and a setting of cache-dit. Two things of ours stand beside it:

- the same setting: the same decisions and the same arithmetic, so the same share and error;
- our own one (`OWN`) at no more block calls: the lowest threshold is searched whose run calls no
  more blocks than cache-dit's did. Nothing else of it is fitted to the cell.

Neither runs more blocks than cache-dit, so a user may take the better one.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from torch import Tensor, nn

from blockcache import ours, rival
from blockcache.figures import Figure, quartiles
from blockcache.held_bytes import PeakBytes
from blockcache.models import MODELS, STEPS, TinyModel, denoise, tiny_model
from blockcache.pictures import BundledModel, prompts, relative_l1
from blockcache.settings import Setting
from skipstone_denoise.blockcache.settings import Forecast
from skipstone_denoise.blockcache.state import BlockCacheState
from skipstone_denoise.blockcache.step_mask import compat_mask
from skipstone_shared.generation import ScmMaskPolicy

BeginStep = Callable[[int], None]


def _mask(policy: ScmMaskPolicy) -> tuple[int, ...]:
    return tuple(map(int, compat_mask(policy, STEPS)))


_FAST, _MEDIUM = _mask(ScmMaskPolicy.FAST), _mask(ScmMaskPolicy.MEDIUM)

CELLS: Final = (
    Setting("F1B0 W4 R0.12 MC3", threshold=0.12),
    Setting("F1B0 W4 R0.24 MC3"),
    Setting("F1B2 W4 R0.24 MC3", last=2),
    Setting("F1B0 W4 R0.12 MC3 TaylorSeer 1", threshold=0.12, forecast=Forecast.TAYLOR),
    Setting("F1B0 W4 R0.24 MC3 TaylorSeer 1", forecast=Forecast.TAYLOR),
    Setting("F1B0 W4 R0.24 MC3 TaylorSeer 2", forecast=Forecast.TAYLOR, order=2),
    Setting("SCM medium static", mask=_MEDIUM, static=True),
    Setting("SCM fast dynamic", mask=_FAST),
    Setting("SCM fast static", mask=_FAST, static=True),
    Setting("SCM fast static TaylorSeer 1", mask=_FAST, static=True, forecast=Forecast.TAYLOR),
)
OWN: Final = Setting("own", forecast=Forecast.DIVIDED_DIFFERENCE)

SEARCHED: Final = tuple(0.04 * 1.04**power for power in range(82))
"""Thresholds that are searched, 0.04 to 0.96."""


@dataclass(frozen=True)
class Subject:
    """A model whose runs are compared.

    Attributes:
        name: As printed.
        transformer: Its transformer.
        blocks: Blocks of it.
        branches: Its calls per step.
        run: Runs one of its inputs under a transformer; returns the final latents.
        inputs: How many inputs there are.
    """

    name: str
    transformer: nn.Module
    blocks: int
    branches: int
    run: Callable[[nn.Module, int, BeginStep], Tensor]
    inputs: int = 1


@dataclass(frozen=True)
class Outcome:
    """What all inputs' runs under one setting gave."""

    latents: list[Tensor]
    block_calls: int
    peak_bytes: int


def subjects(bundled_prompts: int) -> Iterator[Subject]:
    """Builds the models one after another."""
    for name in MODELS:
        model = tiny_model(name)
        yield Subject(
            name, model.transformer, len(model.blocks), len(model.inputs), _tiny_run(model)
        )
    if bundled_prompts:
        bundled, texts = BundledModel(), prompts(bundled_prompts)

        def run(transformer: nn.Module, index: int, begin_step: BeginStep) -> Tensor:
            return bundled.latents(transformer, texts[index], STEPS, index, begin_step)

        yield Subject(bundled.name, bundled.transformer, bundled.blocks, 2, run, len(texts))


def measure(subject: Subject) -> Iterator[Figure]:
    """Runs every cell of a model under both libraries."""
    full = [
        subject.run(subject.transformer, index, lambda step_index: None)
        for index in range(subject.inputs)
    ]
    search = _Search(subject)
    ratios = []
    for setting in CELLS:
        theirs = _rival_outcome(subject, setting)
        same = _own_outcome(subject, setting)
        mine = search.lowest_threshold(theirs.block_calls)
        errors = {
            name: statistics.mean(relative_l1(outcome.latents, full))
            for name, outcome in (("theirs", theirs), ("same", same), ("mine", mine))
        }
        ratios.append(min(errors["same"], errors["mine"]) / errors["theirs"])
        for label, outcome, error in (
            (f"{setting.name}, same setting", same, errors["same"]),
            (f"{setting.name}, own setting", mine, errors["mine"]),
        ):
            yield from _cell(subject, label, outcome, error, theirs, errors["theirs"])
    yield Figure(
        "rel_l1_error_ratio",
        subject.name,
        "better of both settings, geometric mean",
        statistics.geometric_mean(ratios),
        rival.NAME,
        1.0,
        len(ratios),
        quartiles(ratios),
    )
    yield Figure(
        "rel_l1_error_ratio",
        subject.name,
        "better of both settings, worst cell",
        max(ratios),
        rival.NAME,
        1.0,
        len(ratios),
    )


class _Search:
    """Finds the run of `OWN` that calls as many blocks as allowed; keeps runs for later cells."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._outcomes: dict[int, Outcome] = {}

    def lowest_threshold(self, block_calls: int) -> Outcome:
        """Returns the outcome under the lowest threshold that calls no more than `block_calls`."""
        low, high = 0, len(SEARCHED) - 1
        while low < high:
            middle = (low + high) // 2
            if self._outcome(middle).block_calls <= block_calls:
                high = middle
            else:
                low = middle + 1
        outcome = self._outcome(low)
        if outcome.block_calls > block_calls:
            raise SystemExit(f"{self._subject.name}: no own run has {block_calls} block calls")
        return outcome

    def _outcome(self, place: int) -> Outcome:
        if place not in self._outcomes:
            setting = dataclasses.replace(OWN, threshold=SEARCHED[place])
            self._outcomes[place] = _own_outcome(self._subject, setting)
        return self._outcomes[place]


def _rival_outcome(subject: Subject, setting: Setting) -> Outcome:
    latents, calls, peak = [], 0, PeakBytes()
    for index in range(subject.inputs):
        cached = rival.with_cache_dit(subject.transformer, setting, STEPS)
        begin_step = functools.partial(_see_rival, peak, cached)
        latents.append(subject.run(cached, index, begin_step))
        calls += rival.block_calls(cached, setting, subject.blocks)
    return Outcome(latents, calls, peak.bytes)


def _see_rival(peak: PeakBytes, cached: nn.Module, step_index: int) -> None:
    del step_index
    peak.see(rival.kept(cached))


def _own_outcome(subject: Subject, setting: Setting) -> Outcome:
    latents, calls, peak = [], 0, PeakBytes()
    for index in range(subject.inputs):
        cached, state = ours.with_skipstone(subject.transformer, setting)
        begin_step = functools.partial(_begin_own_step, peak, state)
        latents.append(subject.run(cached, index, begin_step))
        calls += state.report().block_calls
    return Outcome(latents, calls, peak.bytes)


def _begin_own_step(peak: PeakBytes, state: BlockCacheState, step_index: int) -> None:
    peak.see(list(state.tensors()))
    state.begin_step(step_index)


def _tiny_run(model: TinyModel) -> Callable[[nn.Module, int, BeginStep], Tensor]:
    return lambda transformer, _, begin_step: denoise(model, transformer, begin_step)


def _cell(
    subject: Subject,
    label: str,
    outcome: Outcome,
    error: float,
    theirs: Outcome,
    rival_error: float,
) -> Iterator[Figure]:
    full = STEPS * subject.branches * subject.blocks * subject.inputs
    for figure, value, rival_value in (
        ("rel_l1_error", error, rival_error),
        ("block_calls_share", outcome.block_calls / full, theirs.block_calls / full),
        ("extra_bytes", float(outcome.peak_bytes), float(theirs.peak_bytes)),
    ):
        yield Figure(figure, subject.name, label, value, rival.NAME, rival_value, subject.inputs)
