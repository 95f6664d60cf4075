"""Service processes under test: started, killed, hung, restarted on the same port, and ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from skipstone_client import (
    DenoiseClient,
    EmbeddingClient,
    LatentKVClient,
    OrchestratorClient,
    VectorIndexClient,
)
from skipstone_client.local_cluster import ClusterEvent, LocalCluster, LogLine
from skipstone_shared.errors import Unavailable
from skipstone_shared.orchestration import BreakerState

START_TIMEOUT_S = 90.0
"""A torch process on a busy machine takes long to import."""

WAIT_TIMEOUT_S = 60.0
"""A pass that a busy service did not answer in time is made again 10 s later."""

BY_TABLE = ("--uncalibrated", "table")
"""Flags of an orchestrator: nobody has calibrated a model of random weights."""

PATIENT = (
    *("--embedding-timeout-s", "10", "--index-timeout-s", "10", "--latent-kv-timeout-s", "10"),
    *("--gate-timeout-s", "10", "--lookup-timeout-s", "20"),
    *BY_TABLE,
)
"""Flags of an orchestrator. Deadlines of a lookup are made for idle machines; where a test is not
about them they must not turn a hit into a fallback."""

SERVICES = ("embedding", "vector_index", "latent_kv", "denoise", "orchestrator")


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = WAIT_TIMEOUT_S) -> None:
    """Waits for a state, never for a time."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {timeout_s} s"
        time.sleep(0.02)


def service_environment(**extra: str) -> dict[str, str]:
    """The environment of a service: none of Skipstone's own variables of the one who tests."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SKIPSTONE_")}
    # One thread each: five processes share the cores with whatever else runs.
    return {**kept, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", **extra}


def service_command(name: str, *flags: str) -> list[str]:
    """The command line that starts a service."""
    return [sys.executable, "-m", f"skipstone_{name}", *flags]


@contextmanager
def running_gateway(targets: Mapping[str, str], *flags: str) -> Iterator[str]:
    """Runs a gateway over services at these targets; yields its address on the web."""
    stores = (f"--latent-kv-target={targets['latent_kv']}",)
    front = (f"--orchestrator-target={targets['orchestrator']}",)
    with running_service("gateway", *front, *stores, *flags) as address:
        yield f"http://{address}"


@contextmanager
def running_service(name: str, *flags: str) -> Iterator[str]:
    """Runs one service on a free port and kills it afterwards; yields its target."""
    # A file, since a pipe that nobody reads would stop the service one day.
    with tempfile.NamedTemporaryFile() as log:
        process = subprocess.Popen(
            service_command(name, "--port", "0", *flags), stderr=log, env=service_environment()
        )

        def serving() -> list[str]:
            text = Path(log.name).read_text(encoding="utf-8")
            assert process.poll() is None, f"{name} did not start: {text}"
            return [line for line in text.splitlines(keepends=True) if '"serving"' in line]

        try:
            wait_until(lambda: bool(serving()), f"{name} serves", START_TIMEOUT_S)
            yield str(json.loads(serving()[0])["address"])
        finally:
            process.kill()
            process.wait()


class Cluster:
    """The five services as processes, with a client for each."""

    def __init__(
        self, folder: Path, model: Path | str, flags: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        """Prepares the cluster.

        Args:
            folder: For data.
            model: Pipeline folder of the executor.
            flags: More flags by service.
        """
        self.folder = folder
        self._lines: list[LogLine] = []
        self._paused: set[str] = set()
        self._services = LocalCluster(
            folder,
            model=str(model),
            flags=flags,
            free_ports=True,
            on_event=self._note,
            environ=service_environment(),
        )

    def __enter__(self) -> Self:
        self._services.start()
        targets = self.targets = self._services.targets
        self.client = OrchestratorClient(targets["orchestrator"])
        self.store = LatentKVClient(targets["latent_kv"])
        self.index = VectorIndexClient(targets["vector_index"])
        self.denoise = DenoiseClient(targets["denoise"])
        self.embedding = EmbeddingClient(targets["embedding"])
        return self

    def __exit__(self, *exc: object) -> None:
        for client in (self.client, self.store, self.index, self.denoise, self.embedding):
            client.close()
        self._resume_all()
        self._services.stop()

    def pid(self, name: str) -> int:
        return self._services.pid(name)

    def is_running(self, name: str) -> bool:
        return self._services.is_running(name)

    def kill(self, name: str) -> None:
        """Ends a service as `kill -9` does."""
        self._services.kill(name)

    def hang(self, name: str) -> None:
        """Stops a service in its tracks: its port accepts connections and nobody answers."""
        self._paused.add(name)
        os.kill(self.pid(name), signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Lets a hung service go on."""
        self._paused.discard(name)
        os.kill(self.pid(name), signal.SIGCONT)

    def terminate(self, name: str) -> None:
        """Asks a service to end, as an operator does; does not wait."""
        os.kill(self.pid(name), signal.SIGTERM)

    def restart(self, *names: str) -> None:
        """Starts services again on their ports with their data, until requests use them again.

        An orchestrator that runs has noticed their end and would not ask them for a moment yet.
        """
        with ThreadPoolExecutor(len(names)) as starters:
            list(starters.map(self._services.restart, names))
        if self.is_running("orchestrator"):
            self._wait_used()

    def heal(self) -> None:
        """Lets every service run and serve, whatever was done to it."""
        self._resume_all()
        dead = [name for name in SERVICES if not self.is_running(name)]
        if dead:
            self.restart(*dead)
        self._wait_used()

    def _wait_used(self) -> None:
        wait_until(self._all_asked, "the orchestrator asks every service")
        # It tries to connect to an executor every quarter of a second; until then callers are told
        # to retry.
        wait_until(
            lambda: self.client.get_capabilities().model_id != "",
            "the orchestrator is connected to the executor",
        )

    def log(self, name: str) -> list[Mapping[str, Any]]:
        """The log lines of a service so far."""
        return [line.fields for line in self._lines if line.service == name and line.fields]

    def backend_flags(self) -> list[str]:
        """Flags that make an orchestrator use these services."""
        backends = [name for name in SERVICES if name != "orchestrator"]
        return [f"--{name.replace('_', '-')}-target={self.targets[name]}" for name in backends]

    @contextmanager
    def another_orchestrator(self, *flags: str) -> Iterator[OrchestratorClient]:
        """A second replica over the same services, with flags of its own."""
        with running_service("orchestrator", *self.backend_flags(), *BY_TABLE, *flags) as target:
            with OrchestratorClient(target) as client:
                yield client

    def _resume_all(self) -> None:
        for name in list(self._paused):
            if self.is_running(name):
                self.resume(name)

    def _all_asked(self) -> bool:
        try:
            stats = self.client.get_stats()
        except Unavailable:
            return False  # the client's own connection to a restarted orchestrator is not back yet
        # Only a store that answers tells a number; a closed breaker may not have seen it go.
        return -1 not in (stats.entry_count, stats.latent_bytes) and all(
            state.breaker is not BreakerState.OPEN for state in stats.services
        )

    def _note(self, event: ClusterEvent) -> None:
        if isinstance(event, LogLine):
            self._lines.append(event)
