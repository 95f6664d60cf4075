"""One Redis server, or the servers of a Redis Cluster, behind the same calls."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import redis
from redis.exceptions import (
    AskError,
    ClusterDownError,
    ReadOnlyError,
    SlotNotCoveredError,
    TryAgainError,
)

from skipstone_latent_kv.redis_errors import ScriptMissing, redis_trouble
from skipstone_shared.errors import Unavailable

Command = Sequence[Any]
"""A command and its arguments; the second word is the key that says which server has it."""

Client = Any
"""A client of redis-py, whose answers have no useful types: each may be awaitable."""


class RedisServers(Protocol):
    """Runs commands on the server that has their key.

    Any thread may call. Nothing is tried twice, except where a cluster says that a key has moved:
    whether a command that got no answer was carried out cannot be known, and who calls the service
    retries ``Unavailable``. Errors are those of ``redis_trouble``.
    """

    @property
    def engine(self) -> str:
        """``redis`` or ``redis-cluster``."""
        ...

    def execute(self, *command: Any) -> Any:
        """Runs one command; its second word is its key, or ``EVALSHA`` and ``EVAL`` name one."""
        ...

    def batch(self, commands: Sequence[Command]) -> list[Any]:
        """Runs commands at once, each on the server of its key; an answer per command.

        Not a transaction. An error that is about one command is in its place, as an exception.
        """
        ...

    def masters(self) -> dict[str, Client]:
        """A client of redis-py for each server that takes writes, by the server's name."""
        ...

    def close(self) -> None:
        """Closes all connections."""
        ...


class SingleServer:
    """One server."""

    engine = "redis"

    def __init__(self, client: Client) -> None:
        """Takes over a client.

        Args:
            client: A ``redis.Redis``.
        """
        self._client = client

    def execute(self, *command: Any) -> Any:
        """See ``RedisServers``."""
        with redis_trouble():
            try:
                return self._client.execute_command(*command)
            except ReadOnlyError:
                self._drop_connections()
                raise

    def batch(self, commands: Sequence[Command]) -> list[Any]:
        """See ``RedisServers``."""
        with redis_trouble():
            answers = _pipeline(self._client, commands)
            if any(isinstance(answer, ReadOnlyError) for answer in answers):
                self._drop_connections()
            return answers

    def masters(self) -> dict[str, Client]:
        """See ``RedisServers``."""
        return {"": self._client}

    def close(self) -> None:
        """See ``RedisServers``."""
        self._client.close()

    def _drop_connections(self) -> None:
        """Lets the next call ask for the address anew: its name leads to another server by now."""
        self._client.connection_pool.disconnect()


class ClusterServers:
    """The servers of a cluster, as they are now."""

    engine = "redis-cluster"

    def __init__(self, client: Client) -> None:
        """Takes over a client.

        Args:
            client: A ``redis.cluster.RedisCluster`` without retries.
        """
        self._client = client

    def execute(self, *command: Any) -> Any:
        """See ``RedisServers``."""
        with redis_trouble(), self._fresh_slots():
            return self._client.execute_command(*command)

    def batch(self, commands: Sequence[Command]) -> list[Any]:
        """See ``RedisServers``."""
        answers: list[Any] = [None] * len(commands)
        with redis_trouble(), self._fresh_slots():
            by_node: dict[str, list[int]] = {}
            for i, command in enumerate(commands):
                by_node.setdefault(self._client.get_node_from_key(command[1]).name, []).append(i)
            for name, places in by_node.items():
                found = self._batch_on(name, [commands[i] for i in places])
                for i, answer in zip(places, found, strict=True):
                    answers[i] = answer
        return answers

    def masters(self) -> dict[str, Client]:
        """See ``RedisServers``."""
        return {
            node.name: self._client.get_redis_connection(node)
            for node in self._client.get_primaries()
        }

    def close(self) -> None:
        """See ``RedisServers``."""
        self._client.close()

    @contextmanager
    def _fresh_slots(self) -> Iterator[None]:
        """Asks the cluster anew where a slot is that had no server; the library does not."""
        try:
            yield
        except SlotNotCoveredError:
            self._client.nodes_manager.initialize()
            raise

    def _batch_on(self, name: str, commands: Sequence[Command]) -> list[Any]:
        """Runs commands on one node; what has moved is run where it is now, one by one.

        Not redis-py's cluster pipeline: on a node that hangs it waits once per command.
        """
        nodes = self._client.nodes_manager
        node = self._client.get_node(node_name=name)
        if node is None:
            raise Unavailable(f"the Redis Cluster no longer has {name}")
        try:
            answers = _pipeline(self._client.get_redis_connection(node), commands)
        except (redis.ConnectionError, redis.TimeoutError):
            nodes.initialize(last_failed_node_name=name)
            raise
        for i, answer in enumerate(answers):
            if isinstance(answer, AskError | TryAgainError):  # MovedError is an AskError.
                answers[i] = self._client.execute_command(*commands[i])
            elif isinstance(answer, ClusterDownError):
                nodes.initialize()
                raise answer
        return answers


class Script:
    """A Lua script that Redis keeps; sent whole only to a server that does not have it yet."""

    def __init__(self, servers: RedisServers, text: str) -> None:
        """Prepares the script.

        Args:
            servers: Where it runs.
            text: Its text.
        """
        self._servers = servers
        self._text = text
        # Not a secret: the name that Redis gives a script.
        self._sha1 = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    def __call__(self, keys: Sequence[str], *arguments: Any) -> Any:
        """Runs the script on the server that has the keys, which share a slot."""
        try:
            return self._servers.execute("EVALSHA", self._sha1, len(keys), *keys, *arguments)
        except ScriptMissing:
            return self._servers.execute("EVAL", self._text, len(keys), *keys, *arguments)


def _pipeline(client: Client, commands: Sequence[Command]) -> list[Any]:
    with client.pipeline(transaction=False) as pipeline:
        for command in commands:
            pipeline.execute_command(*command)
        answers: list[Any] = pipeline.execute(raise_on_error=False)
        return answers
