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

_BACKENDS_ANYWHERE = (
    "cuda.flash_sdp_enabled",
    "cuda.math_sdp_enabled",
    "cuda.fp16_bf16_reduction_math_sdp_allowed",
)
"""Switches of `torch.backends` for attention; despite their name the CPU obeys them as well."""

_BACKENDS_BY_DEVICE = MappingProxyType(
    {
        "cpu": (
            "mkldnn.enabled",
            "mkldnn.deterministic",
            "mkldnn.matmul.fp32_precision",
            "mkldnn.conv.fp32_precision",
            "mkldnn.rnn.fp32_precision",
        ),
        "cuda": (
            "cuda.matmul.fp32_precision",
            "cuda.matmul.allow_fp16_accumulation",
            "cuda.matmul.allow_fp16_reduced_precision_reduction",
            "cuda.matmul.allow_bf16_reduced_precision_reduction",
            "cuda.mem_efficient_sdp_enabled",
            "cuda.cudnn_sdp_enabled",
            "cudnn.enabled",
            "cudnn.deterministic",
            "cudnn.benchmark",
            "cudnn.conv.fp32_precision",
            "cudnn.rnn.fp32_precision",
        ),
    }
)
"""Switches of `torch.backends` that change numbers, by type of device."""

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
    told: dict[str, object] = {
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "autocast": torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device),
    }
    if device == "cpu":
        told["denormals"] = _has_denormals()
    if not hasattr(torch.backends, "fp32_precision"):  # torch before 2.9
        told["tf32"] = (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32)
    for name in (*_BACKENDS_ANYWHERE, *_BACKENDS_BY_DEVICE.get(device, ())):
        told[name] = _backend_switch(name)
    return [f"{name} {value!r}" for name, value in told.items()]


def _backend_switch(name: str) -> object:
    """The value of a switch of `torch.backends`; None in a version of torch that has none."""
    found: object = torch.backends
    for part in name.split("."):
        if not hasattr(found, part):
            return None
        found = getattr(found, part)
    return found() if callable(found) else found


def _has_denormals() -> bool:
    """Whether this thread keeps numbers below the normal ones; torch only tells by computing."""
    return bool(torch.tensor(1e-40, dtype=torch.float32, device="cpu") * 1 > 0)
