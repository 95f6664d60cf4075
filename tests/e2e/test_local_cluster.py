"""The local cluster with five small services in place of the real ones."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from tests.e2e.small_services import FULL_NAMES, small_services_environ

from skipstone_client._launch_flags import DEPENDENCIES, GATEWAY
from skipstone_client._service_process import is_serving
from skipstone_client.local_cluster import (
    ClusterError,
    LocalCluster,
    LogLine,
    ServiceDied,
    ServiceReady,
)

pytestmark = pytest.mark.e2e

WAIT_S = 30.0
SERVICES = [name for name in DEPENDENCIES if name != GATEWAY]


@pytest.fixture(scope="module")
def environ(tmp_path_factory) -> dict[str, str]:
    return small_services_environ(tmp_path_factory.mktemp("services"))


class Events:
    """Gathers events and waits for one."""

    def __init__(self) -> None:
        self.all: list[object] = []
        self._changed = threading.Condition()

    def __call__(self, event) -> None:
        with self._changed:
            self.all.append(event)
            self._changed.notify_all()

    def await_(self, wanted):
        with self._changed:
            assert self._changed.wait_for(lambda: any(map(wanted, self.all)), WAIT_S)
            return next(filter(wanted, self.all))


def serves(cluster, service) -> bool:
    return is_serving(cluster.targets[service], FULL_NAMES[service], 5.0)


def test_a_cluster_starts_outlives_a_kill_restarts_and_stops(environ, tmp_path):
    """One long story, since every start of five processes costs seconds."""
    events = Events()
    cluster = LocalCluster(
        tmp_path, free_ports=True, restart=True, on_event=events, environ=environ
    )
    with cluster:
        assert set(cluster.targets) == set(SERVICES)
        assert all(serves(cluster, service) for service in SERVICES)
        ready = [event.service for event in events.all if isinstance(event, ServiceReady)]
        assert ready[-1] == "orchestrator"
        assert ready.index("latent_kv") < ready.index("denoise")
        assert any(isinstance(e, LogLine) and "plain words" in e.text for e in events.all)

        # Killed on purpose: stays down, the others stay up, comes back where it was.
        target = cluster.targets["embedding"]
        cluster.kill("embedding")
        assert not cluster.is_running("embedding")
        assert serves(cluster, "orchestrator")
        cluster.restart("embedding")
        assert cluster.targets["embedding"] == target
        assert serves(cluster, "embedding")
        assert not any(isinstance(event, ServiceDied) for event in events.all)

        # Died by itself: told, and started again where it was.
        pid = cluster.pid("vector_index")
        os.kill(pid, signal.SIGKILL)
        died = events.await_(lambda event: isinstance(event, ServiceDied))
        assert (died.service, died.reason) == ("vector_index", "killed by SIGKILL")
        assert died.restart_in_s is not None
        events.all.clear()
        events.await_(lambda e: isinstance(e, ServiceReady) and e.service == "vector_index")
        assert cluster.pid("vector_index") != pid
        assert serves(cluster, "vector_index")
        pids = [cluster.pid(service) for service in SERVICES]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_service_that_cannot_start_is_quoted_and_all_others_are_stopped(environ, tmp_path):
    flags = {"denoise": ["--fail", "no model at models/gone; pass --model"]}
    cluster = LocalCluster(tmp_path, free_ports=True, flags=flags, environ=environ)
    with pytest.raises(ClusterError) as caught:
        cluster.start()
    assert str(caught.value) == (
        "skipstone-denoise: cannot start: no model at models/gone; pass --model"
    )
    assert not any(cluster.is_running(service) for service in SERVICES)


def test_a_service_that_hangs_at_start_is_named(environ, tmp_path):
    Path(tmp_path, "skipstone_latent_kv.py").write_text("import time\ntime.sleep(600)\n")
    hanging = environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{environ['PYTHONPATH']}"}
    cluster = LocalCluster(tmp_path, free_ports=True, environ=hanging, ready_timeout_s=0.5)
    with pytest.raises(ClusterError, match="not ready after"):
        cluster.start()
    assert not any(cluster.is_running(service) for service in SERVICES)


def test_a_service_that_ends_with_a_traceback_is_named(environ, tmp_path):
    Path(tmp_path, "skipstone_latent_kv.py").write_text("import no_such_module\n")
    broken = environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{environ['PYTHONPATH']}"}
    cluster = LocalCluster(tmp_path, free_ports=True, environ=broken)
    with pytest.raises(ClusterError) as caught:
        cluster.start()
    assert str(caught.value) == ("latent_kv: ModuleNotFoundError: No module named 'no_such_module'")


def test_nothing_that_listens_is_not_serving():
    assert not is_serving("127.0.0.1:1", FULL_NAMES["denoise"], 0.1)
