"""The presets: block-cache settings for people who want no knobs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from skipstone_shared.generation import BlockCacheConfig, BlockCachePreset

PRESETS: Mapping[BlockCachePreset, BlockCacheConfig] = MappingProxyType(
    {
        BlockCachePreset.QUALITY: BlockCacheConfig(
            fn_compute_blocks=1,
            bn_compute_blocks=0,
            max_warmup_steps=4,
            max_continuous_cached_steps=3,
            residual_diff_threshold=0.1,
            enable_taylorseer=True,
            taylorseer_order=1,
        ),
        BlockCachePreset.BALANCED: BlockCacheConfig(
            fn_compute_blocks=1,
            bn_compute_blocks=0,
            max_warmup_steps=4,
            max_continuous_cached_steps=3,
            residual_diff_threshold=0.16,
            enable_taylorseer=True,
            taylorseer_order=1,
        ),
        BlockCachePreset.FAST: BlockCacheConfig(
            fn_compute_blocks=1,
            bn_compute_blocks=0,
            # Longer runs of reused steps overshoot unless the picture's layout was computed first.
            max_warmup_steps=6,
            max_continuous_cached_steps=6,
            residual_diff_threshold=0.24,
            enable_taylorseer=True,
            taylorseer_order=1,
        ),
    }
)
"""What each preset sets; its measured effect is in docs/block-caching.md."""

_MASK_FIELDS = ("scm_steps_mask_policy", "scm_mask_source", "compute_bins", "cache_bins")


def with_preset(config: BlockCacheConfig) -> BlockCacheConfig:
    """A configuration with the fields that it leaves unset taken from its preset, if it has one.

    Returns:
        The configuration without a preset. Its secondary is as it was.
    """
    base = PRESETS.get(config.preset) if config.preset is not None else None
    filled = overridden(base, config) if base is not None else config
    return dataclasses.replace(filled, preset=None, secondary=config.secondary)


def overridden(base: BlockCacheConfig, config: BlockCacheConfig) -> BlockCacheConfig:
    """A base with every field replaced that a configuration sets.

    Fields that would contradict it go with it: who sets a policy is not given the base's bins,
    which would override it, and who turns the forecast off or on is not given its other half.
    """
    changes = {
        field.name: value
        for field in dataclasses.fields(config)
        if (value := getattr(config, field.name)) != field.default
    }
    if sets_mask(config):
        changes = {"compute_bins": (), "cache_bins": (), **changes}
    if config.enable_taylorseer is False:
        changes.setdefault("enable_divided_difference", None)
    elif config.enable_divided_difference:
        changes.setdefault("enable_taylorseer", None)
    return dataclasses.replace(base, **changes)


def sets_mask(config: BlockCacheConfig) -> bool:
    """Whether a configuration says by itself which mask there is."""
    defaults = BlockCacheConfig()
    return any(getattr(config, name) != getattr(defaults, name) for name in _MASK_FIELDS)
