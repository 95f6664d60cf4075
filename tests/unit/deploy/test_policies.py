"""What an API server or a kubelet would object to, which no schema knows."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from google.protobuf import descriptor_pool
from tests.unit.deploy.combinations import ALL_RELEASES
from tests.unit.deploy.combinations import any_release as release
from tests.unit.deploy.rendered import Manifest, Workload, of_kind, selects, workloads

from skipstone.denoise.v1 import denoise_pb2
from skipstone.embedding.v1 import embedding_pb2
from skipstone.latent_kv.v1 import latent_kv_pb2
from skipstone.orchestrator.v1 import orchestrator_pb2
from skipstone.vector_index.v1 import vector_index_pb2
from skipstone_shared.config import resolve_settings
from skipstone_shared.ports import DEFAULT_PORTS

NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SERVICES = {
    "orchestrator": orchestrator_pb2.DESCRIPTOR,
    "embedding": embedding_pb2.DESCRIPTOR,
    "vectorIndex": vector_index_pb2.DESCRIPTOR,
    "latentKv": latent_kv_pb2.DESCRIPTOR,
    "denoise": denoise_pb2.DESCRIPTOR,
}
UNITS = {"": 1.0, "m": 1e-3, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 1e3, "M": 1e6}

pytestmark = pytest.mark.parametrize("name", ALL_RELEASES)


def all_workloads(name: str) -> list[Workload]:
    found = workloads(release(name))
    assert found
    return found


def settings_of(workload: Workload) -> Any:
    """The settings a pod really starts with; raises on any variable or value it would refuse."""
    found, _ = resolve_settings(
        workload.settings_class, workload.command[1:], workload.own_environment
    )
    return found


def amount(text: object) -> float:
    found = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(text))
    assert found, text
    return float(found[1]) * UNITS[found[2]]


def test_names_are_unique_and_allowed(name: str) -> None:
    manifests = release(name)
    names = Counter((found["kind"], found["metadata"]["name"]) for found in manifests)
    assert max(names.values()) == 1
    for kind, object_name in names:
        # A StatefulSet's pods carry its name and the hash of its revision in one label.
        longest = 52 if kind == "StatefulSet" else 63
        assert NAME.fullmatch(object_name), object_name
        assert len(object_name) <= longest, object_name


def test_a_pod_starts_with_what_it_is_given(name: str) -> None:
    for workload in all_workloads(name):
        settings = settings_of(workload)
        assert settings.port == workload.port
        assert settings.port == DEFAULT_PORTS[settings.service_name]
        assert settings.metrics_port == workload.ports.get("metrics", 0)
        assert settings.health_port == workload.ports.get("health")
        assert settings.host == "0.0.0.0"
        assert (settings.max_connection_age_s > 0) == (workload.protocol == "grpc")
        assert workload.pod["spec"]["enableServiceLinks"] is False


def test_variables_are_given_once(name: str) -> None:
    for workload in all_workloads(name):
        names = [variable["name"] for variable in workload.container["env"]]
        assert len(names) == len(set(names))


def test_probes_ask_a_port_and_a_service_that_are_there(name: str) -> None:
    """The port must be numeric, and the one without TLS where the probe speaks none."""
    for workload in all_workloads(name):
        settings = settings_of(workload)
        if workload.protocol == "http":
            check_http_probes(workload, settings)
            continue
        port = settings.port if settings.tls_cert_file is None else settings.health_port
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            asked = workload.container[probe]["grpc"]
            assert asked["port"] == port
            pool = descriptor_pool.Default()  # type: ignore[no-untyped-call]
            service = pool.FindServiceByName(asked["service"])
            assert service.file.name == SERVICES[workload.key].name


def check_http_probes(workload: Workload, settings: Any) -> None:
    """A gateway whose orchestrator is gone is not ready; it must not be started again for that."""
    asked = {
        probe: workload.container[probe]["httpGet"]
        for probe in ("startupProbe", "readinessProbe", "livenessProbe")
    }
    assert {probe["port"] for probe in asked.values()} == {settings.port}
    scheme = "HTTP" if settings.tls_cert_file is None else "HTTPS"
    assert {probe["scheme"] for probe in asked.values()} == {scheme}
    paths = [probe["path"] for probe in asked.values()]
    assert paths == ["/livez", "/healthz", "/livez"]
    assert settings.tls_ca_file is None, "a kubelet has no certificate to show"


def test_the_gateway_has_no_token_of_its_own(name: str) -> None:
    """It would be that of every caller who sends none."""
    for workload in all_workloads(name):
        if workload.key == "gateway":
            assert settings_of(workload).client_token_file is None
            assert "own-token" not in str(workload.pod)


def test_a_pod_has_time_to_drain(name: str) -> None:
    for workload in all_workloads(name):
        settings = settings_of(workload)
        lifecycle = workload.container.get("lifecycle")
        needed = lifecycle["preStop"]["sleep"]["seconds"] if lifecycle else 0
        needed += settings.drain_grace_s + getattr(settings, "save_drain_s", 0.0)
        assert workload.pod["spec"]["terminationGracePeriodSeconds"] >= needed + 5


def test_long_streams_outlive_the_age_of_their_connection(name: str) -> None:
    """A server ends what still runs drain_grace_s after a connection is too old."""
    for workload in all_workloads(name):
        if workload.key in ("orchestrator", "denoise", "gateway"):
            assert settings_of(workload).drain_grace_s >= 300


def test_requests_are_at_most_limits(name: str) -> None:
    for workload in all_workloads(name):
        resources = workload.container["resources"]
        assert {"cpu", "memory"} <= resources["requests"].keys()
        assert "memory" in resources["limits"]
        for resource, wanted in resources["requests"].items():
            limit = resources["limits"].get(resource)
            assert limit is None or amount(wanted) <= amount(limit)


def test_who_writes_data_is_alone(name: str) -> None:
    scaled = {
        found["spec"]["scaleTargetRef"]["name"]
        for found in of_kind(release(name), "HorizontalPodAutoscaler")
    }
    services = {found["metadata"]["name"]: found for found in of_kind(release(name), "Service")}
    for workload in all_workloads(name):
        spec = workload.manifest["spec"]
        if workload.manifest["kind"] == "Deployment":
            assert "data_dir" not in str(workload.own_environment).lower()
            continue
        assert workload.key in ("latentKv", "vectorIndex")
        assert spec["replicas"] == 1
        assert workload.name not in scaled
        assert services[spec["serviceName"]]["spec"]["clusterIP"] == "None"
        data = str(settings_of(workload).data_dir)
        mounts = {m["name"]: m["mountPath"] for m in workload.container["volumeMounts"]}
        assert data.startswith(mounts["data"] + "/")


def test_claims_have_one_writer_and_a_pod(name: str) -> None:
    used = {
        volume["persistentVolumeClaim"]["claimName"]
        for workload in all_workloads(name)
        for volume in workload.pod["spec"]["volumes"]
        if volume["name"] == "data" and "persistentVolumeClaim" in volume
    }
    claims = list(of_kind(release(name), "PersistentVolumeClaim"))
    assert used - {"old-data"} == {claim["metadata"]["name"] for claim in claims}
    assert all(claim["spec"]["accessModes"] == ["ReadWriteOncePod"] for claim in claims)


def test_clients_see_every_replica(name: str) -> None:
    services = {found["metadata"]["name"]: found for found in of_kind(release(name), "Service")}
    single = {w.name for w in all_workloads(name) if w.manifest["kind"] == "StatefulSet"}
    for service in services.values():
        if service["spec"].get("clusterIP") == "None":
            assert service["spec"]["publishNotReadyAddresses"] is True
    for workload in all_workloads(name):
        if workload.protocol == "http":
            spec = services[workload.name]["spec"]
            assert "clusterIP" not in spec
            assert spec["sessionAffinity"] == "ClientIP"
        for variable, target in workload.own_environment.items():
            if not variable.endswith("_TARGET") or not target:
                continue
            # Only such a target is looked up as a whole, and spread over.
            host = target.removeprefix("dns:///").partition(":")[0]
            assert host != target
            if host in services:
                headless = services[host]["spec"].get("clusterIP") == "None"
                assert headless != (host in single), target
            else:
                assert host.startswith("outside-")


def test_an_autoscaler_decides_alone_and_scales_what_is_there(name: str) -> None:
    by_name = {workload.name: workload for workload in all_workloads(name)}
    scaled = set()
    for found in of_kind(release(name), "HorizontalPodAutoscaler"):
        spec = found["spec"]
        target = by_name[spec["scaleTargetRef"]["name"]]
        assert target.manifest["kind"] == spec["scaleTargetRef"]["kind"] == "Deployment"
        assert 1 <= spec["minReplicas"] <= spec["maxReplicas"]
        scaled.add(target.name)
    for workload in by_name.values():
        assert ("replicas" in workload.manifest["spec"]) != (workload.name in scaled)


def test_selectors_take_exactly_the_pods_of_their_workload(name: str) -> None:
    found = all_workloads(name)
    manifests = release(name)
    for selecting in of_kind(manifests, "Deployment", "StatefulSet", "PodDisruptionBudget"):
        taken = [w.name for w in found if selects(selecting["spec"]["selector"], w.labels)]
        assert taken == [selecting["metadata"]["name"]]
    for service in of_kind(manifests, "Service"):
        selector = {"matchLabels": service["spec"]["selector"]}
        (taken_one,) = [w for w in found if selects(selector, w.labels)]
        assert re.sub("-(front|pods)$", "", service["metadata"]["name"]) == taken_one.name
        for port in service["spec"]["ports"]:
            assert port["targetPort"] in taken_one.ports
    for ingress in of_kind(manifests, "Ingress"):
        (rule,) = ingress["spec"]["rules"]
        (path,) = rule["http"]["paths"]
        backend = path["backend"]["service"]
        (service,) = (s for s in of_kind(manifests, "Service") if is_named(s, backend["name"]))
        assert backend["port"]["name"] in [port["name"] for port in service["spec"]["ports"]]
    for workload in found:
        for spread in workload.pod["spec"].get("topologySpreadConstraints", ()):
            assert [w for w in found if selects(spread["labelSelector"], w.labels)] == [workload]
    for monitor in of_kind(manifests, "PodMonitor"):
        assert all(selects(monitor["spec"]["selector"], w.labels) for w in found)
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert all(endpoint["port"] in w.ports for w in found)


def is_named(manifest: Manifest, name: str) -> bool:
    return bool(manifest["metadata"]["name"] == name)


def test_a_budget_lets_a_node_be_drained(name: str) -> None:
    for budget in of_kind(release(name), "PodDisruptionBudget"):
        assert budget["spec"]["maxUnavailable"] == 1
        assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_pods_meet_the_restricted_level(name: str) -> None:
    """Pod Security Standards, level restricted, and a root file system that cannot be written."""
    for workload in all_workloads(name):
        pod, container = workload.pod["spec"], workload.container["securityContext"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 10001
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert container["allowPrivilegeEscalation"] is False
        assert container["readOnlyRootFilesystem"] is True
        assert container["capabilities"] == {"drop": ["ALL"]}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        allowed = {"emptyDir", "secret", "persistentVolumeClaim"}
        assert all(volume.keys() - {"name"} <= allowed for volume in pod["volumes"])


def test_volumes_are_mounted_and_mounts_have_volumes(name: str) -> None:
    for workload in all_workloads(name):
        volumes = [volume["name"] for volume in workload.pod["spec"]["volumes"]]
        mounts = [mount["name"] for mount in workload.container["volumeMounts"]]
        assert sorted(volumes) == sorted(mounts)
        files = [
            value
            for variable, value in workload.own_environment.items()
            if variable.endswith("_FILE") and value.startswith("/")
        ]
        paths = [mount["mountPath"] + "/" for mount in workload.container["volumeMounts"]]
        assert all(file.startswith(tuple(paths)) for file in files)


def test_accounts_exist_or_are_named_by_the_operator(name: str) -> None:
    accounts = {found["metadata"]["name"] for found in of_kind(release(name), "ServiceAccount")}
    used = {workload.pod["spec"]["serviceAccountName"] for workload in all_workloads(name)}
    assert used - {"existing"} == accounts


def test_a_gpu_is_asked_for_where_it_is_used(name: str) -> None:
    for workload in all_workloads(name):
        spec = workload.pod["spec"]
        uses = workload.own_environment.get(
            f"SKIPSTONE_{workload.settings_class.service_name}_DEVICE".upper()
        )
        limits = workload.container["resources"]["limits"]
        assert (uses == "cuda") == ("nvidia.com/gpu" in limits)
        assert (uses == "cuda") == ("nvidia.com/gpu.present" in spec.get("nodeSelector", {}))
        tolerated = [taint["key"] for taint in spec.get("tolerations", ())]
        assert (uses == "cuda") == ("nvidia.com/gpu" in tolerated)
