"""Requests in one batch: each decides for itself, and the middle blocks run on those that need."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from tests.unit.denoise.blockcache.tiny_chain import (
    STYLES,
    Request,
    TinyTransformer,
    amounts,
    cached,
    reused,
    tiny_transformer,
)
from torch import Tensor

from skipstone_denoise.blockcache.patterns import ForwardPattern
from skipstone_denoise.blockcache.settings import DBCacheSettings, Forecast
from skipstone_denoise.blockcache.state import BlockCacheState

SETTINGS = DBCacheSettings(
    bn_compute_blocks=1, max_warmup_steps=1, residual_diff_threshold=0.5, forecast=Forecast.TAYLOR
)
A = [1.0, 1.1, 1.2, 1.3, 2.0, 2.1, 2.2, 2.3, 2.4, 9.0]
B = [1.0, 1.8, 1.9, 2.0, 2.1, 2.2, 3.6, 3.7, 3.8, 3.9]
TOLERANCE = {"rtol": 0.0, "atol": 1e-12}
"""A matrix of two rows is multiplied in another order than one of one row."""


def of_samples(*samples: Sequence[float]) -> list[Tensor]:
    return [amounts(*step) for step in zip(*samples, strict=True)]


class Batch(Request):
    """Requests in one batch, whose latents are those of requests alone."""

    def __init__(
        self,
        transformer: TinyTransformer,
        layout: Sequence[int],
        seeds: Sequence[int],
        settings: DBCacheSettings = SETTINGS,
        own_arguments: bool = False,
    ) -> None:
        state = BlockCacheState(settings, sample_groups=layout, report_residual_diffs=True)
        mine, _ = cached(transformer, state, own_arguments=own_arguments)
        super().__init__(mine, state)
        alone = [Request(transformer, seed=seed) for seed in seeds]
        self.latents = torch.cat([request.latents for request in alone])
        if alone[0].text is not None:
            self.text = torch.cat([r.text for r in alone if r.text is not None])


@pytest.mark.parametrize("own_arguments", [False, True])
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("pattern", ForwardPattern)
def test_two_requests_in_a_batch_equal_each_alone(
    pattern: ForwardPattern, style: str, own_arguments: bool
) -> None:
    """The rotary embedding has two rows too, and is not cut."""
    transformer = tiny_transformer(pattern, style=style)
    transformer.per_block = own_arguments
    both = Batch(transformer, (0, 1), (1, 2), own_arguments=own_arguments)
    outputs = both.run(of_samples(A, B))
    calls = 0
    for request, (seed, numbers) in enumerate([(1, A), (2, B)]):
        alone = Batch(transformer, (0,), (seed,), own_arguments=own_arguments)
        for output, lone in zip(outputs, alone.run(of_samples(numbers)), strict=True):
            assert torch.allclose(output[request : request + 1], lone, **TOLERANCE)
        mine, lone = both.state.report().branches[request], alone.state.report().branches[0]
        assert mine.branch == f"cond, request {request}"
        assert (mine.computed_steps, mine.reused_steps) == (lone.computed_steps, lone.reused_steps)
        assert mine.reasons == lone.reasons
        assert mine.residual_diffs == pytest.approx(lone.residual_diffs, abs=1e-12, nan_ok=True)
        calls += alone.state.report().block_calls
    assert reused(both.state, request=0) != reused(both.state, request=1)
    assert both.state.report().block_calls == calls
    assert both.state.report().block_calls_full == 2 * 5 * len(A)


@pytest.mark.parametrize("own_arguments", [False, True])
def test_the_middle_blocks_run_on_the_requests_that_need_them(own_arguments: bool) -> None:
    transformer = tiny_transformer()
    batch = Batch(transformer, (0, 1), (1, 2), own_arguments=own_arguments)
    batch.run(of_samples([1.0, 1.0, 9.0, 9.0, 1.0], [1.0, 9.0, 9.0, 9.0, 1.0]))
    first, *middle, last = transformer.blocks
    # Both; B; A; none; both.
    assert all(block.rows_seen == [2, 1, 1, 2] for block in middle)
    assert first.rows_seen == last.rows_seen == [2, 2, 2, 2, 2]
    report = batch.state.report()
    assert report.block_calls == sum(sum(block.rows_seen) for block in transformer.blocks)
    assert [batch.state.reused_at(step) for step in range(5)] == [False, True, True, True, False]


def test_both_halves_of_a_requests_guidance_decide_together() -> None:
    """The layout of batched guidance: all unconditional samples, then all conditional ones."""
    transformer = tiny_transformer(ForwardPattern.HE_EH)
    halves = {1: A, 2: B, 3: B, 4: A}
    batch = Batch(transformer, (0, 1), tuple(halves))
    outputs = batch.run(of_samples(*halves.values()))
    for request, seeds in enumerate([(1, 3), (2, 4)]):
        alone = Batch(transformer, (0,), seeds)
        lone_outputs = alone.run(of_samples(*(halves[seed] for seed in seeds)))
        for output, lone in zip(outputs, lone_outputs, strict=True):
            assert torch.allclose(output[request::2], lone, **TOLERANCE)
        assert reused(batch.state, request=request) == reused(alone.state)
        assert reused(alone.state)


def test_requests_may_have_different_numbers_of_samples() -> None:
    transformer = tiny_transformer()
    batch = Batch(transformer, (0, 1, 0), (1, 2, 3))
    outputs = batch.run(of_samples(A, B, A))
    alone = Batch(transformer, (0,), (1, 3))
    for output, lone in zip(outputs, alone.run(of_samples(A, A)), strict=True):
        assert torch.allclose(output[[0, 2]], lone, **TOLERANCE)
    assert reused(batch.state, request=0) == reused(alone.state)


@pytest.mark.parametrize("own_arguments", [False, True])
def test_requests_that_compute_apart_with_no_middle_blocks_at_all(own_arguments: bool) -> None:
    settings = DBCacheSettings(
        fn_compute_blocks=3, bn_compute_blocks=2, max_warmup_steps=1, residual_diff_threshold=0.5
    )
    plain = Request(tiny_transformer(), batch=2)
    batch = Batch(tiny_transformer(), (0, 1), (1, 2), settings, own_arguments)
    plain.latents = batch.latents
    numbers = of_samples(A, B)
    assert all(map(torch.equal, batch.run(numbers), plain.run(numbers)))
    assert reused(batch.state, request=0) != reused(batch.state, request=1)


def test_a_shared_difference_is_shared_by_the_branches_of_its_own_request() -> None:
    settings = DBCacheSettings(
        max_warmup_steps=1, residual_diff_threshold=0.5, share_branch_diff=True
    )
    batch = Batch(tiny_transformer(), (0, 1), (1, 2), settings)
    steps = zip(of_samples(A, B), of_samples(B, A), strict=True)
    batch.run(steps)
    for request, numbers in enumerate((A, B)):
        alone = Batch(tiny_transformer(), (0,), (1,), settings)
        alone.run(of_samples(numbers))
        for branch in ("cond", "uncond"):
            assert reused(batch.state, branch, request) == reused(alone.state)


@pytest.mark.parametrize("own_arguments", [False, True])
def test_a_batch_that_cannot_hold_the_requests_is_refused(own_arguments: bool) -> None:
    batch = Batch(tiny_transformer(), (0, 1), (1, 2, 3), own_arguments=own_arguments)
    with pytest.raises(ValueError, match=r"3 samples can't hold the requests \(0, 1\).*of 2"):
        batch.run(of_samples(A, A, A))


@pytest.mark.parametrize("layout", [(), (1,), (0, 2), (-1, 0)])
def test_a_layout_that_leaves_a_request_out_is_refused(layout: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="without a gap"):
        BlockCacheState(SETTINGS, sample_groups=layout)
