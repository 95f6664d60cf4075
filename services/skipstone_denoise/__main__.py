"""Starts the `denoise` service: settings -> model -> engine -> server."""

from __future__ import annotations

import sys

from skipstone_denoise.config import DenoiseSettings
from skipstone_denoise.metrics import EngineMetrics
from skipstone_denoise.model_folder import check_model
from skipstone_denoise.server import mount
from skipstone_denoise.store_directory import StoreDirectory
from skipstone_shared.config import load_settings
from skipstone_shared.grpc_server import Mounted, serve


def main() -> int:
    """Runs the service until it is told to stop; returns the exit code."""
    settings = load_settings(DenoiseSettings)
    return serve(settings, lambda: build(settings))


def build(settings: DenoiseSettings) -> Mounted:
    """Loads the model and puts a server's parts around it.

    Raises:
        ModelUnusable: the model cannot be served; the message says why.
        InvalidArgument: a file of the credentials cannot be used.
    """
    # Before the model, which may load for minutes.
    stores = StoreDirectory(settings.latent_kv_target, settings.credentials())
    check_model(settings.model, settings.model_revision, allow_download=settings.allow_download)
    # torch and diffusers take seconds to import: a wrong path should be told before.
    import torch

    from skipstone_denoise.diffusers_engine import DiffusersEngine
    from skipstone_denoise.pipeline_loader import load_pipeline
    from skipstone_denoise.placement import check_placement

    if settings.num_threads is not None:
        torch.set_num_threads(settings.num_threads)
    check_placement(settings)
    pipeline = load_pipeline(
        settings.model,
        revision=settings.model_revision,
        allow_download=settings.allow_download,
        # What is offloaded goes to the device only when it computes.
        device=settings.device if settings.offload == "none" else "cpu",
        dtype=settings.dtype,
        vae_dtype=settings.vae_dtype,
        scheduler=settings.scheduler,
        device_map=None if settings.device_map == "none" else settings.device_map,
        device_memory=settings.device_memory,
    )
    engine = DiffusersEngine(pipeline, settings, stores)
    return mount(engine, [engine.close, stores.close], [EngineMetrics(engine)])


if __name__ == "__main__":
    sys.exit(main())
