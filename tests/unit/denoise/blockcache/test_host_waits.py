"""How often a step waits for the device: at most once, and never where a rule has decided."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from tests.unit.denoise.blockcache.tiny_chain import (
    Request,
    amounts,
    cached,
    reused,
    tiny_transformer,
)

from skipstone_denoise.blockcache.settings import DBCacheSettings, Forecast
from skipstone_denoise.blockcache.state import BlockCacheState

WAITS = ("item", "tolist", "numpy", "cpu", "nonzero", "__float__", "__bool__", "__int__")
"""Whatever reads a tensor on the host."""


@contextmanager
def counted_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    seen: list[str] = []
    with monkeypatch.context() as patch:
        for name in WAITS:
            patch.setattr(torch.Tensor, name, _counting(name, getattr(torch.Tensor, name), seen))
        # A tensor made of a list is copied to the device, which waits as well.
        patch.setattr(torch, "tensor", _counting("tensor", torch.tensor, seen))
        yield seen


def _counting(name: str, original: Any, seen: list[str]) -> Any:
    def counting(*args: Any, **kwargs: Any) -> Any:
        seen.append(name)
        return original(*args, **kwargs)

    return counting


def waits_of_steps(
    monkeypatch: pytest.MonkeyPatch, settings: DBCacheSettings, layout: tuple[int, ...] = (0,)
) -> tuple[list[int], BlockCacheState]:
    mine, state = cached(tiny_transformer(), BlockCacheState(settings, sample_groups=layout))
    request = Request(mine, state, batch=len(layout))
    counts = []
    for step, number in enumerate([1.0, 1.1, 1.2, 4.0, 4.1, 4.2]):
        # Each request of a batch changes at a step of its own.
        own = [number + 9.0 * (place == step) for place in range(len(layout))]
        amount = amounts(*own)
        with counted_waits(monkeypatch) as seen:
            request.step(step, amount)
        counts.append(len(seen))
    return counts, state


def test_a_measured_step_waits_once(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = DBCacheSettings(
        max_warmup_steps=1, residual_diff_threshold=0.5, forecast=Forecast.TAYLOR
    )
    counts, state = waits_of_steps(monkeypatch, settings)
    assert counts == [0, 1, 1, 1, 1, 1]
    assert reused(state)


@pytest.mark.parametrize(
    "settings",
    [
        DBCacheSettings(max_warmup_steps=9),
        DBCacheSettings(max_warmup_steps=1, residual_diff_threshold=0.0),
        DBCacheSettings(max_warmup_steps=1, residual_diff_threshold=1.0),
        DBCacheSettings(max_warmup_steps=1, max_cached_steps=0),
        DBCacheSettings(max_warmup_steps=1, max_continuous_cached_steps=0),
        DBCacheSettings(max_warmup_steps=1, max_accumulated_residual_diff=0.0),
        DBCacheSettings(steps_mask=(True,) * 6),
        DBCacheSettings(steps_mask=(True, False) * 3, static_mask=True),
    ],
    ids=str,
)
def test_a_step_that_a_rule_decides_does_not_wait(
    monkeypatch: pytest.MonkeyPatch, settings: DBCacheSettings
) -> None:
    assert waits_of_steps(monkeypatch, settings)[0] == [0] * 6


def test_a_batch_of_requests_waits_once_and_places_its_samples_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = DBCacheSettings(max_warmup_steps=1, residual_diff_threshold=0.5)
    counts, _ = waits_of_steps(monkeypatch, settings, layout=(0, 1, 2))
    # Where the samples of each of the three requests are, and of those that compute at step 1.
    first, second, *others = counts
    assert first == 3
    assert second <= 2
    assert max(others) <= 2
    assert others[-1] == 1
