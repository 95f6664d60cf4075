"""CPU that a request takes in each service of the cache plane, by the size of its latents."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
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

BLOCK: Final = 5
"""Requests of a kind that are counted together, then those of the next: so that what else the
machine does hits all kinds alike."""

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
        requests: Of each kind and size, in blocks.
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
            costs: dict[tuple[str, str], list[float]] = {}
            tiers: dict[str, list[HitTier]] = {kind: [] for kind in KINDS}
            for first in range(0, len(prompts), BLOCK):
                rows = range(first, min(first + BLOCK, len(prompts)))
                for kind, found in tiers.items():
                    spent = _block(services, kind, {row: prompts[row] for row in rows}, mb, found)
                    for name in CACHE_PLANE:
                        costs.setdefault((name, kind), []).append(spent[name])
            for (name, kind), of in costs.items():
                share = round(tiers[kind].count(KINDS[kind]) / len(prompts), 3)
                told = {"service": name, "kind": kind, "mb": mb, "share": share}
                figures.add("cpu_ms", of, **told, block=BLOCK)


def _block(
    services: Deployment,
    kind: str,
    prompts: Mapping[int, str],
    mb: float,
    found: list[HitTier],
) -> dict[str, float]:
    """Milliseconds of each service per request of some; adds to what they found."""
    cache = CACHE_OFF if kind == "off" else CacheOptions()
    rest = AtRest(services.pids)
    rest.cpu_s()
    before = {name: process_cpu_s(services.services[name]) for name in CACHE_PLANE}
    for row, prompt in prompts.items():
        # A repeat is asked for with its old seed, and other words for the same with a new one.
        reworded = f"{prompt}." if kind == "approximate" else prompt
        params = GenerationParams(
            reworded,
            num_inference_steps=STEPS,
            num_frames=frames_of(mb),
            seed=row + 1_000_000 * (kind == "approximate"),
        )
        found.append(services.client.generate(params, cache).provenance.tier)
    services.wait_for_saves()
    rest.cpu_s()
    return {
        name: 1000 * (process_cpu_s(services.services[name]) - before[name]) / len(prompts)
        for name in CACHE_PLANE
    }
