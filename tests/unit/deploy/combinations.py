"""Releases in which any two choices of the chart's switches meet at least once.

A hand-picked release has what its author thought of together; most faults of templates are in two
switches that nobody did. `SWITCHES` names the choices, `COMBINATIONS` are the releases.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from allpairspy import AllPairs
from tests.unit.deploy.rendered import COMPONENTS, RELEASES, Manifest, alone, render

Values = Mapping[str, Any]

STORES = ("latentKv", "vectorIndex")
STATELESS = tuple(key for key in COMPONENTS if key not in STORES)
POSTGRES = {
    "name": "SKIPSTONE_VECTOR_INDEX_URL",
    "valueFrom": {"secretKeyRef": {"name": "postgres", "key": "url"}},
}


def of(keys: Sequence[str], values: Values) -> Values:
    """The same values in several sections."""
    return dict.fromkeys(keys, values)


def outside(engine: str, **settings: Any) -> Values:
    """An index in an engine outside."""
    return {
        "vectorIndex": {"settings": {"engine": engine, **settings}, "extraEnv": [POSTGRES]},
    }


SWITCHES: Mapping[str, Mapping[str, Values]] = {
    "store": {
        "lmdb": {},
        "memory": {"latentKv": {"settings": {"store": "memory"}}},
        "redis": {
            "latentKv": {
                "replicas": 3,
                "settings": {"store": "redis", "redis_urls": ["redis://a:6379"]},
            }
        },
        "s3": {
            "latentKv": {
                "autoscaling": {"enabled": True},
                "settings": {"store": "s3", "s3_bucket": "latents"},
            }
        },
    },
    "engine": {
        "hnswlib": {},
        "pgvector": {**outside("pgvector", collection="prod")},
        "milvus": {"vectorIndex": {**outside("milvus")["vectorIndex"], "replicas": 3}},
        "qdrant": {
            "vectorIndex": {**outside("qdrant")["vectorIndex"], "autoscaling": {"enabled": True}}
        },
    },
    "data": {
        "claim": {},
        "forgotten": of(STORES, {"persistence": {"enabled": False}}),
        "existing claim": of(STORES, {"persistence": {"existingClaim": "old-data"}}),
        "class": of(STORES, {"persistence": {"storageClass": "fast", "annotations": {"a": "b"}}}),
    },
    "certificates": {
        "none": {},
        "by name": {"tls": {"enabled": True, "secretName": "certificates"}},
        "one name": {
            "tls": {"enabled": True, "secretName": "certificates", "serverName": "skipstone"}
        },
    },
    "access": {
        "open": {},
        "callers": {"access": {"secretName": "callers"}},
        "tokens": {"access": {"secretName": "callers", "clientTokenSecretName": "own-token"}},
    },
    "web": {
        "inside": {},
        "ingress": {"gateway": {"ingress": {"enabled": True, "host": "pictures.example.com"}}},
        "secure ingress": {
            "gateway": {
                "ingress": {
                    "enabled": True,
                    "className": "nginx",
                    "host": "pictures.example.com",
                    "tlsSecretName": "pictures",
                    "annotations": {"a": "b"},
                }
            }
        },
        "load balancer": {"gateway": {"service": {"type": "LoadBalancer", "port": 443}}},
    },
    "scaling": {
        "two": {},
        "one": of(STATELESS, {"replicas": 1}),
        "automatic": of(STATELESS, {"autoscaling": {"enabled": True, "maxReplicas": 16}}),
    },
    "front": {
        "headless": {},
        "one address": {"orchestrator": {"front": {"enabled": True, "type": "NodePort"}}},
    },
    "metrics": {
        "port": {},
        "none": {"metrics": {"enabled": False, "podMonitor": {"enabled": True}}},
        "monitored": {"metrics": {"podMonitor": {"enabled": True, "labels": {"a": "b"}}}},
    },
    "network": {
        "closed": {},
        "open": {"networkPolicy": {"enabled": False}},
        "nobody asks": {"networkPolicy": {"clients": [], "monitoring": []}},
        "more": {
            "common": {
                "networkPolicy": {
                    "extraFrom": [{"podSelector": {"matchLabels": {"engine": "own"}}}],
                    "extraEgress": [{"ports": [{"protocol": "TCP", "port": 443}]}],
                }
            }
        },
    },
    "processors": {
        "cpu": {},
        "gpu": {"denoise": {"gpu": {"enabled": True, "count": 2}}},
        "gpus": of(("denoise", "embedding"), {"gpu": {"enabled": True}}),
    },
    "model": {
        "bundled": {},
        "claim": {"denoise": {"model": {"name": "/models/wan", "existingClaim": "models"}}},
        "hub": {"denoise": {"model": {"name": "team/model"}, "sharedMemorySize": "8Gi"}},
    },
    "pods": {
        "plain": {},
        "bare": {
            "common": {
                "preStopSeconds": 0,
                "podDisruptionBudget": {"enabled": False},
                "topologySpread": {"enabled": False},
            }
        },
        "placed": {
            "common": {
                "nodeSelector": {"kubernetes.io/arch": "amd64"},
                "tolerations": [{"key": "batch", "operator": "Exists"}],
                "priorityClassName": "high",
                "runtimeClassName": "sandboxed",
                "podLabels": {"team": "pictures"},
                "podAnnotations": {"note": "yes"},
            }
        },
    },
    "more": {
        "nothing": {},
        "of all": {
            "common": {
                "settings": {"otlp_endpoint": "http://collector:4317"},
                "extraArgs": ["--max-workers", "64"],
                "extraEnvFrom": [{"secretRef": {"name": "more"}}],
                "extraVolumes": [{"name": "more", "secret": {"secretName": "more"}}],
                "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
            }
        },
    },
    "account": {
        "own": {},
        "cloud role": {"common": {"serviceAccount": {"annotations": {"role": "skipstone"}}}},
        "existing": {"common": {"serviceAccount": {"name": "existing"}}},
    },
    "images": {
        "tags": {},
        "pinned": {
            "image": {"registry": "registry.example.com/team", "pullSecrets": [{"name": "pull"}]},
            "latentKv": {"image": {"digest": f"sha256:{'0' * 64}"}},
        },
    },
    "name": {"release": {}, "long": {"fullnameOverride": "a-name-that-is-much-too-long-for-any"}},
}
"""Values by switch and choice; the first choice of each is the default of the chart."""


def merged(*parts: Values) -> dict[str, Any]:
    """Values with those of later parts in place of earlier ones; lists are joined."""
    whole: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            known = whole.get(key)
            if isinstance(known, dict) and isinstance(value, Mapping):
                whole[key] = merged(known, value)
            elif isinstance(known, list) and isinstance(value, list):
                whole[key] = [*known, *value]
            else:
                whole[key] = copy.deepcopy(value)
    return whole


def _pairs() -> dict[str, Values]:
    """A whole release per row: a pair in which a service is missing would be no pair."""
    found: dict[str, Values] = {}
    for choices in AllPairs([list(known) for known in SWITCHES.values()]):
        chosen = list(zip(choices, SWITCHES.values(), strict=True))
        told = [choice for choice, known in chosen if choice != next(iter(known))]
        found[", ".join(told)] = merged(*(known[choice] for choice, known in chosen))
    return found


def _alone(whole: Mapping[str, Values]) -> dict[str, Values]:
    """Each service alone, with the switches of one row."""
    return {
        f"{component} alone, {name}": merged(values, alone(key))
        for (key, component), (name, values) in zip(
            COMPONENTS.items(), list(whole.items())[1:], strict=False
        )
    }


PAIRS: Mapping[str, Values] = _pairs()
"""Values by the choices that are not the default."""

COMBINATIONS: Mapping[str, Values] = {**PAIRS, **_alone(PAIRS)}
"""Releases of services alone too."""

ALL_RELEASES: Mapping[str, Values] = {**RELEASES, **COMBINATIONS}
"""Those picked by hand too."""


@functools.cache
def any_release(name: str) -> list[Manifest]:
    """The objects of one of ALL_RELEASES."""
    return render(ALL_RELEASES[name])
