"""What `torch.compile` made stays compiled where it can, and is left alone where it can't."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
from torch import Tensor, nn

from skipstone_denoise.blockcache.cached_transformer import with_block_cache
from skipstone_denoise.blockcache.patterns import ForwardPattern
from skipstone_denoise.blockcache.settings import DBCacheSettings
from skipstone_denoise.blockcache.state import BlockCacheState

SETTINGS = DBCacheSettings(max_warmup_steps=1, residual_diff_threshold=0.5)
NUMBERS: list[Amount] = [1.0, 1.1, 1.2, 2.0, 2.1, 9.0]


def expected() -> list[Tensor]:
    return Request(*cached(tiny_transformer(), SETTINGS)).run(NUMBERS)


@pytest.fixture
def compiled_graphs() -> Iterator[list[Any]]:
    torch.compiler.reset()
    yield []
    torch.compiler.reset()


def test_a_transformer_compiled_as_a_whole_runs_uncompiled(compiled_graphs: list[Any]) -> None:
    def backend(graph: Any, inputs: Any) -> Any:
        compiled_graphs.append(graph)
        return graph

    in_place = tiny_transformer()
    in_place.compile(backend=backend)
    for shared in (torch.compile(tiny_transformer(), backend=backend), in_place):
        state = BlockCacheState(SETTINGS)
        mine = with_block_cache(shared, adapter_of(tiny_transformer()), state)
        assert all(map(torch.equal, Request(mine, state).run(NUMBERS), expected()))
        assert reused(state)
    assert compiled_graphs == []
    assert in_place._compiled_call_impl is not None


class PlainBlock(nn.Module):
    """Nothing that a compiler would trip over."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.first = index == 0

    def forward(self, hidden_states: Tensor, amount: Tensor) -> Tensor:
        added = self.linear.bias if self.first else torch.tanh(self.linear(hidden_states))
        return hidden_states + amount * added


class PlainTransformer(nn.Module):
    pattern = ForwardPattern.H_H

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.blocks = nn.ModuleList(PlainBlock(index) for index in range(3))
        self.double().requires_grad_(False)

    def forward(self, hidden: Tensor, amount: Tensor, text: None = None) -> Tensor:
        for block in self.blocks:
            hidden = block(hidden, amount)
        return hidden


@pytest.mark.parametrize("wrapped", [False, True])
def test_compiled_blocks_stay_compiled(compiled_graphs: list[Any], wrapped: bool) -> None:
    def backend(graph: Any, inputs: Any) -> Any:
        compiled_graphs.append(graph)
        return graph

    plain = Request(*cached(PlainTransformer(), SETTINGS)).run(NUMBERS)
    shared = PlainTransformer()
    for index, block in enumerate(list(shared.blocks)):
        if wrapped:
            shared.blocks[index] = torch.compile(block, backend=backend)
        else:
            block.compile(backend=backend)
    mine, state = cached(shared, SETTINGS)
    assert all(map(torch.equal, Request(mine, state).run(NUMBERS), plain))
    assert reused(state)
    assert compiled_graphs


def test_compiled_blocks_in_a_batch_keep_the_names_of_their_arguments() -> None:
    shared = tiny_transformer()
    state = BlockCacheState(SETTINGS, sample_groups=(0, 1))
    for index, block in enumerate(list(shared.blocks)):
        shared.blocks[index] = torch.compile(block, disable=True)
    mine, _ = cached(shared, state)
    request = Request(mine, state, batch=2)
    outputs = request.run([amounts(1.0, 1.0), amounts(1.0, 9.0)])
    plain = Request(tiny_transformer(), batch=2)
    wanted = plain.run([amounts(1.0, 1.0), amounts(1.0, 9.0)])
    assert torch.allclose(outputs[1][1], wanted[1][1], rtol=0, atol=1e-12)
