"""Whose state is whose: requests, guidance branches, chains and transformers of one run."""

from __future__ import annotations

import math

import pytest
import torch
from tests.unit.denoise.blockcache.tiny_chain import (
    Amount,
    Request,
    adapter_of,
    amounts,
    cached,
    reused,
    tiny_transformer,
)
from torch import nn

from skipstone_denoise.blockcache.cached_transformer import with_block_cache
from skipstone_denoise.blockcache.dbcache import Reason
from skipstone_denoise.blockcache.patterns import ForwardPattern
from skipstone_denoise.blockcache.settings import DBCacheSettings, Forecast
from skipstone_denoise.blockcache.state import BlockCacheState

LOOSE = DBCacheSettings(
    max_warmup_steps=1, residual_diff_threshold=0.5, forecast=Forecast.TAYLOR, bn_compute_blocks=1
)
QUIET: list[Amount] = [1.0, 1.1, 1.2, 1.7, 1.8, 3.0, 3.1, 3.2, 3.3, 3.4]
JUMPY: list[Amount] = [1.0, 1.2, 2.0, 2.1, 2.2, 4.0, 4.1, 9.0, 9.5, 9.6]


def request(transformer: nn.Module, settings: DBCacheSettings = LOOSE, seed: int = 1) -> Request:
    mine, state = cached(transformer, settings)
    return Request(mine, state, seed=seed)


def branches(state: BlockCacheState) -> list[str]:
    return [branch.branch for branch in state.report().branches]


@pytest.mark.parametrize("pattern", ForwardPattern)
def test_interleaved_requests_equal_the_same_two_in_turn(pattern: ForwardPattern) -> None:
    shared = tiny_transformer(pattern)
    first, second = request(shared, seed=1), request(shared, seed=2)
    for step, (quiet, jumpy) in enumerate(zip(QUIET, JUMPY, strict=True)):
        first.step(step, amounts(quiet))
        second.step(step, amounts(jumpy))
    alone = [request(tiny_transformer(pattern), seed=seed) for seed in (1, 2)]
    assert all(map(torch.equal, first.outputs, alone[0].run(QUIET)))
    assert all(map(torch.equal, second.outputs, alone[1].run(JUMPY)))
    assert first.state.report() == alone[0].state.report()
    assert reused(first.state) != reused(second.state)


def test_an_aborted_request_leaves_nothing_to_one_of_another_size() -> None:
    shared = tiny_transformer()
    request(shared, seed=3).run(JUMPY[:4])
    mine, state = cached(shared, LOOSE)
    larger = Request(mine, state, length=7)
    lone, lone_state = cached(tiny_transformer(), LOOSE)
    alone = Request(lone, lone_state, length=7)
    assert all(map(torch.equal, larger.run(QUIET[:5]), alone.run(QUIET[:5])))


def test_an_exception_in_a_block_leaves_nothing_to_the_next_request() -> None:
    shared = tiny_transformer()
    failing = request(shared, seed=3)
    failing.run(JUMPY[:2])
    shared.blocks[2].fails = True
    with pytest.raises(RuntimeError, match="a block failed"):
        failing.step(2, amounts(9.0))
    after = request(shared)
    assert all(map(torch.equal, after.run(QUIET), request(tiny_transformer()).run(QUIET)))


@pytest.mark.parametrize("own_arguments", [False, True])
def test_a_request_goes_on_after_an_exception_in_a_block(own_arguments: bool) -> None:
    shared = tiny_transformer()
    mine, state = cached(shared, LOOSE, own_arguments=own_arguments)
    going = Request(mine, state)
    going.run(QUIET[:2])
    shared.blocks[2].fails = True
    with pytest.raises(RuntimeError, match="a block failed"):
        going.step(2, amounts(9.0))
    # What step 2 would have left is missing; what step 0 left still serves.
    going.step(3, amounts(1.2))
    assert reused(state) == [1, 3]


