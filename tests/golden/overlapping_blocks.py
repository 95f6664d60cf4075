"""More front and back blocks than a transformer has: the reference runs the shared ones twice.

Skipstone refuses such settings. Recorded runs have them where one setting was taken for models of
several lengths, so the transformer is made as long as the reference runs it.
"""

from __future__ import annotations

import copy
import dataclasses

from torch import nn

from skipstone_denoise.blockcache.adapters import TransformerAdapter
from skipstone_denoise.blockcache.families import block_lists
from skipstone_denoise.blockcache.settings import DBCacheSettings


def with_room_for(
    transformer: nn.Module, adapter: TransformerAdapter, settings: DBCacheSettings
) -> tuple[nn.Module, TransformerAdapter]:
    """The transformer with its first F and then its last B blocks, if it has fewer than F + B.

    Args:
        transformer: The shared module; it is not changed.
        adapter: Where its blocks are; one chain.
        settings: F and B, each at most the number of its blocks.
    """
    (chain,) = adapter.chains
    blocks = [block for blocks in block_lists(transformer, chain) for block in blocks]
    front, back = settings.fn_compute_blocks, settings.bn_compute_blocks
    if front + back <= len(blocks) or max(front, back) > len(blocks):
        return transformer, adapter
    longer = copy.copy(transformer)
    longer._modules = dict(transformer._modules)
    first, *others = chain.lists
    setattr(longer, first, nn.ModuleList([*blocks[:front], *blocks[-back:]]))
    for name in others:
        setattr(longer, name, nn.ModuleList())
    one_list = dataclasses.replace(chain, lists=(first,))
    return longer, dataclasses.replace(adapter, chains=(one_list,))
