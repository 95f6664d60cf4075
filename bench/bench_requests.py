"""What a request costs through Skipstone, against the same picture from the stock pipeline.

Measures wall time and CPU time (client and all five services together) of a request without cache,
a miss that saves, a resumed request (same prompt, new seed), and an exact repeat, through real
processes on loopback. Rival: `DiffusionPipeline.from_pretrained(model)(prompt)` in this process,
encoded as PNG. All methods take turns within one run, so that noise of the machine hits all alike.

Prints one JSON line per figure: median, quartiles, n, and the rival's median.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil
import torch
from diffusers import DiffusionPipeline

from server_process import end_in_order_on_sigterm
from skipstone_bundled.captions import captions
from skipstone_bundled.scenes import random_scene
from skipstone_client import OrchestratorClient
from skipstone_client.local_cluster import LocalCluster
from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import CacheMode, CacheOptions, HitTier

MODEL = "models/skipstone-scenes"
SERVICES = ("embedding", "vector_index", "latent_kv", "denoise", "orchestrator")
RIVAL = "stock diffusers pipeline"


@dataclass
class Samples:
    """Seconds of one method's requests."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    executed_steps: list[int] = field(default_factory=list)


class Bench:
    """Sends the same prompts by every method."""

    def __init__(self, cluster: LocalCluster, client: OrchestratorClient, steps: int) -> None:
        self._processes = [psutil.Process(cluster.pid(name)) for name in SERVICES]
        self._client = client
        self._steps = steps
        self._pipeline = DiffusionPipeline.from_pretrained(MODEL)
        self._pipeline.set_progress_bar_config(disable=True)
        self.samples: dict[str, Samples] = {}

    def round(self, prompt: str, seed: int) -> None:
        """Sends one prompt by every method; the miss comes before what it makes possible."""
        off = CacheOptions(mode=CacheMode.OFF)
        # Searched and judged as always, but nothing is similar enough.
        picky = CacheOptions(min_similarity=1.0)
        self._measure(RIVAL, lambda: self._stock(prompt, seed))
        self._measure("cache off", lambda: self._generate(prompt, seed, off, HitTier.MISS))
        self._measure("miss", lambda: self._generate(prompt, seed, picky, HitTier.MISS))
        self._wait_for_saves()
        self._measure("exact", lambda: self._generate(prompt, seed, None, HitTier.EXACT))
        self._measure(
            "approximate",
            lambda: self._generate(prompt, seed + 1, None, HitTier.APPROXIMATE),
        )
        self._wait_for_saves()

    def _measure(self, method: str, run: Callable[[], int]) -> None:
        cpu, wall = self._cpu_s(), time.perf_counter()
        steps = run()
        wall = time.perf_counter() - wall
        samples = self.samples.setdefault(method, Samples())
        samples.wall.append(wall)
        samples.cpu.append(self._cpu_s() - cpu)
        samples.executed_steps.append(steps)

    def _cpu_s(self) -> float:
        times = [process.cpu_times() for process in self._processes]
        return time.process_time() + sum(t.user + t.system for t in times)

    def _stock(self, prompt: str, seed: int) -> int:
        generator = torch.Generator().manual_seed(seed)
        picture = self._pipeline(
            prompt, num_inference_steps=self._steps, generator=generator
        ).images[0]
        picture.save(io.BytesIO(), "PNG")
        return self._steps

    def _generate(self, prompt: str, seed: int, cache: CacheOptions | None, tier: HitTier) -> int:
        params = GenerationParams(prompt=prompt, seed=seed, num_inference_steps=self._steps)
        provenance = self._client.generate(params, cache=cache).provenance
        if provenance.tier is not tier:
            raise SystemExit(f"expected {tier.value}, got {provenance.tier.value}: {provenance}")
        return provenance.executed_steps

    def _wait_for_saves(self) -> None:
        while self._client.get_stats().queued_saves:
            time.sleep(0.02)


def report(samples: dict[str, Samples]) -> None:
    """Prints the figures."""
    for method, figure in itertools.product(samples, ("wall_s", "cpu_s")):
        values = getattr(samples[method], figure.removesuffix("_s"))
        rival = getattr(samples[RIVAL], figure.removesuffix("_s"))
        quartiles = statistics.quantiles(values, n=4)
        line = {
            "figure": f"request_{figure}",
            "method": method,
            "value": round(statistics.median(values), 4),
            "p25": round(quartiles[0], 4),
            "p75": round(quartiles[2], 4),
            "n": len(values),
            "mean_steps": round(statistics.mean(samples[method].executed_steps), 2),
            "rival": RIVAL,
            "rival_value": round(statistics.median(rival), 4),
        }
        print(json.dumps(line))


def main() -> None:
    """Runs the benchmark."""
    end_in_order_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12, help="prompts; the first is a warm-up")
    parser.add_argument("--steps", type=int, default=30, help="denoising steps")
    arguments = parser.parse_args()
    if arguments.rounds < 2:
        parser.error("--rounds must be at least 2: a spread needs two values")
    rng = random.Random(1)
    with (
        tempfile.TemporaryDirectory() as data,
        LocalCluster(data, free_ports=True) as cluster,
        OrchestratorClient(cluster.targets["orchestrator"]) as client,
    ):
        bench = Bench(cluster, client, arguments.steps)
        for index in range(arguments.rounds + 1):
            [prompt] = captions(random_scene(rng, objects=2), 1, rng)
            bench.round(prompt, seed=1000 * index)
            if index == 0:
                bench.samples.clear()
    report(bench.samples)


if __name__ == "__main__":
    main()
