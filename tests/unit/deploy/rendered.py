"""What the chart renders, and the releases that the tests look at."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from helm.values_schema import SETTINGS
from helm_python.chart import Chart

from skipstone_shared.config import ServiceSettings

REPOSITORY = Path(__file__).parents[3]
CHART = REPOSITORY / "deploy" / "helm" / "skipstone"
NAMESPACE = "production"

Manifest = dict[str, Any]

COMPONENTS = {
    "orchestrator": "orchestrator",
    "embedding": "embedding",
    "vectorIndex": "vector-index",
    "latentKv": "latent-kv",
    "denoise": "denoise",
    "gateway": "gateway",
}
"""Section of the values file to the name of its objects."""

OUTSIDE = {key: {"enabled": False, "target": f"dns:///outside-{key}:7000"} for key in COMPONENTS}


def alone(key: str) -> Mapping[str, Any]:
    """Values of a release of one service; those that it calls are elsewhere."""
    return {**OUTSIDE, key: {}}


EVERYTHING: Mapping[str, Any] = {
    "fullnameOverride": "everything",
    "image": {"registry": "registry.example.com/team", "pullSecrets": [{"name": "pull"}]},
    "common": {
        "settings": {"log_level": "debug"},
        "podAnnotations": {"example.com/note": "yes"},
        "podLabels": {"example.com/team": "pictures"},
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "batch", "operator": "Exists"}],
        "priorityClassName": "high",
        "extraArgs": ["--max-workers", "64"],
        "extraEnv": [{"name": "TZ", "value": "UTC"}],
        "extraEnvFrom": [{"secretRef": {"name": "more"}}],
        "extraVolumes": [{"name": "more", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
        "topologySpread": {"whenUnsatisfiable": "DoNotSchedule"},
    },
    "orchestrator": {
        "autoscaling": {"enabled": True},
        "front": {"enabled": True, "type": "LoadBalancer"},
        "settings": {"save_drain_s": 45.5, "key_levels": [0.9, 0.7], "beat_fewer_steps": False},
    },
    "embedding": {"autoscaling": {"enabled": True}, "gpu": {"enabled": True}},
    "vectorIndex": {"persistence": {"storageClass": "fast", "annotations": {"a": "b"}}},
    "latentKv": {
        "image": {"digest": f"sha256:{'0' * 64}"},
        "persistence": {"existingClaim": "old-data"},
        "settings": {"quota_bytes": 200_000_000_000},
        "networkPolicy": {"extraFrom": [{"podSelector": {"matchLabels": {"engine": "own"}}}]},
    },
    "denoise": {
        "autoscaling": {"enabled": True},
        "gpu": {"enabled": True, "count": 2},
        "model": {"name": "/models/wan", "existingClaim": "models"},
        "settings": {"block_adapters": {"Odd": {"lists": ["blocks"], "pattern": "h->h"}}},
        "networkPolicy": {"extraEgress": [{"ports": [{"protocol": "TCP", "port": 443}]}]},
    },
    "gateway": {
        "autoscaling": {"enabled": True},
        "service": {"type": "LoadBalancer", "port": 443, "annotations": {"a": "b"}},
        "ingress": {
            "enabled": True,
            "className": "nginx",
            "host": "pictures.example.com",
            "tlsSecretName": "pictures",
            "annotations": {"nginx.ingress.kubernetes.io/affinity": "cookie"},
        },
        "settings": {"public_url": "https://pictures.example.com", "video_fps": 24},
    },
    "metrics": {"podMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
    "tls": {"enabled": True, "secretName": "certificates", "serverName": "skipstone"},
    "access": {"secretName": "callers", "clientTokenSecretName": "own-token"},
}

RELEASES: Mapping[str, Mapping[str, Any]] = {
    "defaults": {},
    **{f"{component} alone": alone(key) for key, component in COMPONENTS.items()},
    "everything": EVERYTHING,
    "nothing kept": {
        "vectorIndex": {"persistence": {"enabled": False}},
        "latentKv": {"persistence": {"enabled": False}, "settings": {"store": "memory"}},
    },
    "stores outside": {
        "vectorIndex": {
            "replicas": 3,
            "settings": {"engine": "pgvector", "collection": "prod"},
            "extraEnv": [
                {
                    "name": "SKIPSTONE_VECTOR_INDEX_URL",
                    "valueFrom": {"secretKeyRef": {"name": "postgres", "key": "url"}},
                }
            ],
        },
        "latentKv": {
            "settings": {"store": "redis", "redis_urls": ["redis://a:6379", "redis://b:6379"]},
            "autoscaling": {"enabled": True},
        },
    },
    "latents in S3": {
        "latentKv": {
            "replicas": 2,
            "settings": {
                "store": "s3",
                "s3_bucket": "latents",
                "s3_endpoint": "http://seaweedfs-s3:8333",
                "s3_path_style": True,
                "s3_credentials_file": "/etc/skipstone/s3/credentials",
            },
            "extraVolumes": [{"name": "s3", "secret": {"secretName": "s3"}}],
            "extraVolumeMounts": [
                {"name": "s3", "mountPath": "/etc/skipstone/s3", "readOnly": True}
            ],
        },
    },
    "as little as possible": {
        "common": {
            "preStopSeconds": 0,
            "podDisruptionBudget": {"enabled": False},
            "topologySpread": {"enabled": False},
            "serviceAccount": {"name": "existing"},
        },
        "metrics": {"enabled": False},
        "networkPolicy": {"enabled": False},
    },
    "one of each": {
        "orchestrator": {"replicas": 1},
        "embedding": {"replicas": 1},
        "denoise": {"replicas": 1, "drainSeconds": 3600},
    },
    "a long name": {"fullnameOverride": "a-name-that-is-much-too-long-for-any-object-of-a-cluster"},
}
"""Values by what they are about."""

SECRETS = {"postgres": {"url": "postgresql://user:password@postgres:5432/skipstone"}}
"""What the secrets that they name hold."""


@dataclass(frozen=True)
class Workload:
    """A Deployment or StatefulSet and what it is for.

    Attributes:
        key: Section of the values file.
        manifest: The object.
        services: Names of the Services that its pods are behind.
    """

    key: str
    manifest: Manifest
    services: tuple[str, ...]

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])

    @property
    def settings_class(self) -> type[ServiceSettings]:
        return SETTINGS[self.key]

    @property
    def pod(self) -> Manifest:
        pod: Manifest = self.manifest["spec"]["template"]
        return pod

    @property
    def labels(self) -> Mapping[str, str]:
        labels: Mapping[str, str] = self.pod["metadata"]["labels"]
        return labels

    @property
    def container(self) -> Manifest:
        container: Manifest
        (container,) = self.pod["spec"]["containers"]
        return container

    @property
    def protocol(self) -> str:
        """What callers speak to it: the name of its port, `grpc` or `http`."""
        return "http" if "http" in self.ports else "grpc"

    @property
    def port(self) -> int:
        """Where callers reach it."""
        return self.ports[self.protocol]

    @property
    def ports(self) -> Mapping[str, int]:
        return {port["name"]: port["containerPort"] for port in self.container["ports"]}

    @property
    def command(self) -> list[str]:
        return [*self.container["command"], *self.container.get("args", ())]

    @property
    def own_environment(self) -> dict[str, str]:
        """Skipstone's variables, as the container gets them."""
        found = {}
        for variable in self.container["env"]:
            if "valueFrom" in variable:
                secret = variable["valueFrom"]["secretKeyRef"]
                found[variable["name"]] = SECRETS[secret["name"]][secret["key"]]
            elif variable["name"].startswith("SKIPSTONE_"):
                found[variable["name"]] = variable["value"]
        return found


