"""Any release can be upgraded to any other in place: no object changes what may not be changed."""

from __future__ import annotations

import functools
import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.unit.deploy.combinations import ALL_RELEASES, any_release
from tests.unit.deploy.rendered import Manifest, of_kind, render, workloads

RECORDED = Path(__file__).parent / "immutable_fields.json"
"""What releases of the chart have installed. A change of it breaks upgrades from them."""

_STATEFUL_SET_MAY_CHANGE = {
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
}


def _service(spec: Manifest) -> Manifest:
    return {"headless": spec.get("clusterIP") == "None", "external": spec.get("externalName")}


def _stateful_set(spec: Manifest) -> Manifest:
    return {name: told for name, told in spec.items() if name not in _STATEFUL_SET_MAY_CHANGE}


def _claim(spec: Manifest) -> Manifest:
    """Its size may grow, where its class lets it."""
    return {name: told for name, told in spec.items() if name != "resources"}


def _nothing(spec: Manifest) -> Manifest:
    del spec
    return {}


IMMUTABLE: Mapping[str, Callable[[Manifest], Manifest]] = {
    "Service": _service,
    "StatefulSet": _stateful_set,
    "PersistentVolumeClaim": _claim,
    "Deployment": lambda spec: {"selector": spec["selector"]},
    "HorizontalPodAutoscaler": _nothing,
    "Ingress": _nothing,
    "NetworkPolicy": _nothing,
    "PodDisruptionBudget": _nothing,
    "PodMonitor": _nothing,
    "ServiceAccount": _nothing,
}
"""What the API server of the lowest version refuses to change, by the kinds that the chart has."""


MORE: Mapping[str, Mapping[str, Any]] = {
    "a larger claim": {"latentKv": {"persistence": {"size": "64Gi"}}},
    "another class": {"latentKv": {"persistence": {"storageClass": "fast"}}},
    "a claim of one's own": {"vectorIndex": {"persistence": {"existingClaim": "mine"}}},
}


@functools.cache
def releases() -> Mapping[str, list[Manifest]]:
    return {
        **{name: any_release(name) for name in ALL_RELEASES},
        **{name: render(values) for name, values in MORE.items()},
    }


def under_one_name(text: str, release: str) -> str:
    """What a release without a name of its own would have: another name makes other objects."""
    own = ALL_RELEASES.get(release, {}).get("fullnameOverride", "demo")
    return text.replace(own[:38].rstrip("-"), "demo")


@functools.cache
def immutable_fields() -> Mapping[str, Mapping[str, str]]:
    """Kind and name of every object, to what may not change in it, by release."""
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for release, manifests in releases().items():
        for manifest in manifests:
            kind, name = manifest["kind"], manifest["metadata"]["name"]
            fields = json.dumps(IMMUTABLE[kind](manifest.get("spec", {})), sort_keys=True)
            what = under_one_name(f"{kind} {name}", release)
            found[what][release] = under_one_name(fields, release)
    return found


def test_no_upgrade_changes_what_may_not_be_changed() -> None:
    refused = [
        f"{what}: {first} -> {second}: {before} -> {after}"
        for what, releases in immutable_fields().items()
        for (first, before), (second, after) in itertools.permutations(releases.items(), 2)
        if before != after
    ]
    assert not refused, "\n".join(refused)


def test_releases_of_earlier_charts_can_be_upgraded() -> None:
    """Whoever adds an object adds it to the file; a change of a line is a break for every user."""
    now = {
        what: json.loads(next(iter(releases.values())))
        for what, releases in immutable_fields().items()
    }
    assert {what: told for what, told in now.items() if told} == json.loads(RECORDED.read_text())


def test_two_kinds_of_workload_with_one_name_never_have_one_volume() -> None:
    """Helm makes the new one before it removes the old one."""
    claims: defaultdict[str, dict[str, bool]] = defaultdict(dict)
    for release, manifests in releases().items():
        for found in workloads(manifests):
            data = [v for v in found.pod["spec"]["volumes"] if v["name"] == "data"]
            claimed = any("persistentVolumeClaim" in volume for volume in data)
            of_name = claims[under_one_name(found.name, release)]
            kind = found.manifest["kind"]
            of_name[kind] = of_name.get(kind, False) or claimed
    changing = {name: of_name for name, of_name in claims.items() if len(of_name) > 1}
    expected = {"StatefulSet": True, "Deployment": False}
    assert changing == {"demo-latent-kv": expected, "demo-vector-index": expected}


def test_claims_outlive_releases_that_do_not_name_them() -> None:
    """Also with `helm uninstall`, and while an engine outside is tried."""
    claims = [
        claim
        for manifests in releases().values()
        for claim in of_kind(manifests, "PersistentVolumeClaim")
    ]
    assert claims
    for claim in claims:
        assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
