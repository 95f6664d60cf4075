"""Loads a diffusers pipeline from a folder or a model id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import diffusers
import torch
import transformers

from skipstone_denoise.model_folder import ModelUnusable
from skipstone_denoise.pipeline_call import HOOKED_METHODS

_REASON_LENGTH = 300


def load_pipeline(
    model: str,
    *,
    revision: str = "",
    allow_download: bool = False,
    device: str,
    dtype: str,
    vae_dtype: str | None = None,
    scheduler: str = "",
    device_map: str | None = None,
    device_memory: Mapping[str, str] | None = None,
) -> Any:
    """Loads a pipeline for inference. Weights are read from safetensors only; no remote code runs.

    Args:
        model: Folder in diffusers' format or a model id.
        revision: Commit or tag of a model id.
        allow_download: Whether files may be fetched from the hub.
        device: Where to put it.
        dtype: Element type of the weights.
        vae_dtype: That of the autoencoder's, where it is another.
        scheduler: Class name of a scheduler in the place of the model's own.
        device_map: How diffusers spreads it over devices instead of putting it on one.
        device_memory: Most memory that may be filled of each device by then.

    Raises:
        ModelUnusable: it cannot be loaded; the message is one sentence.
    """
    # Progress bars would break the one-line-per-event log.
    diffusers.utils.logging.disable_progress_bar()
    transformers.utils.logging.disable_progress_bar()
    try:
        pipeline = diffusers.DiffusionPipeline.from_pretrained(
            model,
            revision=revision or None,
            dtype={
                "default": getattr(torch, dtype),
                "vae": getattr(torch, vae_dtype or dtype),
            },
            use_safetensors=True,
            local_files_only=not allow_download,
            trust_remote_code=False,
            device_map=device_map,
            max_memory=_by_device(device_memory or {}) or None,
        )
        if device_map is None:
            pipeline = pipeline.to(device)
    except Exception as error:
        # Dozens of libraries read the files, each with exceptions of its own.
        reason = " ".join(str(error).split())[:_REASON_LENGTH] or type(error).__name__
        raise ModelUnusable(f"model {model} cannot be loaded: {reason}") from error
    if scheduler:
        pipeline.scheduler = _other_scheduler(pipeline.scheduler, scheduler)
    return prepared_pipeline(pipeline)


def _other_scheduler(own: Any, name: str) -> Any:
    found: Any = getattr(diffusers, name, None)
    is_scheduler = isinstance(found, type) and issubclass(found, diffusers.SchedulerMixin)
    if not is_scheduler:
        similar = sorted(kind.__name__ for kind in own.compatibles)
        raise ModelUnusable(
            f"scheduler is {name}, which is none of diffusers; some that are: {', '.join(similar)}"
        )
    return found.from_config(own.config)


def _by_device(memory: Mapping[str, str]) -> dict[int | str, str]:
    """As accelerate wants it: accelerators by their number."""
    return {int(name) if name.isdigit() else name: size for name, size in memory.items()}


def prepared_pipeline(pipeline: Any) -> Any:
    """A pipeline made ready to serve: silent, without gradients.

    Raises:
        ModelUnusable: pipelines of this class cannot be served.
    """
    missing = [name for name in HOOKED_METHODS if not hasattr(pipeline, name)]
    if missing or getattr(pipeline, "vae", None) is None:
        raise ModelUnusable(
            f"{type(pipeline).__name__} cannot be served: it has no {', '.join(missing) or 'vae'}"
        )
    if getattr(pipeline, "audio_vae", None) is not None:
        # Snapshots of the video's latents would be half of what a resume needs.
        raise ModelUnusable(
            f"{type(pipeline).__name__} cannot be served: it denoises sound beside the video"
        )
    pipeline.set_progress_bar_config(disable=True)
    for part in pipeline.components.values():
        if isinstance(part, torch.nn.Module):
            part.eval().requires_grad_(False)
    return pipeline
