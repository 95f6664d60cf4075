"""What this executor does with block-cache settings."""

from __future__ import annotations

from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import BlockCacheConfig, BlockCachePreset

BLOCK_CACHE_SUPPORTED = False

_OFF = (BlockCacheConfig(), BlockCacheConfig(preset=BlockCachePreset.NONE))


def checked_block_cache(config: BlockCacheConfig | None) -> BlockCacheConfig | None:
    """The block-cache settings of a run; None, since this executor caches no blocks.

    Raises:
        InvalidArgument: block caching is asked for. Running without it would be slower than what
            the caller counts on, so it is not passed over silently.
    """
    if config is None or config in _OFF:
        return None
    raise InvalidArgument(
        "params.block_cache asks for block caching, which this executor does not have",
        field="params.block_cache",
        allowed="unset or preset none",
    )
