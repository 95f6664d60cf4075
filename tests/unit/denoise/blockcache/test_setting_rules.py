"""What the rules say beforehand is what block caching then does."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import settings as run_with
from hypothesis import strategies as st
from torch import Tensor, nn

from skipstone_denoise.blockcache.adapters import BlockChain, TransformerAdapter
from skipstone_denoise.blockcache.cached_transformer import with_block_cache
from skipstone_denoise.blockcache.patterns import ForwardPattern
from skipstone_denoise.blockcache.setting_rules import fewest_computed, why_never_reused
from skipstone_denoise.blockcache.settings import DBCacheSettings
from skipstone_denoise.blockcache.state import BlockCacheState

STEPS = 12


class Doubling(nn.Module):
    def forward(self, hidden_states: Tensor) -> Tensor:
        return 2 * hidden_states


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Doubling(), Doubling()])

    def forward(self, hidden_states: Tensor) -> Tensor:
        for block in self.blocks:
            hidden_states = block(hidden_states)
        return hidden_states


TRANSFORMER = Transformer()
ADAPTER = TransformerAdapter(
    "Transformer", "test", (BlockChain(("blocks",), ForwardPattern.H_H),), branches=("only",)
)

_masks = st.lists(st.booleans(), min_size=STEPS, max_size=STEPS).map(tuple)
_settings = st.builds(
    DBCacheSettings,
    max_warmup_steps=st.integers(min_value=0, max_value=STEPS + 1),
    warmup_interval=st.integers(min_value=1, max_value=4),
    max_cached_steps=st.integers(min_value=-1, max_value=5),
    max_continuous_cached_steps=st.integers(min_value=-1, max_value=4),
    residual_diff_threshold=st.sampled_from([0.0, 0.24, 1.0]),
    steps_mask=st.none() | _masks,
    static_mask=st.booleans(),
)


@run_with(max_examples=60)
@given(_settings)
def test_the_fewest_computed_steps_are_those_of_a_run_in_which_nothing_changes(
    settings: DBCacheSettings,
) -> None:
    state = BlockCacheState(settings)
    transformer = with_block_cache(TRANSFORMER, ADAPTER, state)
    for step in range(STEPS):
        state.begin_step(step)
        transformer(torch.ones(1, 2))
    (branch,) = state.report().branches
    assert fewest_computed(settings, STEPS) == len(branch.computed_steps)
    assert (why_never_reused(settings, STEPS) is None) == bool(branch.reused_steps)
