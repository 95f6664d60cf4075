"""Adapters (LoRA and its kin) that a loaded model applies at this moment.

Whoever holds the pipeline can load, scale, fuse or remove one while the service runs, and each of
these changes every latent from then on. So they are read off the models whenever a run is planned,
not once at the start.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import xxhash

from skipstone_shared.latents import AdapterFingerprint

_Token = tuple[object, ...]


class ActiveAdapters:
    """Reads the adapters of a pipeline's models; threads may share it."""

    def __init__(self, pipeline: Any) -> None:
        """Looks at a pipeline.

        Args:
            pipeline: Its modules are looked up at every reading.
        """
        self._pipeline = pipeline
        self._lock = threading.Lock()
        self._token: _Token = ()
        self._read: tuple[AdapterFingerprint, ...] = ()

    def names(self) -> tuple[str, ...]:
        """Names of all that are loaded, active or not, sorted."""
        loaded = (getattr(module, "peft_config", {}) for module in self._modules().values())
        return tuple(sorted({name for configs in loaded for name in configs}))

    def fingerprints(self) -> tuple[AdapterFingerprint, ...]:
        """Those that take part, per model in the order in which they apply.

        Weights are hashed again only when a tensor, a scale or the choice has changed.
        """
        with self._lock:
            layers = list(self._layers())
            token = tuple(_state(layer) for _, layer in layers)
            if token != self._token:
                self._read = _fingerprints(layers)
                self._token = token
            return self._read

    def _modules(self) -> Mapping[str, torch.nn.Module]:
        return {
            name: part
            for name, part in sorted(self._pipeline.components.items())
            if isinstance(part, torch.nn.Module)
        }

    def _layers(self) -> Iterator[tuple[str, Any]]:
        """Layers with adapters, by their full name; a model that never had any has none."""
        for model, module in self._modules().items():
            if getattr(module, "peft_config", None):
                for name, layer in module.named_modules():
                    if hasattr(layer, "active_adapters") and hasattr(layer, "scaling"):
                        yield f"{model}:{name}", layer


def _tensors(layer: Any) -> list[tuple[str, torch.Tensor]]:
    """An adapted layer's own tensors, without those of the layer it adapts."""
    own = [*layer.named_parameters(), *layer.named_buffers()]
    return [(name, tensor) for name, tensor in own if not name.startswith("base_layer.")]


def _state(layer: Any) -> _Token:
    """What cannot stay the same while the effect of a layer's adapters changes."""
    return (
        tuple(layer.active_adapters),
        tuple(layer.merged_adapters),
        layer.disable_adapters,
        tuple(sorted(layer.scaling.items())),
        # A tensor that is written to in place counts a version up.
        tuple((name, tensor.data_ptr(), tensor._version) for name, tensor in _tensors(layer)),
    )


def _fingerprints(layers: list[tuple[str, Any]]) -> tuple[AdapterFingerprint, ...]:
    digests: dict[tuple[str, str], Any] = {}
    scales: dict[tuple[str, str], float] = {}
    for full_name, layer in layers:
        model = full_name.partition(":")[0]
        fused = tuple(layer.merged_adapters)
        applied = fused or (() if layer.disable_adapters else tuple(layer.active_adapters))
        for adapter in applied:
            if adapter not in layer.scaling:
                continue
            key = model, adapter
            digest = digests.setdefault(key, xxhash.xxh3_128(b"fused" if fused else b""))
            # Layers may be scaled each by its own factor.
            digest.update(f"{full_name}:{layer.scaling[adapter]!r}\n".encode())
            for name, tensor in _tensors(layer):
                if adapter in name.split("."):
                    digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}\n".encode())
                    flat = tensor.detach().reshape(-1).contiguous().cpu()
                    digest.update(flat.view(torch.uint8).numpy())
            scales.setdefault(key, float(layer.scaling[adapter]))
    return tuple(
        AdapterFingerprint(f"{model}:{adapter}", digest.hexdigest(), scales[model, adapter])
        for (model, adapter), digest in digests.items()
    )
