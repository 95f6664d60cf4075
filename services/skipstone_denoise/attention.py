"""By what means the attention of a loaded model computes, as diffusers dispatches it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from diffusers.models.attention_dispatch import AttentionBackendName, _AttentionBackendRegistry

from skipstone_denoise.config import ATTENTION_SWITCHED_FOR_ALL


def processors(module: torch.nn.Module) -> Iterator[Any]:
    """What computes attention, one for each attention layer."""
    for part in module.modules():
        processor = getattr(part, "processor", None)
        if processor is not None and callable(processor):
            yield processor


def is_dispatched(processor: Any) -> bool:
    """Whether diffusers' attention backends reach a processor.

    Older ones (SD3, PixArt, CogVideoX, every UNet) call torch themselves, whatever is set.
    """
    call = getattr(type(processor).__call__, "__globals__", {})
    return hasattr(processor, "_attention_backend") or "dispatch_attention_fn" in call


def backend_of(processor: Any) -> str:
    """Name of the backend of a processor that is dispatched.

    It is the processor's own, else that of the process: of the environment variable
    DIFFUSERS_ATTN_BACKEND, or what another model was set to.
    """
    own = getattr(processor, "_attention_backend", None)
    return str(AttentionBackendName(own or _AttentionBackendRegistry.get_active_backend()[0]).value)


def backends(module: torch.nn.Module) -> frozenset[str]:
    """Names of the backends that a module's attention goes through."""
    return frozenset(map(backend_of, filter(is_dispatched, processors(module))))


def switched_for_all(module: torch.nn.Module) -> frozenset[str]:
    """Those of its backends that are flags of the whole process while a call lasts."""
    return backends(module) & ATTENTION_SWITCHED_FOR_ALL