def test_branches_are_told_apart_by_name_in_any_order() -> None:
    named, state = cached(tiny_transformer(), LOOSE)
    by_name = Request(named, state)
    for step in range(10):
        pair = {"cond": amounts(QUIET[step]), "uncond": amounts(JUMPY[step])}
        order = ["cond", "uncond"] if step % 2 else ["uncond", "cond"]
        by_name.step(step, *(pair[name] for name in order), names=order)
    by_order = request(tiny_transformer())
    by_order.run(zip(QUIET, JUMPY, strict=True))
    for branch in ("cond", "uncond"):
        assert reused(state, branch) == reused(by_order.state, branch)
    assert reused(state, "cond") != reused(state, "uncond")
    # Summed in another order, so not bit for bit.
    assert torch.allclose(by_name.latents, by_order.latents, rtol=0, atol=1e-12)


def test_three_branches_have_three_states() -> None:
    mine, state = cached(tiny_transformer(), LOOSE)
    three = Request(mine, state)
    names = ["cond", "uncond", "image"]
    for step in range(10):
        calls = amounts(QUIET[step]), amounts(JUMPY[step]), amounts(1.0)
        three.step(step, *calls, names=names)
    assert branches(state) == names
    assert [reused(state, name) for name in names] == [
        [1, 2, 4, 6, 7, 8],
        [1, 3, 4, 6, 8, 9],
        [1, 2, 3, 5, 6, 7, 9],
    ]


def test_calls_without_a_name_are_numbered_past_the_names_of_the_adapter() -> None:
    mine, state = cached(tiny_transformer(), LOOSE)
    Request(mine, state).run([(1.0, 1.0, 1.0)] * 3)
    assert branches(state) == ["cond", "uncond", "call 3"]
    assert reused(state, "call 3") == [1, 2]


def test_a_branch_that_is_called_twice_in_a_step_is_two_branches() -> None:
    mine, state = cached(tiny_transformer(), LOOSE)
    twice = Request(mine, state)
    for step, (quiet, jumpy) in enumerate(zip(QUIET, JUMPY, strict=True)):
        twice.step(step, amounts(quiet), amounts(jumpy), names=["cond", "cond"])
    assert branches(state) == ["cond", "cond 2"]
    assert reused(state, "cond") == reused(_alone(QUIET))
    assert reused(state, "cond 2") == reused(_alone(JUMPY))


def test_a_call_without_a_name_is_not_taken_for_one_that_has_the_same() -> None:
    """A pipeline may name some of its calls only."""
    mine, state = cached(tiny_transformer(), LOOSE)
    half = Request(mine, state)
    for step, (quiet, jumpy) in enumerate(zip(QUIET, JUMPY, strict=True)):
        state.begin_step(step)
        with mine.cache_context("cond"):
            first = mine(half.latents, amounts(quiet), None)
        second = mine(half.latents, amounts(jumpy), None)
        half.latents = half.latents + 0.05 * (first + second)
    assert branches(state) == ["cond", "cond 2"]
    assert reused(state, "cond") == reused(_alone(QUIET))
    assert reused(state, "cond 2") == reused(_alone(JUMPY))


def _alone(numbers: list[Amount]) -> BlockCacheState:
    lone = request(tiny_transformer())
    lone.run(numbers)
    return lone.state


def test_a_step_that_is_begun_again_begins_its_calls_again() -> None:
    mine, state = cached(tiny_transformer(), LOOSE)
    repeated = Request(mine, state)
    for step in (0, 1, 1, 2):
        repeated.step(step, amounts(1.0), amounts(1.0))
    assert branches(state) == ["cond", "uncond"]
    assert reused(state) == [1, 1, 2]
    assert torch.isfinite(repeated.latents).all()


def test_batched_guidance_is_one_branch_with_one_decision() -> None:
    mine, state = cached(tiny_transformer(), LOOSE, branches=("cond_uncond",))
    # Apart the halves would differ at step 2: the change of one is 0.2, of the other 1.0.
    numbers = [amounts(1.0, 1.0), amounts(1.1, 1.2), amounts(1.2, 2.0), amounts(2.4, 2.4)]
    Request(mine, state, batch=2).run(numbers)
    assert branches(state) == ["cond_uncond"]
    diffs = [r.residual_diff for r in state.states_of("transformer", "", "cond_uncond")[0].records]
    assert diffs[1:3] == pytest.approx([0.15, 0.6])
    assert reused(state, "cond_uncond") == [1, 3]


