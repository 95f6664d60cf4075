"""A release runs with exactly what the chart renders."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest
from tests.e2e.deploy.containers import REGISTRY, ContainerPod, Network, require_images
from tests.e2e.deploy.pods import Pod, Release, require_mounts
from tests.e2e.deploy.releases import small_release
from tests.unit.deploy.rendered import COMPONENTS, of_kind, render

from skipstone_client import OrchestratorClient
from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import HitTier

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


def check_release(release: Release, queue_metric: str) -> None:
    """Starts a release, uses it, and ends it."""
    release.start_all()
    pods = [pod for of_one in release.pods.values() for pod in of_one]
    assert {pod.workload.key for pod in pods} == set(COMPONENTS)
    for pod in pods:
        assert pod.probe("readinessProbe")
        assert pod.probe("livenessProbe")
    params = GenerationParams("a red circle", num_inference_steps=10, seed=3)
    with OrchestratorClient(release.target("orchestrator")) as client:
        first = client.generate(params, timeout_s=60.0)
        assert first.provenance.fallbacks == ()
        # Found in both stores, under the names that the pods were given.
        again = client.generate(params, timeout_s=60.0)
        near = client.generate(
            GenerationParams("a red circle!", num_inference_steps=10, seed=4), timeout_s=60.0
        )
    assert again.provenance.tier is HitTier.EXACT
    assert again.artifact.data == first.artifact.data
    assert near.provenance.fallbacks == ()
    for pod in pods:
        assert ("\n" + queue_metric in metrics(pod)) == (pod.workload.key == "denoise")
    for pod in pods:
        release.stop(pod)


def metrics(pod: Pod) -> str:
    """What Prometheus reads from a pod."""
    url = f"http://{pod.address}:{pod.workload.ports['metrics']}/metrics"
    with urllib.request.urlopen(url, timeout=10.0) as answer:
        return str(answer.read().decode())


def scaled_by() -> str:
    """The metric that an autoscaler of executors asks for."""
    manifests = render({"denoise": {"autoscaling": {"enabled": True}}})
    (scaler,) = of_kind(manifests, "HorizontalPodAutoscaler")
    (metric,) = scaler["spec"]["metrics"]
    return str(metric["pods"]["metric"]["name"])


def test_a_release_serves_is_probed_and_drains_as_processes(
    tiny_model: Path, tmp_path: Path
) -> None:
    require_mounts()
    with Release(small_release({"name": str(tiny_model)}), tmp_path) as release:
        check_release(release, scaled_by())


@pytest.mark.long
def test_the_images_serve_under_the_restrictions_of_the_pods(
    tiny_model: Path, tmp_path: Path
) -> None:
    require_images(*COMPONENTS.values())
    values = small_release({"name": "/models", "existingClaim": "models"})
    values["image"] = {"registry": REGISTRY}
    network = Network()
    try:
        with Release(
            values,
            tmp_path,
            lambda workload, folder: ContainerPod(
                workload, folder, network, {"models": tiny_model}
            ),
        ) as release:
            check_release(release, scaled_by())
    finally:
        network.close()
