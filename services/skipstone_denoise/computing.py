"""By what means a loaded pipeline computes: what changes numbers while all weights stay the same.

Read off the pipeline itself and not off settings, so that the executor and the callback of a script
tell the same of the same pipeline, whoever has set it up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch

from skipstone_denoise.attention import backend_of, backends, is_dispatched, processors
from skipstone_denoise.guiders import guiders_of
from skipstone_denoise.pipeline_probe import denoisers
from skipstone_denoise.schedule import config_hash
from skipstone_shared.latents import canonical_hash

_MOVING = frozenset(
    {"group_offloading", "layer_execution_tracker", "lazy_prefetch_group_offloading"}
)
"""Hooks of diffusers that move weights and leave them as they are."""

_FREE_U = ("s1", "s2", "b1", "b2")
"""Factors that FreeU (Si et al., 2023, arXiv 2309.11497) leaves on the upward blocks of a UNet."""

_PLAIN = (bool, int, float, str, torch.dtype)


def computing_facts(pipeline: Any) -> Mapping[str, str]:
    """What is to be in the fingerprint of every run of a pipeline, by name.

    Where weights lie is not: they are the same numbers after they were moved.

    Args:
        pipeline: Placed, compiled and switched as its runs will find it.
    """
    modules = {
        name: part
        for name, part in sorted(pipeline.components.items())
        if isinstance(part, torch.nn.Module)
    }
    denoising = denoisers(pipeline).values()
    device = torch.device(pipeline._execution_device).type
    facts = {
        "device": device if device != "cpu" else "",
        "attention": "+".join(sorted(set[str]().union(*map(backends, denoising)))),
        "compiled": "+".join(name for name, part in modules.items() if any(_compiled(part))),
        "vae": "+".join(_autoencoder_flags(pipeline.vae)),
        "details": canonical_hash(
            {name: _details(part) for name, part in modules.items()}
            | {name: _guider(part) for name, part in guiders_of(pipeline).items()}
            | {"torch": _switches(device)}
        ),
    }
    return MappingProxyType({name: value for name, value in facts.items() if value})


def _details(module: torch.nn.Module) -> list[str]:
    """One line for everything about a part that may change numbers, sorted."""
    told = {f"type {kind}" for kind in {parameter.dtype for parameter in module.parameters()}}
    told.update(map(_processor, processors(module)))
    told.update(_hooks(module))
    told.update(f"{count} compiled {how}" for how, count in Counter(_compiled(module)).items())
    told.update(_autoencoder_flags(module))
    told.add(f"attention of transformers {_transformers_attention(module)}")
    told.add(f"cache of diffusers {getattr(module, '_cache_config', None)!r}")
    for part in module.modules():
        if getattr(part, "fused_projections", False):
            told.add("fused projections")
        factors = [getattr(part, name, None) for name in _FREE_U]
        if any(isinstance(factor, int | float) for factor in factors):
            told.add(f"FreeU {factors}")
    return sorted(told)


def _guider(guider: Any) -> list[str]:
    """Which guider, its settings, and whether it was switched off, which no setting tells."""
    return [type(guider).__name__, config_hash(guider.config), str(guider._enabled)]


def _processor(processor: Any) -> str:
    """An attention processor with its settings, such as the scale of an IP adapter."""
    backend = backend_of(processor) if is_dispatched(processor) else ""
    return f"attention {type(processor).__name__} {backend} {_plain_attributes(processor)}"


def _hooks(module: torch.nn.Module) -> Iterator[str]:
    """Hooks of diffusers: casting layer by layer, caches that were applied by hand, ..."""
    for part in module.modules():
        registry = getattr(part, "_diffusers_hook", None)
        for name, hook in registry.hooks.items() if registry is not None else ():
            if name not in _MOVING:
                yield f"hook {name} {_plain_attributes(hook)}"


def _compiled(module: torch.nn.Module) -> Iterator[str]:
    """Compiled parts, each with how it differs from torch's default way to compile."""
    for part in module.modules():
        if part._compiled_call_impl is not None:
            yield f"{type(part).__name__} {_compiler_overrides(part._compiled_call_impl)}"
        elif hasattr(part, "_orig_mod"):
            yield f"{type(part._orig_mod).__name__} {_compiler_overrides(part)}"


def _compiler_overrides(compiled: Any) -> str:
    """What a mode or options set; torch tells all settings in force, and of inductor only."""
    told = compiled.get_compiler_config() if hasattr(compiled, "get_compiler_config") else None
    if told is None:
        return "by another backend"
    usual = torch._inductor.config.get_config_copy()
    return repr(sorted((k, repr(v)) for k, v in told.items() if usual.get(k) != v))


def _autoencoder_flags(module: torch.nn.Module) -> list[str]:
    """Tiling with its sizes, slicing, frame by frame: whatever an autoencoder has switched on."""
    on = sorted(
        name for name, value in vars(module).items() if name[:4] == "use_" and value is True
    )
    if "use_tiling" in on:
        on += sorted(f"{name}={value}" for name, value in vars(module).items() if "tile_" in name)
    return on


def _transformers_attention(module: torch.nn.Module) -> list[str]:
    """The attention of text and picture encoders: sdpa, eager, flash_attention_2, ..."""
    configs = (getattr(part, "config", None) for part in module.modules())
    return sorted({str(getattr(config, "_attn_implementation", None)) for config in configs})


def _plain_attributes(part: Any) -> list[tuple[str, str]]:
    """Attributes whose values tell what they do, by name."""
    return sorted(
        (name, repr(value))
        for name, value in vars(part).items()
        if not name.startswith("_") and name != "training" and _is_plain(value)
    )


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, _PLAIN)


def _switches(device: str) -> list[str]:
    """Switches of torch for the whole process that a script may turn before it calls."""
    of: Any = torch.backends  # types of which are told in part
    told: list[object] = [
        torch.are_deterministic_algorithms_enabled(),
        torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device),
    ]
    if device == "cpu":
        told.append(of.mkldnn.matmul.fp32_precision)
    if device == "cuda":
        told += [
            of.cuda.matmul.fp32_precision,
            of.cuda.matmul.allow_fp16_reduced_precision_reduction,
            of.cuda.matmul.allow_bf16_reduced_precision_reduction,
            of.cudnn.conv.fp32_precision,
            of.cudnn.benchmark,
            of.cuda.flash_sdp_enabled(),
            of.cuda.mem_efficient_sdp_enabled(),
            of.cuda.math_sdp_enabled(),
            of.cuda.cudnn_sdp_enabled(),
        ]
    return list(map(repr, told))
