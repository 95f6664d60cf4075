"""Redis servers of a benchmark, one or a cluster, that keep nothing on disk."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import redis

from server_process import ServerProcess, wait_until

_MASTERS = 3


@contextmanager
def running_redis(directory: Path) -> Iterator[tuple[Sequence[str], Sequence[int]]]:
    """Runs one server; yields the flags of a latent_kv that uses it, and its process id."""
    with ExitStack() as stack:
        port, pid = _start(directory, stack)
        yield _flags([port]), [pid]


@contextmanager
def running_cluster(directory: Path) -> Iterator[tuple[Sequence[str], Sequence[int]]]:
    """Runs a cluster of three masters; yields the flags and their process ids."""
    with ExitStack() as stack:
        servers = []
        for i in range(_MASTERS):
            flags = ("--cluster-enabled", "yes", "--cluster-port", str(_free_port()))
            servers.append(_start(directory / str(i), stack, *flags))
        places = [f"127.0.0.1:{port}" for port, _ in servers]
        subprocess.run(
            ["redis-cli", "--cluster", "create", *places, "--cluster-yes"],
            check=True,
            capture_output=True,
        )
        yield _flags([port for port, _ in servers]), [pid for _, pid in servers]


def _flags(ports: Sequence[int]) -> list[str]:
    urls = ",".join(f"redis://127.0.0.1:{port}" for port in ports)
    return ["--store", "redis", "--redis-urls", urls]


def _start(directory: Path, stack: ExitStack, *flags: str) -> tuple[int, int]:
    directory.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory)]
    process = ServerProcess(
        [*command, "--save", "", "--appendonly", "no", *flags], directory / "redis.log"
    )
    stack.callback(process.end, kill=True)
    client = stack.enter_context(redis.Redis(port=port))

    def answers() -> bool:
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False

    wait_until(answers, "Redis answers")
    return port, process.pid


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
