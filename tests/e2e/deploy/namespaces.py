"""Pods as processes in network namespaces, joined by a bridge.

Each pod has an address, a loopback and ports of its own, and reaches others by the bridge alone.
So nothing of the rendered variables is replaced but folders: it listens on 0.0.0.0 as in a
cluster, and what listens on loopback by mistake is found by nobody.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.e2e.deploy.pods import Pod, mounting
from tests.unit.deploy.rendered import Workload

_numbers = itertools.count(1)


def ip(*words: str) -> None:
    """Runs a command of iproute2.

    Raises:
        RuntimeError: It failed; with what it said.
    """
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Bridge:
    """A network of a release; this machine is in it too, for clients and probes."""

    def __init__(self) -> None:
        """Creates it.

        Raises:
            RuntimeError: This process may not.
        """
        number = next(_numbers)
        self.name = f"sks{os.getpid() % 1_000_000}-{number}"
        # Of the range for benchmarks (RFC 2544), which no machine has on its way to others.
        self._network = f"198.{18 + number % 2}.{os.getpid() % 256}"
        self._last = 1
        ip("link", "add", self.name, "type", "bridge")
        try:
            ip("address", "add", f"{self._network}.1/24", "dev", self.name)
            ip("link", "set", self.name, "up")
        except RuntimeError:
            self.close()
            raise

    def next_address(self) -> str:
        """An address that no pod has had."""
        self._last += 1
        return f"{self._network}.{self._last}"

    def close(self) -> None:
        """Removes it."""
        ip("link", "delete", self.name)


@contextmanager
def bridge() -> Iterator[Bridge]:
    """A network; skips where there can be none."""
    if shutil.which("ip") is None:
        pytest.skip("NOT TESTED: iproute2 is missing (apt-get install iproute2)")
    try:
        made = Bridge()
    except RuntimeError as error:
        pytest.skip(f"NOT TESTED: network namespaces need root or CAP_NET_ADMIN: {error}")
    try:
        yield made
    finally:
        made.close()


class NamespacedPod(Pod):
    """One pod, in a network namespace of its own."""

    def __init__(
        self,
        workload: Workload,
        folder: Path,
        network: Bridge,
        secrets: Mapping[str, Path] | None = None,
    ) -> None:
        """Starts nothing yet; see `Pod`."""
        super().__init__(workload, folder, secrets)
        self.address = network.next_address()
        self._bridge = network.name
        self._namespace = f"{network.name}-{self.address.rpartition('.')[2]}"
        self._exists = False

    def start(self, hosts: Path) -> None:
        """Makes its namespace, and starts the process in it."""
        name, outside = self._namespace, self._namespace.replace("sks", "v")
        ip("netns", "add", name)
        self._exists = True
        ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("link", "set", outside, "master", self._bridge, "up")
        ip("-netns", name, "address", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-netns", name, "link", "set", device, "up")
        super().start(hosts)

    def _in_its_own_world(self, hosts: Path, command: Sequence[str]) -> list[str]:
        # Its mounts are its own there too.
        return ["ip", "netns", "exec", self._namespace, *mounting(hosts, command)]

    def _variables(self) -> dict[str, str]:
        name = f"SKIPSTONE_{self.workload.settings_class.service_name}_HOST".upper()
        return {**super()._variables(), name: self.workload.own_environment[name]}

    def stop(self) -> None:
        """Asks it to end; see `Pod`."""
        super().stop()
        self._remove()

    def kill(self) -> None:
        """Ends it at once."""
        super().kill()
        self._remove()

    def _remove(self) -> None:
        if self._exists:
            ip("netns", "delete", self._namespace)
            self._exists = False
