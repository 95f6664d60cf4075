"""The network that the policies of a release leave is the one that its services need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from tests.unit.deploy.combinations import ALL_RELEASES
from tests.unit.deploy.combinations import any_release as release
from tests.unit.deploy.rendered import Manifest, Workload, of_kind, selects, workloads

pytestmark = pytest.mark.parametrize(
    "name",
    [
        name
        for name, values in ALL_RELEASES.items()
        if values.get("networkPolicy", {}).get("enabled", True)
    ],
)


def test_only_those_may_talk_who_call_each_other(name: str) -> None:
    """The network that the policies leave is the one that the targets in the pods need."""
    found = workloads(release(name))
    for source in found:
        for destination in found:
            for port_name, port in destination.ports.items():
                open_to_source = can_talk(release(name), source, destination, port)
                needed = port_name == destination.protocol and calls(source, destination)
                assert open_to_source == needed, (source.name, destination.name, port_name)


def test_targets_outside_of_the_release_can_be_reached(name: str) -> None:
    for workload in workloads(release(name)):
        for variable, target in workload.own_environment.items():
            if variable.endswith("_TARGET") and "outside" in target:
                rules = [
                    rule
                    for policy in policies_of(release(name), workload, "Egress")
                    for rule in policy["spec"].get("egress", ())
                ]
                assert {"ports": [{"protocol": "TCP", "port": 7000}]} in rules


def test_clients_may_call_the_front_alone(name: str) -> None:
    client = {"skipstone.dev/client": "true"}
    is_let_in = ALL_RELEASES[name].get("networkPolicy", {}).get("clients", [client]) != []
    found = workloads(release(name))
    open_to_client = [
        workload.key
        for workload in found
        for policy in policies_of(release(name), workload, "Ingress")
        for rule in policy["spec"].get("ingress", ())
        for peer in rule["from"]
        if "podSelector" in peer and peer["podSelector"].get("matchLabels") == client
    ]
    keys = [workload.key for workload in found]
    fronts = [key for key in keys if key in ("orchestrator", "gateway")]
    expected = fronts if "orchestrator" in keys else keys
    assert open_to_client == (expected if is_let_in else [])


def calls(source: Workload, destination: Workload) -> bool:
    """Whether the variables of one pod name the other."""
    targets = [v for n, v in source.own_environment.items() if n.endswith("_TARGET")]
    return any(f"dns:///{name}:{destination.port}" in targets for name in destination.services)


def policies_of(
    manifests: list[Manifest], workload: Workload, direction: str
) -> Iterator[Manifest]:
    for policy in of_kind(manifests, "NetworkPolicy"):
        spec = policy["spec"]
        if selects(spec["podSelector"], workload.labels) and direction in spec["policyTypes"]:
            yield policy


def can_talk(manifests: list[Manifest], source: Workload, destination: Workload, port: int) -> bool:
    """Whether the policies let a connection through: both sides must allow it."""

    def allows(side: Workload, direction: str, peers: str, labels: Mapping[str, str]) -> bool:
        policies = list(policies_of(manifests, side, direction))
        assert policies, f"{side.name} is open to everyone"
        return any(
            port in [allowed["port"] for allowed in rule.get("ports", ())]
            and any(
                "namespaceSelector" not in peer and selects(peer["podSelector"], labels)
                for peer in rule.get(peers, ())
            )
            for policy in policies
            for rule in policy["spec"].get(direction.lower(), ())
        )

    return allows(source, "Egress", "to", destination.labels) and allows(
        destination, "Ingress", "from", source.labels
    )
