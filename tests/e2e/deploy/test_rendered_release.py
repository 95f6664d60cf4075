"""A release runs with exactly what the chart renders."""

from __future__ import annotations

import base64
import dataclasses
import functools
import ssl
import urllib.request
from pathlib import Path

import httpx
import pytest
from tests.certificates import Authority
from tests.e2e.deploy.containers import REGISTRY, ContainerPod, Network, require_images
from tests.e2e.deploy.namespaces import NamespacedPod, bridge
from tests.e2e.deploy.pods import Pod, Release, require_mounts
from tests.e2e.deploy.releases import small_release
from tests.e2e.processes import wait_until
from tests.unit.deploy.rendered import COMPONENTS, of_kind, render

from skipstone_client import OrchestratorClient
from skipstone_shared.access import Right, caller_table, token_hash
from skipstone_shared.credentials import Credentials
from skipstone_shared.errors import Unauthenticated, Unavailable
from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import HitTier

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


def check_release(release: Release, queue_metric: str) -> None:
    """Starts a release, uses it, and ends it."""
    release.start_all()
    pods = [pod for of_one in release.pods.values() for pod in of_one]
    assert {pod.workload.key for pod in pods} == set(COMPONENTS)
    for pod in pods:
        # A gateway starts without waiting for its orchestrator.
        wait_until(functools.partial(pod.probe, "readinessProbe"), f"{pod.workload.key} is ready")
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
    assert over_http(release) == first.artifact.data
    for pod in pods:
        assert ("\n" + queue_metric in metrics(pod)) == (pod.workload.key == "denoise")
    for pod in pods:
        release.stop(pod)


def over_http(release: Release) -> bytes:
    """The same picture from the gateway."""
    (gateway,) = release.pods["gateway"]
    asked = {"prompt": "a red circle", "skipstone": {"steps": 10, "seed": 3}}
    url = f"http://{gateway.target}/v1/images/generations"
    answer = httpx.post(url, json=asked, timeout=60.0, trust_env=False)
    answer.raise_for_status()
    (picture,) = answer.json()["data"]
    assert picture["skipstone"]["tier"] == "exact"
    return base64.b64decode(picture["b64_json"])


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


def test_a_release_serves_is_probed_and_drains_in_network_namespaces(
    tiny_model: Path, tmp_path: Path
) -> None:
    values = small_release({"name": str(tiny_model)})
    with (
        bridge() as network,
        Release(values, tmp_path, lambda *pod: NamespacedPod(*pod, network)) as release,
    ):
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


@pytest.mark.long
def test_certificates_and_tokens_come_from_the_secrets_that_the_values_name(
    tiny_model: Path, tmp_path: Path
) -> None:
    """The probes must pass all the same, and whoever shows nothing must not."""
    require_mounts()
    secrets = {name: tmp_path / name for name in ("certificates", "callers", "own-token")}
    for folder in secrets.values():
        folder.mkdir()
    authority = Authority(tmp_path)
    files = authority.write("all", host="skipstone")
    assert files.cert_file is not None
    assert files.key_file is not None
    files.cert_file.rename(secrets["certificates"] / "tls.crt")
    files.key_file.rename(secrets["certificates"] / "tls.key")
    (secrets["certificates"] / "ca.crt").write_bytes(authority.file.read_bytes())
    (secrets["own-token"] / "token").write_text("sks_of_the_services")
    table = caller_table("services", [token_hash("sks_of_the_services")], ["*"], list(Right))
    (secrets["callers"] / "access").write_text(table)
    values = small_release({"name": str(tiny_model)})
    values["tls"] = {"enabled": True, "secretName": "certificates", "serverName": "skipstone"}
    values["access"] = {"secretName": "callers", "clientTokenSecretName": "own-token"}
    known = Credentials(
        secrets["certificates"] / "ca.crt",
        secrets["certificates"] / "tls.crt",
        secrets["certificates"] / "tls.key",
        tls_server_name="skipstone",
        token_file=secrets["own-token"] / "token",
    )
    with Release(values, tmp_path, lambda *pod: Pod(*pod, secrets)) as release:
        release.start_all()
        target = release.target("orchestrator")
        params = GenerationParams("a red circle", num_inference_steps=10, seed=3)
        with OrchestratorClient(target, credentials=known) as client:
            assert client.generate(params, timeout_s=60.0).provenance.fallbacks == ()
        nobody = dataclasses.replace(known, token_file=None)
        with OrchestratorClient(target, credentials=nobody) as client:
            with pytest.raises(Unauthenticated):
                client.generate(params, timeout_s=60.0)
        with OrchestratorClient(target) as client, pytest.raises(Unavailable):
            client.generate(params, timeout_s=60.0)
        check_gateway(release, authority)


def check_gateway(release: Release, authority: Authority) -> None:
    """It is ready without a token, shows the certificate, and passes on whose token it is given."""
    (gateway,) = release.pods["gateway"]
    wait_until(lambda: gateway.probe("readinessProbe"), "the gateway is ready")
    context = ssl.create_default_context(cafile=str(authority.file))
    context.check_hostname = False  # the certificate is that of the name `skipstone`
    url = f"https://{gateway.target}/v1/images/generations"
    asked = {"prompt": "a red circle", "skipstone": {"steps": 10, "seed": 3}}
    with httpx.Client(verify=context, trust_env=False, timeout=60.0) as http:
        assert http.post(url, json=asked).status_code == 401
        token = {"Authorization": "Bearer sks_of_the_services"}
        assert http.post(url, json=asked, headers=token).status_code == 200
