"""Pods as processes: what the chart renders, run on this machine.

Each pod has a loopback address of its own and a private view of /etc/hosts, in which the name of a
Service stands for the addresses of its pods, ready or not, as the manifests ask. So targets, ports,
commands and variables are theirs too; only the address to listen on and folders are replaced.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.e2e.processes import service_environment, wait_until
from tests.unit.deploy.rendered import Workload, render, workloads

START_TIMEOUT_S = 120.0
"""Several torch processes on a busy machine take long to import."""

_MOUNT = 'mount --bind "$0" /etc/hosts && exec "$@"'
_numbers = itertools.count(1)


def require_mounts() -> None:
    """Skips where no process may have files of its own: it takes root, or CAP_SYS_ADMIN."""
    command = ["unshare", "--mount", "mount", "--bind", "/etc/hosts", "/etc/hosts"]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(
            f"NOT TESTED: `unshare --mount` needs root (apt-get install util-linux): {error}"
        )


def mounting(hosts: Path, command: Sequence[str]) -> list[str]:
    """A command that mounts a file as /etc/hosts for itself, in whatever mounts it has."""
    return ["sh", "-c", _MOUNT, str(hosts), *command]


def with_hosts(hosts: Path, command: Sequence[str]) -> list[str]:
    """A command that sees a file as /etc/hosts."""
    return ["unshare", "--mount", *mounting(hosts, command)]


def own_address(number: int) -> str:
    """A loopback address of this test run alone: 127.0.0.1 is everyone's."""
    return f"127.{64 + os.getpid() % 64}.{number // 250}.{1 + number % 250}"


