"""How blocks of every pattern are called, and what is made of what they return."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.unit.denoise.blockcache.tiny_chain import STYLES, TEXT_IN, seeded

from skipstone_denoise.blockcache.patterns import BlockArguments, ForwardPattern, Streams

H, E, EARLIER = seeded(1, 2, seed=1), seeded(1, 3, seed=2), seeded(1, 3, seed=3)
HIDDEN_FIRST = (ForwardPattern.HE_HE, ForwardPattern.H_HE)
HIDDEN_ONLY = (ForwardPattern.HE_H, ForwardPattern.H_H)


@pytest.mark.parametrize("pattern", ForwardPattern)
def test_what_is_packed_is_unpacked_again(pattern: ForwardPattern) -> None:
    packed = pattern.pack(Streams(H, E))
    if pattern in HIDDEN_ONLY:
        assert packed is H
        assert pattern.unpack(packed, EARLIER) == (H, EARLIER)
    else:
        assert packed == ((H, E) if pattern in HIDDEN_FIRST else (E, H))
        assert pattern.unpack(packed, EARLIER) == (H, E)


@pytest.mark.parametrize("pattern", HIDDEN_ONLY)
def test_hidden_states_in_a_tuple_are_taken_out(pattern: ForwardPattern) -> None:
    assert pattern.unpack((H,), E) == (H, E)


def arguments(pattern: ForwardPattern, style: str) -> BlockArguments:
    named: dict[str, Any] = {"hidden_states": H}
    if pattern in TEXT_IN:
        named["encoder_hidden_states"] = E
    if style == "positional":
        return BlockArguments(pattern, (*named.values(), "temb"), {})
    if style == "keyword":
        return BlockArguments(pattern, (), {**named, "temb": "temb"})
    return BlockArguments(pattern, (named.pop("hidden_states"),), {**named, "temb": "temb"})


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("pattern", ForwardPattern)
def test_the_streams_are_found_and_replaced_however_they_are_passed(
    pattern: ForwardPattern, style: str
) -> None:
    seen: list[tuple[Any, ...]] = []

    def with_text(hidden_states: Any, encoder_hidden_states: Any, temb: Any) -> Any:
        seen.append((hidden_states, encoder_hidden_states, temb))
        return pattern.pack(Streams(hidden_states + 1, encoder_hidden_states + 10))

    def without_text(hidden_states: Any, temb: Any) -> Any:
        seen.append((hidden_states, temb))
        return pattern.pack(Streams(hidden_states + 1, E))

    call = arguments(pattern, style)
    block = with_text if pattern in TEXT_IN else without_text
    assert call.streams.hidden is H
    assert call.streams.encoder is (E if pattern.takes_encoder else None)
    hidden, encoder = call.run([block, block], call.streams)
    assert torch.equal(hidden, H + 2)
    assert torch.equal(seen[1][0], H + 1)
    assert seen[1][-1] == "temb"
    if pattern.takes_encoder:
        assert torch.equal(encoder, E + 20)
    else:
        assert encoder is (None if pattern in HIDDEN_ONLY else E)


def test_text_by_name_beside_other_positional_arguments_is_the_text() -> None:
    call = BlockArguments(ForwardPattern.HE_HE, (H, "temb"), {"encoder_hidden_states": E})
    assert call.streams == (H, E)


def test_a_call_without_a_stream_is_refused() -> None:
    with pytest.raises(TypeError, match="hidden_states or x"):
        BlockArguments(ForwardPattern.H_H, (), {"encoder_hidden_states": E})
    with pytest.raises(TypeError, match=r"\(h,e\)->\(h,e\) was called without its text"):
        BlockArguments(ForwardPattern.HE_HE, (H,), {})


def test_a_block_that_calls_its_stream_x_is_known() -> None:
    call = BlockArguments(ForwardPattern.H_H, (), {"x": H, "c": E})
    assert torch.equal(call.run([lambda x, c: x + c.sum()], call.streams).hidden, H + E.sum())


class Seen:
    """A block that keeps its arguments."""

    def __call__(self, hidden_states: Any, *args: Any, **kwargs: Any) -> Any:
        self.args, self.kwargs = args, kwargs
        return hidden_states


def test_chosen_samples_are_cut_out_of_batched_arguments_alone() -> None:
    batch = seeded(3, 2, seed=4)
    rotary, other_rows, scalar = seeded(3, 5, seed=5), seeded(4, 5, seed=6), torch.tensor(2.0)
    nested = {"pair": (batch, [batch, "word"])}
    names = ["hidden_states", "temb", "rotary"]
    call = BlockArguments(
        ForwardPattern.H_H,
        (batch, batch, rotary, batch),
        {"mask": nested, "other": other_rows, "scalar": scalar, "none": None, "flag": True},
    )
    index, block = torch.tensor([0, 2]), Seen()
    part = call.rows(index, 3, names, unbatched=("rotary",))
    part.run([block], part.streams)
    assert torch.equal(part.streams.hidden, batch[index])
    temb, same_rotary, unnamed = block.args
    assert torch.equal(temb, batch[index])
    assert same_rotary is rotary
    # More arguments than the block has names for (*args) are passed on all the same.
    assert torch.equal(unnamed, batch[index])
    pair, (inner, word) = block.kwargs["mask"]["pair"]
    assert torch.equal(pair, batch[index])
    assert torch.equal(inner, batch[index])
    assert word == "word"
    assert block.kwargs["other"] is other_rows
    assert block.kwargs["scalar"] is scalar
    assert (block.kwargs["none"], block.kwargs["flag"]) == (None, True)


def test_an_argument_of_several_batches_is_cut_in_each_of_them() -> None:
    batch, twice = seeded(2, 2, seed=4), seeded(4, 2, seed=5)
    call = BlockArguments(ForwardPattern.H_H, (batch,), {"temb": twice})
    block = Seen()
    part = call.rows(torch.tensor([1]), 2, ["hidden_states"], repeated=("temb",))
    part.run([block], part.streams)
    assert torch.equal(block.kwargs["temb"], twice[[1, 3]])
