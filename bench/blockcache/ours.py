"""Skipstone's block cache on the transformers of this benchmark, as the executor calls it."""

from __future__ import annotations

from torch import nn

from blockcache.settings import Setting
from skipstone_denoise.blockcache.cached_transformer import with_block_cache
from skipstone_denoise.blockcache.families import adapter_for
from skipstone_denoise.blockcache.state import BlockCacheState


def with_skipstone(transformer: nn.Module, setting: Setting) -> tuple[nn.Module, BlockCacheState]:
    """Returns a request's own cached transformer and its state.

    Args:
        transformer: A diffusers transformer; left alone, its blocks are shared.
        setting: What to set.
    """
    state = BlockCacheState(setting.ours())
    return with_block_cache(transformer, adapter_for(transformer), state), state
