"""cache-dit on the transformers of this benchmark, as its users call it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

import cache_dit
from cache_dit import DBCacheConfig, TaylorSeerCalibratorConfig
from torch import nn

from blockcache.settings import Setting
from skipstone_denoise.blockcache.settings import Forecast

NAME: Final = f"cache-dit {cache_dit.__version__}"


def with_cache_dit(transformer: nn.Module, setting: Setting, steps: int) -> nn.Module:
    """Returns a copy of the transformer that runs under cache-dit.

    Args:
        transformer: A diffusers transformer of a family that cache-dit knows; left alone.
        setting: What to set.
        steps: Steps of a request.
    """
    cached = copy.deepcopy(transformer)
    cache_dit.enable_cache(
        cached, cache_config=_config(setting, steps), calibrator_config=_calibrator(setting)
    )
    return cached


def begin_request(cached: nn.Module, setting: Setting, steps: int) -> None:
    """Forgets the request before.

    By itself it begins a request one call late, so that another one decides by the old state.
    """
    cache_dit.refresh_context(
        cached, cache_config=_config(setting, steps), calibrator_config=_calibrator(setting)
    )


def block_calls(cached: nn.Module, setting: Setting, blocks: int) -> int:
    """Returns the block calls since the request began, all branches together."""
    ran = setting.first + setting.last
    calls = 0
    for context in _contexts(cached):
        branches = [context.cached_steps]
        if context.cache_config.enable_separate_cfg:
            branches.append(context.cfg_cached_steps)
        for reused in branches:
            calls += blocks * (context.executed_steps - len(reused)) + ran * len(reused)
    return calls


def reused_steps(cached: nn.Module) -> tuple[tuple[int, ...], ...]:
    """Returns the reused steps of each branch since the request began."""
    [context] = _contexts(cached)
    return tuple(context.cached_steps), tuple(context.cfg_cached_steps)


def kept(cached: nn.Module) -> list[object]:
    """Returns the objects that hold what is kept between steps."""
    return [
        part
        for context in _contexts(cached)
        for part in (
            context.buffers,
            context.calibrator,
            context.encoder_calibrator,
            context.cfg_calibrator,
            context.cfg_encoder_calibrator,
        )
    ]


def _contexts(cached: nn.Module) -> Iterator[Any]:
    manager: Any = cached._context_manager
    names: Any = cached._context_names
    return (manager.get_context(name) for name in names)


def _config(setting: Setting, steps: int) -> Any:
    return DBCacheConfig(
        Fn_compute_blocks=setting.first,
        Bn_compute_blocks=setting.last,
        max_warmup_steps=setting.warmup,
        warmup_interval=setting.warmup_interval,
        max_continuous_cached_steps=setting.continuous,
        residual_diff_threshold=setting.threshold,
        num_inference_steps=steps,
        steps_computation_mask=list(setting.mask) or None,
        steps_computation_policy="static" if setting.static else "dynamic",
    )


def _calibrator(setting: Setting) -> Any:
    if setting.forecast is Forecast.REPEAT:
        return None
    if setting.forecast is Forecast.TAYLOR:
        return TaylorSeerCalibratorConfig(taylorseer_order=setting.order)
    raise ValueError(f"{NAME} has no {setting.forecast.value}")
