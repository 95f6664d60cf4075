"""A request's own transformer: the same numbers as the plain one, with fewer blocks run."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from tests.unit.denoise.blockcache.tiny_chain import (
    STYLES,
    TEXT_IN,
    Amount,
    Request,
    TinyTransformer,
    amounts,
    cached,
    reused,
    seeded,
    tiny_transformer,
)
from torch import Tensor

from skipstone_denoise.blockcache.chain_pass import ChainPass
from skipstone_denoise.blockcache.patterns import ForwardPattern
from skipstone_denoise.blockcache.settings import DBCacheSettings, Forecast
from skipstone_denoise.blockcache.state import BlockCacheState
from skipstone_shared.errors import InvalidArgument

NEVER = DBCacheSettings(residual_diff_threshold=0.0, max_warmup_steps=0)
ALWAYS = DBCacheSettings(residual_diff_threshold=1.0, max_warmup_steps=1)
NUMBERS: list[Amount] = [1.0, 1.1, 1.2, 2.0, 2.1, 9.0, 9.1, 9.2, 9.3]


def settings(front: int = 1, back: int = 0, **changes: Any) -> DBCacheSettings:
    return DBCacheSettings(
        fn_compute_blocks=front,
        bn_compute_blocks=back,
        max_warmup_steps=1,
        residual_diff_threshold=0.5,
        **changes,
    )


def outputs(
    transformer: TinyTransformer, chosen: DBCacheSettings, own_arguments: bool = False
) -> tuple[list[Tensor], BlockCacheState]:
    mine, state = cached(transformer, chosen, own_arguments=own_arguments)
    return Request(mine, state).run(NUMBERS), state


@pytest.mark.parametrize("own_arguments", [False, True])
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("pattern", ForwardPattern)
def test_a_threshold_of_zero_equals_the_plain_transformer_bit_for_bit(
    pattern: ForwardPattern, style: str, own_arguments: bool
) -> None:
    transformer = tiny_transformer(pattern, style=style)
    transformer.per_block = own_arguments
    plain = Request(transformer).run(NUMBERS)
    never, state = outputs(transformer, NEVER, own_arguments)
    assert all(map(torch.equal, never, plain))
    assert reused(state) == []


@pytest.mark.parametrize(("front", "back"), [(1, 0), (1, 1), (2, 2), (4, 1)])
@pytest.mark.parametrize("pattern", ForwardPattern)
def test_blocks_run_as_one_or_one_by_one_alike(
    pattern: ForwardPattern, front: int, back: int
) -> None:
    chosen = settings(front, back, forecast=Forecast.TAYLOR)
    fused, fused_state = outputs(tiny_transformer(pattern), chosen)
    wrapped, wrapped_state = outputs(tiny_transformer(pattern), chosen, own_arguments=True)
    assert all(map(torch.equal, fused, wrapped))
    assert fused_state.report() == wrapped_state.report()
    assert reused(fused_state)


@pytest.mark.parametrize(("front", "back"), [(1, 0), (2, 1), (1, 3)])
@pytest.mark.parametrize("pattern", ForwardPattern)
def test_a_reused_step_adds_what_the_middle_blocks_added_last(
    pattern: ForwardPattern, front: int, back: int
) -> None:
    transformer = tiny_transformer(pattern)
    mine, state = cached(transformer, settings(front, back))
    latents, text = seeded(2, 1, 3, 4, seed=1), seeded(1, 2, 4, seed=2)
    encoder = text if pattern in TEXT_IN else None
    steps = []
    for step, amount in enumerate((amounts(1.0), amounts(1.2))):
        state.begin_step(step)
        steps.append((mine(latents[step], amount, encoder), latents[step], amount))
    assert reused(state) == [1]

    def run(part: slice, hidden: Tensor, text: Tensor | None, amount: Tensor) -> Any:
        for block in transformer.blocks[part]:
            streams = (hidden, text) if pattern in TEXT_IN else (hidden,)
            rotary = (transformer.rotary, transformer.rotary)
            hidden, text = pattern.unpack(block(*streams, amount, rotary), text)
        return hidden, text

    _, first, amount = steps[0]
    front_out = run(slice(None, front), first, encoder, amount)
    middle_out = run(slice(front, 5 - back), *front_out, amount)
    added = [None if a is None else b - a for a, b in zip(front_out, middle_out, strict=True)]
    output, second, amount = steps[1]
    streams = run(slice(None, front), second, encoder, amount)
    streams = [None if s is None else s + a for s, a in zip(streams, added, strict=True)]
    hidden, text = run(slice(5 - back, None), *streams, amount)
    expected = hidden if text is None else hidden + text.mean(1, keepdim=True)
    assert torch.allclose(output, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("own_arguments", [False, True])
@pytest.mark.parametrize(("front", "back"), [(1, 0), (2, 0), (1, 2), (2, 2)])
def test_front_and_back_blocks_run_at_every_step(
    front: int, back: int, own_arguments: bool
) -> None:
    transformer = tiny_transformer()
    _, state = outputs(transformer, settings(front, back), own_arguments)
    steps, computed = len(NUMBERS), len(NUMBERS) - len(reused(state))
    middle = [computed] * (5 - front - back)
    assert transformer.calls == [steps] * front + middle + [steps] * back
    assert computed < steps


@pytest.mark.parametrize("own_arguments", [False, True])
@pytest.mark.parametrize("pattern", ForwardPattern)
def test_with_no_middle_blocks_every_step_is_the_plain_one(
    pattern: ForwardPattern, own_arguments: bool
) -> None:
    transformer = tiny_transformer(pattern)
    plain = Request(transformer).run(NUMBERS)
    mine, _ = outputs(transformer, settings(2, 3), own_arguments)
    assert all(map(torch.equal, mine, plain))


def test_more_blocks_than_there_are_cannot_always_run() -> None:
    with pytest.raises(InvalidArgument, match="= 6, but blocks has 5") as error:
        cached(tiny_transformer(), settings(3, 3))
    assert error.value.allowed == "a sum of at most 5"


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("own_arguments", [False, True])
@pytest.mark.parametrize("pattern", ForwardPattern)
def test_blocks_that_write_into_their_input_are_cached_like_others(
    pattern: ForwardPattern, own_arguments: bool, whole: bool
) -> None:
    chosen = settings(2, 1, forecast=Forecast.TAYLOR, forecast_hidden=whole)
    expected, state = outputs(tiny_transformer(pattern), chosen)
    writing = tiny_transformer(pattern)
    for block in writing.blocks:
        block.in_place = True
    mine, writing_state = outputs(writing, chosen, own_arguments)
    assert all(map(torch.equal, mine, expected))
    assert writing_state.report() == state.report()
    assert reused(state)


def test_inference_tensors_are_cached_like_others() -> None:
    """They have no version counter that would tell whether a block wrote into them."""
    expected, state = outputs(tiny_transformer(), settings())
    writing = tiny_transformer()
    for block in writing.blocks:
        block.in_place = True
    with torch.inference_mode():
        mine, writing_state = outputs(writing, settings())
    assert all(map(torch.equal, mine, expected))
    assert writing_state.report() == state.report()


@pytest.mark.parametrize("own_arguments", [False, True])
def test_another_size_inside_a_request_starts_over(own_arguments: bool) -> None:
    transformer = tiny_transformer(ForwardPattern.HE_EH)
    mine, state = cached(transformer, ALWAYS, own_arguments=own_arguments)
    request, other = Request(mine, state), Request(mine, state, length=6)
    request.step(0, amounts(1.0))
    request.step(1, amounts(1.0))
    other.step(2, amounts(1.0))
    other.step(3, amounts(1.0))
    assert reused(state) == [1, 3]
    alone, alone_state = cached(transformer, ALWAYS, own_arguments=own_arguments)
    lone = Request(alone, alone_state, length=6)
    assert all(map(torch.equal, other.outputs, lone.run([1.0, 1.0])))


@pytest.mark.parametrize("forecast", Forecast)
def test_bfloat16_stays_bfloat16(forecast: Forecast) -> None:
    transformer = tiny_transformer(ForwardPattern.HE_EH, dtype=torch.bfloat16)
    mine, state = cached(transformer, settings(1, 1, forecast=forecast))
    request = Request(mine, state, dtype=torch.bfloat16)
    finished = request.run(NUMBERS)
    assert {output.dtype for output in finished} == {torch.bfloat16}
    assert {tensor.dtype for tensor in state.tensors()} == {torch.bfloat16}
    # The same decisions as in float64, though every residual is rounded to eight bits.
    assert reused(state) == reused(outputs(tiny_transformer(ForwardPattern.HE_EH), settings())[1])


@pytest.mark.parametrize("own_arguments", [False, True])
def test_nothing_is_kept_between_calls_but_what_the_state_holds(own_arguments: bool) -> None:
    mine, state = cached(tiny_transformer(), settings(1, 1), own_arguments=own_arguments)
    Request(mine, state).run(NUMBERS)
    assert not [found for found in gc.get_objects() if type(found) is ChainPass]
    # The front blocks' residual and the middle blocks' one.
    assert sum(tensor.nbytes for tensor in state.tensors()) == 2 * 3 * 4 * 8