@pytest.mark.parametrize("names", [["cond", "uncond"], ["uncond", "cond"]])
def test_a_shared_difference_is_that_of_the_first_call_of_a_step(names: list[str]) -> None:
    settings = DBCacheSettings(
        max_warmup_steps=1, residual_diff_threshold=0.5, share_branch_diff=True
    )
    mine, state = cached(tiny_transformer(), settings)
    shared = Request(mine, state)
    for step, (quiet, jumpy) in enumerate(zip(QUIET, JUMPY, strict=True)):
        shared.step(step, amounts(quiet), amounts(jumpy), names=names)
    assert reused(state, names[0]) == reused(state, names[1]) == [1, 2, 4, 6, 7, 8]
    first, second = (state.states_of("transformer", "", name)[0].records for name in names)
    diffs = [[r.residual_diff for r in records[1:]] for records in (first, second)]
    assert diffs[0] == pytest.approx(diffs[1], nan_ok=True)


def test_skipped_steps_count_as_warm_up() -> None:
    settings = DBCacheSettings(max_warmup_steps=4, residual_diff_threshold=0.5)
    mine, state = cached(tiny_transformer(), settings)
    resumed = Request(mine, state)
    for step in range(6, 10):
        resumed.step(step, amounts(1.0))
    assert reused(state) == [7, 8, 9]
    assert state.report().branches[0].computed_steps == (6,)


def test_a_second_transformer_has_settings_and_steps_of_its_own() -> None:
    settings = {
        "transformer": DBCacheSettings(max_warmup_steps=2, residual_diff_threshold=0.5),
        "transformer_2": DBCacheSettings(steps_mask=(True, False, True), static_mask=True),
    }
    state = BlockCacheState(settings, first_steps={"transformer_2": 4})
    shared = tiny_transformer()
    pair = [with_block_cache(shared, adapter_of(shared), state, name) for name in settings]
    for step in range(8):
        Request(pair[step >= 4], state).step(step, amounts(1.0))
    first, second = state.report().branches
    assert (first.transformer, second.transformer) == ("transformer", "transformer_2")
    assert (first.computed_steps, first.reused_steps) == ((0, 1), (2, 3))
    assert (second.computed_steps, second.reused_steps) == ((4, 6), (5, 7))
    assert second.reasons == {
        Reason.WARM_UP.value: 1,
        Reason.MASK_REUSES.value: 2,
        Reason.MASK_COMPUTES.value: 1,
    }


def test_the_report_tells_steps_reasons_and_block_calls() -> None:
    state = BlockCacheState(LOOSE, report_residual_diffs=True)
    transformer = tiny_transformer()
    mine, _ = cached(transformer, state)
    Request(mine, state).run([1.0, 1.1, 1.2, 9.0])
    report = state.report()
    (branch,) = report.branches
    assert (branch.transformer, branch.branch) == ("transformer", "cond")
    assert (branch.computed_steps, branch.reused_steps) == ((0, 3), (1, 2))
    assert branch.reasons == {
        Reason.WARM_UP.value: 1,
        Reason.BELOW_THRESHOLD.value: 2,
        Reason.NOT_BELOW_THRESHOLD.value: 1,
    }
    assert math.isnan(branch.residual_diffs[0])
    assert branch.residual_diffs[1:] == pytest.approx((0.1, 0.2, 8.0))
    # Five blocks, of which three are reused at two of the four steps.
    assert (report.block_calls, report.block_calls_full) == (14, 20)
    assert sum(transformer.calls) == 14
    assert [state.reused_at(step) for step in range(5)] == [False, True, True, False, False]


def test_differences_are_reported_on_demand_only() -> None:
    assert _alone(QUIET).report().branches[0].residual_diffs == ()


def test_what_is_released_is_gone_but_reported() -> None:
    state = _alone(QUIET)
    report = state.report()
    assert list(state.tensors())
    state.release()
    assert not list(state.tensors())
    assert state.report() == report
