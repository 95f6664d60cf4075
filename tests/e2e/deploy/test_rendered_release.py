"""A release runs with exactly what the chart renders."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest
from tests.e2e.deploy.pods import Release, require_mounts
from tests.unit.deploy.rendered import of_kind

from skipstone_client import DenoiseClient, OrchestratorClient
from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import HitTier

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def values(model: Path, **more: object) -> dict[str, object]:
    """Values of a release of all services around a small model."""
    # Deadlines of a lookup are made for idle machines; nobody has calibrated random weights.
    patient = dict.fromkeys(("embedding", "index", "latent_kv", "gate"), 10)
    settings = {f"{stage}_timeout_s": seconds for stage, seconds in patient.items()}
    return {
        "common": {"preStopSeconds": 1, "maxConnectionAgeSeconds": 3},
        "orchestrator": {
            "replicas": 1,
            "settings": {**settings, "lookup_timeout_s": 20, "uncalibrated": "table"},
        },
        "embedding": {"replicas": 1},
        "denoise": {
            "replicas": 1,
            "model": {"name": str(model)},
            "autoscaling": {"enabled": False},
            **more,
        },
    }


def test_a_release_serves_probes_scales_and_drains_with_what_it_renders(
    tiny_model: Path, tmp_path: Path
) -> None:
    require_mounts()
    with Release(values(tiny_model), tmp_path) as release:
        release.start_all()
        pods = [pod for of_one in release.pods.values() for pod in of_one]
        assert len(pods) == 5
        for pod in pods:
            assert pod.probe("readinessProbe")
            assert pod.probe("livenessProbe")
        params = GenerationParams("a red circle", num_inference_steps=10, seed=3)
        with OrchestratorClient(release.target("orchestrator")) as client:
            first = client.generate(params, timeout_s=60.0)
            assert first.provenance.fallbacks == ()
            # In both stores, under the names that the pods were given.
            entry = first.provenance.saved_entry_id
            assert entry
            again = client.generate(params, timeout_s=60.0)
        assert again.provenance.tier is HitTier.EXACT
        assert again.artifact.data == first.artifact.data
        with DenoiseClient(release.target("denoise")) as executor:
            assert executor.get_stats().finished_count >= 1
        for pod in pods:
            port = pod.workload.ports["metrics"]
            text = urllib.request.urlopen(f"http://{pod.address}:{port}/metrics").read().decode()
            if pod.workload.key == "denoise":
                assert f"\n{queue_metric(tiny_model, tmp_path)} 0.0\n" in text
            assert "skipstone_" in text
        for pod in pods:
            release.stop(pod)


def queue_metric(model: Path, folder: Path) -> str:
    """The metric that an autoscaler of executors asks for."""
    asked = Release(values(model, autoscaling={"enabled": True}), folder)
    (scaler,) = of_kind(asked.manifests, "HorizontalPodAutoscaler")
    (metric,) = scaler["spec"]["metrics"]
    return str(metric["pods"]["metric"]["name"])
