"""All services of Skipstone as child processes of this one: for ``skipstone up``, demo and tests.

Leaving the block ends them, also after an error:

    with LocalCluster("out/data", free_ports=True) as cluster:
        client = OrchestratorClient(cluster.targets["orchestrator"])
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from skipstone_client._channel import (
    DENOISE,
    EMBEDDING,
    LATENT_KV,
    ORCHESTRATOR,
    VECTOR_INDEX,
)
from skipstone_client._launch_flags import (
    DEPENDENCIES,
    GATEWAY,
    WITH_DATA,
    ClusterError,
    LaunchFlags,
    reachable,
)
from skipstone_client._service_process import LogLine, ServiceProcess, is_answering, is_serving
from skipstone_client._settings_check import SettingsError, check_settings

__all__ = [
    "ClusterError",
    "ClusterEvent",
    "LocalCluster",
    "LogLine",
    "ServiceDied",
    "ServiceReady",
    "SettingsError",
]

T = TypeVar("T")

_FULL_NAMES = {
    s.name: s.full_name for s in (EMBEDDING, VECTOR_INDEX, LATENT_KV, DENOISE, ORCHESTRATOR)
}
_HEALTH_TIMEOUT_S = 10.0
_KILL_WAIT_S = 5.0
_SIGNAL_POLL_S = 0.2
_RESTART_PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_LONG_LIFE_S = 60.0
"""A service that lived this long gets the shortest pause again."""


@dataclasses.dataclass(frozen=True, slots=True)
class ServiceReady:
    """A service listens and says that it serves."""

    service: str
    target: str
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class ServiceDied:
    """A service ended by itself; ``restart_in_s`` is None when it stays down."""

    service: str
    reason: str
    restart_in_s: float | None


ClusterEvent = LogLine | ServiceReady | ServiceDied


class LocalCluster:
    """The five services as child processes, and perhaps the gateway. For any thread.

    A service that dies later does not stop the others: the cache is best effort, and the
    orchestrator goes on without. It is started again on its old port when ``restart`` is set.
    """

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        config: str | Path | None = None,
        model: str | None = None,
        flags: Mapping[str, Sequence[str]] | None = None,
        free_ports: bool = False,
        gateway: bool = False,
        restart: bool = False,
        on_event: Callable[[ClusterEvent], None] | None = None,
        environ: Mapping[str, str] | None = None,
        ready_timeout_s: float = 180.0,
        stop_grace_s: float = 30.0,
    ) -> None:
        """Prepares without starting anything.

        Args:
            data_dir: Where services keep data, each in a directory of its own. None: where the
                configuration file or the environment says, else DEFAULT_DATA_DIR.
            config: Configuration file for all services.
            model: Model of the denoise executor: a folder or an id. None: its configured one.
            flags: Further flags per service; they win over everything else.
            free_ports: Let every service take any free port instead of its configured one.
            gateway: Start the gateway too, HTTP and the web page in front of the orchestrator.
            restart: Start a service again that died, with growing pauses.
            on_event: Called with every log line and every change, from threads of this object. It
                must not raise.
            environ: Environment of the services; that of this process by default.
            ready_timeout_s: Time all of them have to get ready, in seconds.
            stop_grace_s: Time a service has to end after SIGTERM before it is killed, in seconds.

        Raises:
            ClusterError: the configuration file cannot be read.
        """
        self._environ = dict(os.environ if environ is None else environ)
        self._launch = LaunchFlags(
            self._environ,
            data_dir,
            config,
            model,
            flags or {},
            free_ports=free_ports,
            gateway=gateway,
        )
        self._restart = restart
        self._on_event = on_event or _ignore
        self._ready_timeout_s = ready_timeout_s
        self._stop_grace_s = stop_grace_s
        self._changed = threading.Condition()
        self._processes: dict[str, ServiceProcess] = {}
        self._started_at: dict[str, float] = {}
        self._targets: dict[str, str] = {}
        self._held: set[str] = set()
        self._deaths: dict[str, int] = {}
        self._stopping = threading.Event()

    @property
    def targets(self) -> Mapping[str, str]:
        """Service -> gRPC target, of all that were ready once; the gateway's is `host:port`."""
        return dict(self._targets)

    @property
    def web_address(self) -> str:
        """Where the gateway's page is; empty without one."""
        if GATEWAY not in self._targets:
            return ""
        scheme = "https" if self._launch.speaks_tls(GATEWAY) else "http"
        return f"{scheme}://{self._targets[GATEWAY]}"

    def pid(self, service: str) -> int:
        """Process id of a service that was started."""
        return self._processes[service].pid

    def is_running(self, service: str) -> bool:
        """Whether the process of a service is there."""
        process = self._processes.get(service)
        return process is not None and process.exit_code is None

    @property
    def is_configured(self) -> bool:
        """Whether a file or a variable holds settings of a service."""
        return self._launch.is_configured

    def check_settings(self) -> None:
        """Has all services read their settings, so that none starts where another one cannot.

        Raises:
            SettingsError: one of them refuses its settings.
        """
        check_settings(self._launch, self._environ)

    def start(self) -> None:
        """Starts all services and waits until they serve.

        Raises:
            ClusterError: one of them cannot start, or not in time; the others are stopped.
        """
        try:
            self._start_all()
        except BaseException:
            self.stop()
            raise

    def kill(self, service: str) -> None:
        """Kills a service (SIGKILL); it stays down until ``restart``."""
        with self._changed:
            self._held.add(service)
        self._processes[service].kill()
        self._processes[service].wait()

    def restart(self, service: str) -> None:
        """Starts a service again on its old port, ending it first when it runs.

        Raises:
            ClusterError: it cannot start, or not in time.
        """
        with self._changed:
            self._held.add(service)
        self._end([service])
        with self._changed:
            process = self._spawn(service)
            self._held.discard(service)
        self._await_ready(process, time.monotonic() + self._ready_timeout_s)

    def stop(self) -> None:
        """Ends all services, callers before the services they call. Idempotent."""
        # Under the lock, so that no service is being started again that would be missed below.
        with self._changed:
            self._stopping.set()
        try:
            for services in ([GATEWAY], ["orchestrator"], ["denoise"], [*WITH_DATA, "embedding"]):
                self._end(services)
        finally:
            # Also when the wait was interrupted: nothing may be left behind.
            processes = list(self._processes.values())
            for process in processes:
                process.kill()
            for process in processes:
                process.wait(_KILL_WAIT_S)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _start_all(self) -> None:
        deadline = time.monotonic() + self._ready_timeout_s
        waiting = list(self._launch.services)
        while waiting or len(self._targets) < len(self._launch.services):
            for service in list(waiting):
                if all(name in self._targets for name in DEPENDENCIES[service]):
                    waiting.remove(service)
                    self._spawn(service)
            self._await_any(deadline)

    def _await_any(self, deadline: float) -> None:
        """Waits until one more service is ready."""

        def changed() -> ServiceProcess | None:
            starting = (p for s, p in self._processes.items() if s not in self._targets)
            return next((p for p in starting if p.address or p.exit_code is not None), None)

        with self._changed:
            process = self._wait_until(changed, deadline)
        if process is None:
            slow = next(p for s, p in self._processes.items() if s not in self._targets)
            raise _too_slow(slow, self._ready_timeout_s)
        self._await_ready(process, deadline)

    def _wait_until(self, told: Callable[[], T], deadline: float) -> T:
        """Waits in short pieces, so that a signal given to another thread is seen in this one."""
        while True:
            left_s = deadline - time.monotonic()
            answer = self._changed.wait_for(told, max(0.0, min(left_s, _SIGNAL_POLL_S)))
            if answer or left_s <= _SIGNAL_POLL_S:
                return answer

    def _await_ready(self, process: ServiceProcess, deadline: float) -> None:
        """Waits until a service serves.

        Raises:
            ClusterError: it ended, or was not ready in time.
        """
        with self._changed:
            self._wait_until(lambda: process.address or process.exit_code is not None, deadline)
        if process.exit_code is not None:
            raise ClusterError(process.why_it_ended())
        target = reachable(process.address) if process.address else None
        name = process.service
        if target is None:
            raise _too_slow(process, self._ready_timeout_s)
        if not self._is_serving(process, target):
            raise _too_slow(process, self._ready_timeout_s)
        self._targets[name] = target
        self._on_event(ServiceReady(name, target, time.monotonic() - self._started_at[name]))

    def _is_serving(self, process: ServiceProcess, target: str) -> bool:
        if process.service == GATEWAY:
            tls = self._launch.speaks_tls(GATEWAY)
            return is_answering(target, _HEALTH_TIMEOUT_S, tls=tls)
        asked = reachable(process.health_address) if process.health_address else target
        return is_serving(asked, _FULL_NAMES[process.service], _HEALTH_TIMEOUT_S)

    def _spawn(self, service: str) -> ServiceProcess:
        flags = self._launch.of(service, self._targets)
        self._started_at[service] = time.monotonic()
        process = ServiceProcess(service, flags, self._environ, self._on_event, self._on_change)
        self._processes[service] = process
        return process

    def _end(self, services: Sequence[str]) -> None:
        """Ends services together; kills those that outlast the grace."""
        processes = [self._processes[s] for s in services if s in self._processes]
        for process in processes:
            process.terminate()
        deadline = time.monotonic() + self._stop_grace_s
        for process in processes:
            if not process.wait(max(0.0, deadline - time.monotonic())):
                process.kill()
                process.wait()

    def _on_change(self, process: ServiceProcess) -> None:
        """Called by a process from its own thread; for its end that is the last thing it does."""
        with self._changed:
            self._changed.notify_all()
            service = process.service
            if (
                process.exit_code is None
                or service not in self._targets
                or service in self._held
                or self._processes.get(service) is not process
                or self._stopping.is_set()
            ):
                return
        pause_s = self._next_pause(service) if self._restart else None
        self._on_event(ServiceDied(service, process.why_it_ended(), pause_s))
        if pause_s is not None and not self._stopping.wait(pause_s):
            self._start_again(process)

    def _next_pause(self, service: str) -> float:
        if time.monotonic() - self._started_at[service] > _LONG_LIFE_S:
            self._deaths[service] = 0
        deaths = self._deaths.get(service, 0)
        self._deaths[service] = deaths + 1
        return _RESTART_PAUSES_S[min(deaths, len(_RESTART_PAUSES_S) - 1)]

    def _start_again(self, dead: ServiceProcess) -> None:
        with self._changed:
            service = dead.service
            replaced = self._processes.get(service) is not dead
            if replaced or service in self._held or self._stopping.is_set():
                return
            process = self._spawn(service)
        try:
            self._await_ready(process, time.monotonic() + self._ready_timeout_s)
        except ClusterError:
            # Its end was told by its own thread, which goes on from here; one that neither ends
            # nor serves is ended, so that it does too.
            process.kill()


def _too_slow(process: ServiceProcess, limit_s: float) -> ClusterError:
    return ClusterError(f"{process.service} is not ready after {limit_s:g} s")


def _ignore(event: ClusterEvent) -> None:
    """Nobody wants to know."""
