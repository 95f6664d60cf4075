"""Executors behind one name are added, drained, killed and upgraded while clients generate.

No call may fail, and every picture must be that of an undisturbed run.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.e2e.deploy.containers import REGISTRY, ContainerPod, Network, require_images
from tests.e2e.deploy.namespaces import NamespacedPod, bridge
from tests.e2e.deploy.next_version import NextVersionPod
from tests.e2e.deploy.pods import Pod, Release, require_mounts
from tests.e2e.deploy.releases import small_release
from tests.e2e.processes import wait_until
from tests.unit.deploy.rendered import COMPONENTS

from skipstone_client import DenoiseClient, OrchestratorClient
from skipstone_shared.denoise_runs import DenoiseStats
from skipstone_shared.errors import SkipstoneError
from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import CacheMode, CacheOptions

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(600)]

CALLERS = 4
SEEDS = 5
STEPS = 200


class Callers:
    """Clients that generate until they are told to stop."""

    def __init__(self, client: OrchestratorClient) -> None:
        """Draws the pictures that all others must be equal to, and begins."""
        self._client = client
        self.count = 0
        self.failures: list[str] = []
        self.fallbacks: Counter[str] = Counter()
        self._stopped = threading.Event()
        self._pictures = [self._generate(seed) for seed in range(SEEDS)]
        self._pool = ThreadPoolExecutor(CALLERS)
        self._running = [self._pool.submit(self._call, first) for first in range(CALLERS)]

    def _generate(self, seed: int) -> bytes:
        params = GenerationParams("a red circle", num_inference_steps=STEPS, seed=seed)
        uncached = CacheOptions(mode=CacheMode.OFF)
        result = self._client.generate(params, uncached, timeout_s=120.0)
        self.fallbacks.update(fallback.reason for fallback in result.provenance.fallbacks)
        return result.artifact.data

    def _call(self, seed: int) -> None:
        while not self._stopped.is_set():
            seed = (seed + 1) % SEEDS
            try:
                picture = self._generate(seed)
            except SkipstoneError as error:
                self.failures.append(repr(error))
                continue
            self.count += 1
            if picture != self._pictures[seed]:
                self.failures.append(f"another picture for seed {seed}")

    def noticed_a_loss(self) -> bool:
        """Whether a run was lost with its executor and made by another one."""
        assert self.failures == []
        return self.fallbacks["RUN_LOST"] > 0

    def stop(self) -> None:
        """Waits for the calls under way."""
        self._stopped.set()
        for running in self._running:
            running.result()
        self._pool.shutdown()


@contextmanager
def release_of(kind: str, model: Path, folder: Path) -> Iterator[Release]:
    """A release of one executor, as processes, in network namespaces or as containers."""
    if kind == "namespaces":
        values = small_release({"name": str(model)})
        with (
            bridge() as network,
            Release(values, folder, lambda *pod: NamespacedPod(*pod, network)) as release,
        ):
            yield release
        return
    if kind == "processes":
        require_mounts()
        with Release(small_release({"name": str(model)}), folder) as release:
            yield release
        return
    require_images(*COMPONENTS.values())
    network = Network()
    values = small_release({"name": "/models", "existingClaim": "models"})
    values["image"] = {"registry": REGISTRY}
    try:
        claims = {"models": model}
        with Release(values, folder, lambda *pod: ContainerPod(*pod, network, claims)) as release:
            yield release
    finally:
        network.close()


def stats(pod: Pod) -> DenoiseStats:
    """What an executor has done."""
    with DenoiseClient(pod.target) as client:
        return client.get_stats()


def roll_out(release: Release, kind: str) -> None:
    """Replaces every executor by another one, with maxSurge 1.

    Processes become those of the next minor version, which the orchestrator of this one then meets
    beside those of its own; images of another version there are none.
    """
    upgraded = NextVersionPod if kind == "processes" else None
    for old in list(release.pods["denoise"]):
        (new,) = release.scale_up("denoise", make_pod=upgraded)
        wait_used(new)
        if isinstance(new, NextVersionPod):
            assert new.carried > 0
        release.stop(old)


def wait_used(*pods: Pod) -> None:
    """Waits until each of some executors has finished a run."""
    for pod in pods:
        wait_until(lambda pod=pod: stats(pod).finished_count > 0, f"{pod.address} is used")


@pytest.mark.parametrize("kind", ["processes", "namespaces", "containers"])
def test_executors_come_and_go_without_a_failed_call(
    kind: str, tiny_model: Path, tmp_path: Path
) -> None:
    with release_of(kind, tiny_model, tmp_path) as release:
        release.start_all()
        with OrchestratorClient(release.target("orchestrator")) as client:
            callers = Callers(client)
            try:
                added = release.scale_up("denoise", 2)
                wait_used(*added)

                drained = release.pods["denoise"][0]
                release.stop(drained)
                wait_used(*release.scale_up("denoise"))

                killed = release.pods["denoise"][0]
                wait_until(lambda: stats(killed).running_count > 0, "the one to be killed runs")
                release.kill(killed)
                wait_until(callers.noticed_a_loss, "its run was made again")

                roll_out(release, kind)
            finally:
                callers.stop()
            assert callers.failures == []
            assert callers.count >= CALLERS * SEEDS
