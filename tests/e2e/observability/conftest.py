"""Five services that are watched in every way: traces go to a collector, metrics are served."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.e2e.observability.trace_collector import Collector, running_collector
from tests.e2e.processes import PATIENT, SERVICES, Cluster, running_gateway


@pytest.fixture(scope="session")
def collector() -> Iterator[Collector]:
    with running_collector() as collector:
        yield collector


class ObservedCluster(Cluster):
    """A cluster whose metrics can be read."""

    metrics_ports: dict[str, int]

    def scrape(self, service: str, *, accept: str = "text/plain") -> str:
        """What Prometheus reads of a service."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.metrics_ports[service]}/metrics", headers={"Accept": accept}
        )
        # Without the proxy of the one who tests.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=30) as response:
            return str(response.read().decode())


@pytest.fixture(scope="session")
def observed_once(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, collector: Collector
) -> Iterator[ObservedCluster]:
    """The services as the first test found them; most tests want `observed`."""
    ports = dict(zip(SERVICES, free_ports(len(SERVICES)), strict=True))
    flags = {
        name: ["--otlp-endpoint", collector.endpoint, "--metrics-port", str(ports[name])]
        for name in SERVICES
    }
    flags["orchestrator"] += [*PATIENT, "--drift-audit-share", "0"]
    flags["latent_kv"] += ["--memory-tier-bytes", "1000000"]
    with ObservedCluster(tmp_path_factory.mktemp("observed"), tiny_model, flags) as cluster:
        cluster.metrics_ports = ports
        yield cluster


@pytest.fixture
def observed(observed_once: ObservedCluster) -> ObservedCluster:
    """The services; a test may kill what it likes."""
    observed_once.heal()
    return observed_once


@pytest.fixture(scope="session")
def observed_gateway(observed_once: ObservedCluster, collector: Collector) -> Iterator[str]:
    """Address of a gateway before the services, which is watched like them."""
    flags = ("--otlp-endpoint", collector.endpoint)
    with running_gateway(observed_once.targets, *flags) as address:
        yield address


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(s.getsockname()[1]) for s in sockets]