@functools.cache
def _chart() -> Chart:
    return Chart.load(CHART)


def render(values: Mapping[str, Any], name: str = "demo") -> list[Manifest]:
    """The objects of a release."""
    files = _chart().render(dict(values), name=name, namespace=NAMESPACE)
    texts = [text for path, text in files.items() if path.endswith(".yaml")]
    # The parser in C, where there is one, takes a tenth of the time.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [found for text in texts for found in yaml.load_all(text, loader) if found]


@functools.cache
def release(name: str) -> list[Manifest]:
    """The objects of one of RELEASES."""
    return render(RELEASES[name])


def of_kind(manifests: list[Manifest], *kinds: str) -> Iterator[Manifest]:
    """The objects of some kinds."""
    return (found for found in manifests if found["kind"] in kinds)


def workloads(manifests: list[Manifest]) -> list[Workload]:
    """The workloads of a release."""
    keys = {component: key for key, component in COMPONENTS.items()}
    services = list(of_kind(manifests, "Service"))

    def workload(found: Manifest) -> Workload:
        labels = found["spec"]["template"]["metadata"]["labels"]
        names = (
            service["metadata"]["name"]
            for service in services
            if selects({"matchLabels": service["spec"]["selector"]}, labels)
        )
        return Workload(keys[labels["app.kubernetes.io/component"]], found, tuple(names))

    return [workload(found) for found in of_kind(manifests, "Deployment", "StatefulSet")]


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a selector with matchLabels takes a pod with these labels."""
    return selector["matchLabels"].items() <= labels.items()
