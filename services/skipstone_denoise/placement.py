"""Where a loaded pipeline lives and by what means it computes, all by diffusers' own means."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from diffusers.models.attention_dispatch import AttentionBackendName

from skipstone_denoise.attention import is_dispatched, processors
from skipstone_denoise.config import DenoiseSettings
from skipstone_denoise.model_folder import ModelUnusable
from skipstone_denoise.pipeline_probe import denoisers

_HUB = "_hub"
"""Ends the names of attention backends whose kernels diffusers fetches and runs."""


def check_placement(settings: DenoiseSettings) -> None:
    """Looks whether this machine has what is asked for, before weights are read.

    Raises:
        ModelUnusable: it has not; names the setting and what to do.
    """
    wanted = torch.device(settings.device).type
    found = torch.accelerator.current_accelerator(check_available=True)
    if wanted not in ("cpu", None if found is None else found.type):
        raise ModelUnusable(
            f"device is {settings.device}, but what torch sees here is "
            f"{'the CPU only' if found is None else found.type}"
        )
    backend = settings.attention_backend
    known = [name.value for name in AttentionBackendName]
    if backend and backend not in known:
        raise ModelUnusable(f"attention_backend is {backend}, allowed are {', '.join(known)}")
    if backend.endswith(_HUB) and not settings.allow_download:
        raise ModelUnusable(
            f"attention_backend {backend} is fetched from the hub and run; set allow_download or "
            f"install the package behind {backend.removesuffix(_HUB)}"
        )


def place(pipeline: Any, settings: DenoiseSettings) -> None:
    """Applies what the settings say of offloading, tiling, attention and compilation.

    Weights must be hashed before: some of this leaves none where they were.

    Raises:
        ModelUnusable: the pipeline cannot do it; names the setting.
    """
    wanted: list[tuple[str, str, Callable[[], object]]] = []
    if settings.attention_backend:
        backend = settings.attention_backend
        _check_dispatched(pipeline, backend)
        for module in denoisers(pipeline).values():
            use = _method(module, "set_attention_backend", "attention_backend")
            wanted.append(("attention_backend", backend, partial(use, backend)))
    if settings.vae_tiling:
        wanted.append(("vae_tiling", "on", _method(pipeline.vae, "enable_tiling", "vae_tiling")))
    if settings.vae_slicing:
        wanted.append(("vae_slicing", "on", _method(pipeline.vae, "enable_slicing", "vae_slicing")))
    if settings.compile != "none":
        wanted.append(("compile", settings.compile, partial(_compile, pipeline, settings)))
    if settings.offload != "none":
        wanted.append(("offload", settings.offload, partial(_offload, pipeline, settings)))
    for name, value, apply in wanted:
        try:
            apply()
        except ModelUnusable:
            raise
        except Exception as error:
            # Each of these asks other libraries and hardware, which refuse in ways of their own.
            raise ModelUnusable(
                f"{name} is {value}, which {type(pipeline).__name__} cannot do here: {error}"
            ) from error


def _check_dispatched(pipeline: Any, backend: str) -> None:
    """Refuses a backend that no attention would go through: it would be in the key, and a lie."""
    used = [one for module in denoisers(pipeline).values() for one in processors(module)]
    if not any(map(is_dispatched, used)):
        names = sorted({type(one).__name__ for one in used})
        raise ModelUnusable(
            f"attention_backend is {backend}, but no attention of {type(pipeline).__name__} goes "
            f"through diffusers' backends (it has {', '.join(names) or 'none'}); leave it empty"
        )


def _method(part: Any, name: str, setting: str) -> Callable[..., object]:
    method: Callable[..., object] | None = getattr(part, name, None)
    if method is None:
        raise ModelUnusable(f"{setting} is set, but {type(part).__name__} has no {name}")
    return method


def _compile(pipeline: Any, settings: DenoiseSettings) -> None:
    for module in denoisers(pipeline).values():
        if settings.compile == "blocks":
            # Regional compilation: the blocks of one class share their compiled code.
            _method(module, "compile_repeated_blocks", "compile")(mode=settings.compile_mode)
        else:
            module.compile(mode=settings.compile_mode)


def _offload(pipeline: Any, settings: DenoiseSettings) -> None:
    device = torch.device(settings.device)
    if settings.offload == "model":
        pipeline.enable_model_cpu_offload(device=device)
    elif settings.offload == "sequential":
        pipeline.enable_sequential_cpu_offload(device=device)
    else:
        pipeline.enable_group_offload(
            onload_device=device,
            offload_type="block_level",
            # A group whose first block is reused is not loaded for the others.
            num_blocks_per_group=1,
            use_stream=device.type == "cuda",
        )
