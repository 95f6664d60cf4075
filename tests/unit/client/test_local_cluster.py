"""What a local cluster does when things coincide; tests/e2e starts real services."""

from __future__ import annotations

import threading

import pytest

from skipstone_client import local_cluster
from skipstone_client.local_cluster import LocalCluster

WAIT_S = 20.0


class FakeProcess:
    """A service that is ready at once and ends when it is told."""

    started: list[FakeProcess]

    def __init__(self, service, flags, environ, on_line, on_change):
        self.service = service
        self.address = "127.0.0.1:1"
        self.health_address: str | None = None
        self.exit_code = None
        self._on_change = on_change
        self._ended = threading.Event()
        self.started.append(self)

    def die(self):
        """Ends by itself; whoever watches hears of it on this thread."""
        self.exit_code = 1
        self._ended.set()
        self._on_change(self)

    def terminate(self):
        self.exit_code = 0
        self._ended.set()

    kill = terminate

    def wait(self, timeout_s=None):
        return self._ended.wait(timeout_s)

    def why_it_ended(self):
        return "it died"


class StoppedDuringPause(threading.Event):
    """The cluster is stopped when the pause before a new start has just ended."""

    cluster: LocalCluster

    def wait(self, timeout=None):
        stopper = threading.Thread(target=self.cluster.stop)
        stopper.start()
        stopper.join(WAIT_S)
        return False


@pytest.fixture
def started(monkeypatch):
    """Every process that a cluster has started."""
    FakeProcess.started = []
    monkeypatch.setattr(local_cluster, "ServiceProcess", FakeProcess)
    monkeypatch.setattr(local_cluster, "is_serving", lambda *_: True)
    return FakeProcess.started


def test_a_service_that_died_is_not_started_again_behind_a_stop(started, tmp_path, monkeypatch):
    """It would outlive the cluster and keep its port and its data."""
    cluster = LocalCluster(tmp_path, free_ports=True, restart=True, environ={})
    cluster.start()
    stopping = StoppedDuringPause()
    stopping.cluster = cluster
    monkeypatch.setattr(cluster, "_stopping", stopping)
    started[0].die()
    assert len(started) == 5
    assert not [process.service for process in started if process.exit_code is None]
