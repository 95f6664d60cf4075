"""CPU that a request takes in each service of the cache plane, by the size of its latents."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from backends.deployment import CACHE_OFF, Deployment, frames_of, start_embedding
from cacheplane.cpu import AtRest, process_cpu_s
from capacity.figures import Figures
from replay.request_log import read_prompts
from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import CacheOptions, HitTier

CACHE_PLANE: Final = ("orchestrator", "embedding", "vector_index", "latent_kv")
STEPS: Final = 50
"""Of each run: every step of it is a message that the orchestrator passes on."""

ARTIFACT_BYTES: Final = 1_000_000
"""Of each picture or video: those pass the orchestrator too."""

KINDS: Final = {
    "off": HitTier.MISS,
    "saved": HitTier.MISS,
    "exact": HitTier.EXACT,
    "approximate": HitTier.APPROXIMATE,
}


def measure_plane(figures: Figures, requests: int, sizes_mb: Sequence[float]) -> None:
    """Sends prompts of the log: with the cache off, new ones, repeats, and reworded ones.

    Args:
        figures: Takes the lines.
        requests: Of each kind and size.
        sizes_mb: Megabytes of latents.
    """
    prompts = list(dict.fromkeys(read_prompts()))[:requests]
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        services = Deployment(
            "lmdb",
            "hnswlib",
            start_embedding(root, stack),
            root / "deployment",
            stack,
            artifact_bytes=ARTIFACT_BYTES,
            # A model that takes no time is in no calibration.
            orchestrator_flags=("--uncalibrated", "table"),
        )
        for mb in sizes_mb:
            for kind in KINDS:
                _measure(figures, services, kind, prompts, mb)


def _measure(
    figures: Figures, services: Deployment, kind: str, prompts: Sequence[str], mb: float
) -> None:
    cache = CACHE_OFF if kind == "off" else CacheOptions()
    rest = AtRest(services.pids)
    rest.cpu_s()
    before = {name: process_cpu_s(services.services[name]) for name in CACHE_PLANE}
    tiers = []
    for row, prompt in enumerate(prompts):
        # A repeat is asked for with its old seed, and other words for the same with a new one.
        reworded = f"{prompt}." if kind == "approximate" else prompt
        params = GenerationParams(
            reworded,
            num_inference_steps=STEPS,
            num_frames=frames_of(mb),
            seed=row + 1_000_000 * (kind == "approximate"),
        )
        tiers.append(services.client.generate(params, cache).provenance.tier)
    services.wait_for_saves()
    rest.cpu_s()
    share = tiers.count(KINDS[kind]) / len(tiers)
    for name in CACHE_PLANE:
        spent_ms = 1000 * (process_cpu_s(services.services[name]) - before[name]) / len(tiers)
        told = {"service": name, "kind": kind, "mb": mb, "share": round(share, 3)}
        figures.add("cpu_ms", [spent_ms], **told, requests=len(tiers))