class Pod:
    """One pod of a workload."""

    def __init__(
        self, workload: Workload, folder: Path, secrets: Mapping[str, Path] | None = None
    ) -> None:
        """Starts nothing yet.

        Args:
            workload: What it is a pod of.
            folder: For its data and log.
            secrets: Folders by the name of the Secret that they stand for.
        """
        number = next(_numbers)
        self.address = own_address(number)
        self.workload = workload
        self._folder = folder
        self._secrets = secrets or {}
        self.log = folder / f"{workload.name}-{number}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, hosts: Path) -> None:
        """Starts the container's process, which sees `hosts` as /etc/hosts."""
        program, *words = self.workload.command
        command = [str(Path(sys.executable).parent / program), *words]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._in_its_own_world(hosts, command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=service_environment(**self._variables()),
            )

    def _in_its_own_world(self, hosts: Path, command: Sequence[str]) -> list[str]:
        """A command that sees a file as /etc/hosts."""
        return with_hosts(hosts, command)

    def _variables(self) -> dict[str, str]:
        """The variables of the manifest, on this machine."""
        prefix = f"SKIPSTONE_{self.workload.settings_class.service_name}_".upper()
        variables = self.workload.own_environment
        variables[prefix + "HOST"] = self.address
        folders = self._mounted_secrets()
        folders |= {
            mount["mountPath"]: self._folder
            for mount in self.workload.container["volumeMounts"]
            if mount["name"] == "data"
        }
        for variable, value in variables.items():
            for path, folder in folders.items():
                if value.startswith(f"{path}/"):
                    variables[variable] = str(folder) + value.removeprefix(path)
        return variables

    def _mounted_secrets(self) -> dict[str, Path]:
        """Folders by the path at which the manifest mounts a Secret."""
        secrets = {
            volume["name"]: volume["secret"]["secretName"]
            for volume in self.workload.pod["spec"]["volumes"]
            if "secret" in volume
        }
        return {
            mount["mountPath"]: self._secrets[secrets[mount["name"]]]
            for mount in self.workload.container["volumeMounts"]
            if mount["name"] in secrets
        }

    @property
    def target(self) -> str:
        """Where it serves."""
        return f"{self.address}:{self.workload.port}"

    def probe(self, name: str) -> bool:
        """Whether a probe of the manifest succeeds, asked as the kubelet does."""
        if "httpGet" in self.workload.container[name]:
            return self._probe_http(self.workload.container[name]["httpGet"])
        asked = self.workload.container[name]["grpc"]
        with grpc.insecure_channel(f"{self.address}:{asked['port']}") as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            try:
                answer = stub.Check(
                    health_pb2.HealthCheckRequest(service=asked["service"]), timeout=5.0
                )
            except grpc.RpcError:
                return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    def _probe_http(self, asked: Mapping[str, Any]) -> bool:
        """A kubelet does not look at whose certificate it is shown."""
        url = f"{asked['scheme'].lower()}://{self.address}:{asked['port']}{asked['path']}"
        try:
            return httpx.get(url, timeout=5.0, verify=False, trust_env=False).is_success
        except httpx.TransportError:
            return False

    def wait_ready(self) -> None:
        """Waits for the startup probe."""

        def started() -> bool:
            assert self.is_running, self.told()
            return self.probe("startupProbe")

        wait_until(started, f"{self.log.stem} starts", START_TIMEOUT_S)

    @property
    def is_running(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.poll() is None

    def told(self) -> str:
        """Its log."""
        return self.log.read_text(encoding="utf-8")

    def stop(self) -> None:
        """Asks it to end, and gives it what the manifest gives it.

        Raises:
            subprocess.TimeoutExpired: It would have been killed.
        """
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        left = self.workload.pod["spec"]["terminationGracePeriodSeconds"] - self.pre_stop_s
        code = self._process.wait(left)
        assert code == 0, self.told()

    @property
    def pre_stop_s(self) -> int:
        """Seconds between the end of its endpoint and its SIGTERM."""
        return int(self.workload.container["lifecycle"]["preStop"]["sleep"]["seconds"])

    def kill(self) -> None:
        """Ends it at once, if it runs."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()


class Release:
    """A release that runs: its pods, and the names of its Services."""

    def __init__(
        self,
        values: Mapping[str, Any],
        folder: Path,
        make_pod: Callable[[Workload, Path], Pod] = Pod,
    ) -> None:
        """Renders; starts nothing yet.

        Args:
            values: Of the chart.
            folder: For data and logs.
            make_pod: Makes a pod of a workload; by default a process.
        """
        self._folder = folder
        self._make_pod = make_pod
        self._hosts = folder / "hosts"
        self._hosts.touch()
        self.manifests = render(values)
        self.workloads = {found.key: found for found in workloads(self.manifests)}
        self.pods: dict[str, list[Pod]] = {key: [] for key in self.workloads}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for pod in itertools.chain(*self.pods.values()):
            pod.kill()

    def start_all(self) -> None:
        """Starts as many pods of every workload as the manifests say."""
        counts = {k: found.manifest["spec"]["replicas"] for k, found in self.workloads.items()}
        self._start(counts, self._make_pod)

    def scale_up(
        self, key: str, count: int = 1, make_pod: Callable[[Workload, Path], Pod] | None = None
    ) -> list[Pod]:
        """Starts more pods; they get calls as soon as clients look the name up again.

        Args:
            key: Of the workload.
            count: How many.
            make_pod: Makes one; by default they are as all others.
        """
        return self._start({key: count}, make_pod or self._make_pod)

    def stop(self, pod: Pod) -> None:
        """Ends a pod as Kubernetes does: preStop, SIGTERM, and then its name is gone."""
        time.sleep(pod.pre_stop_s)  # what the kubelet does, not a wait for something
        pod.stop()
        self._forget(pod)

    def kill(self, pod: Pod) -> None:
        """A node that dies: its name is gone afterwards."""
        pod.kill()
        self._forget(pod)

    def _start(
        self, counts: Mapping[str, int], make_pod: Callable[[Workload, Path], Pod]
    ) -> list[Pod]:
        created = [
            make_pod(self.workloads[key], self._folder)
            for key, count in counts.items()
            for _ in range(count)
        ]
        for pod in created:
            self.pods[pod.workload.key].append(pod)
        self._publish()
        for pod in created:
            pod.start(self._hosts)
        for pod in created:
            pod.wait_ready()
        return created

    def _forget(self, pod: Pod) -> None:
        self.pods[pod.workload.key].remove(pod)
        self._publish()

    def _publish(self) -> None:
        """Writes the addresses of all pods; in place, since the file is mounted elsewhere."""
        pods = itertools.chain(*self.pods.values())
        lines = [f"{pod.address} {' '.join(pod.workload.services)}\n" for pod in pods]
        self._hosts.write_text("".join(["127.0.0.1 localhost\n", *lines]), encoding="utf-8")

    def target(self, key: str) -> str:
        """The pods of a workload, for clients on this machine, which do not see their name."""
        return "ipv4:" + ",".join(pod.target for pod in self.pods[key])
