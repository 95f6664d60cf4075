"""The bytes of snapshots in Redis: one hash per value, in chunks, with a head that says what it is.

A value is the hash ``PREFIX:{NAMESPACE/ENTRY}:VALUE``. Its field ``head`` is a snapshot record
(``record_format``), ``0``, ``1``, ... are the bytes. What stands in braces decides the slot, so all
values of an entry are on the same server of a cluster.

One key per value, since Redis evicts and expires whole keys: what it drops by itself is a value,
never a part of one. Chunks, since a server serves nobody else while it handles one command.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from skipstone_latent_kv.record_format import SnapshotRecord, decode_snapshot, encode_snapshot
from skipstone_latent_kv.redis_errors import redis_trouble
from skipstone_latent_kv.redis_servers import RedisServers
from skipstone_shared.errors import DataCorrupt
from skipstone_shared.latents import checksum

_CHUNK_BYTES = 1 << 20
_WINDOW_CHUNKS = 8
"""Chunks sent or asked for at once. The library copies all of them, and a server answers all that
one client has sent in a row: 8 MiB take it about 4 ms."""


@dataclasses.dataclass(frozen=True, slots=True)
class ValueName:
    """Where a value is: its entry, and an id that no other value ever had."""

    namespace: str
    entry_id: str
    value_id: str

    def __str__(self) -> str:
        """The name as the catalog keeps it."""
        return f"{self.namespace}/{self.entry_id} {self.value_id}"

    @classmethod
    def parse(cls, text: str) -> ValueName:
        """The name that was written so."""
        entry, _, value_id = text.partition(" ")
        namespace, _, entry_id = entry.partition("/")
        return cls(namespace, entry_id, value_id)


class ValueLost(DataCorrupt):
    """A value is not there, in part or at all, or is damaged."""


class RedisValues:
    """Reads, writes and deletes values; what refers to them is the catalog's business."""

    def __init__(self, servers: RedisServers, prefix: str) -> None:
        """Creates the values.

        Args:
            servers: Where they are.
            prefix: Beginning of all keys.
        """
        self._servers = servers
        self._prefix = prefix

    def key(self, name: ValueName) -> str:
        """The key of a value."""
        return f"{self._prefix}:{{{name.namespace}/{name.entry_id}}}:{name.value_id}"

    def name(self, key: str) -> ValueName | None:
        """The value that has a key; None when it is the key of something else."""
        tag, _, value_id = key.removeprefix(f"{self._prefix}:{{").partition("}:")
        namespace, slash, entry_id = tag.partition("/")
        return ValueName(namespace, entry_id, value_id) if slash and value_id else None

    def write(self, name: ValueName, record: SnapshotRecord, data: memoryview) -> None:
        """Writes a value.

        Raises:
            ResourceExhausted: Redis is full.
            Unavailable: it does not answer; part of the value may be there.
        """
        key = self.key(name)
        head = encode_snapshot(str(name).encode(), record)
        commands: list[tuple[Any, ...]] = [("HSET", key, "head", head)]
        commands += (
            ("HSET", key, str(i), data[start : start + _CHUNK_BYTES])
            for i, start in enumerate(range(0, len(data), _CHUNK_BYTES))
        )
        for first in range(0, len(commands), _WINDOW_CHUNKS):
            for answer in self._servers.batch(commands[first : first + _WINDOW_CHUNKS]):
                _raise_error(answer)

    def read(self, name: ValueName, size_bytes: int) -> tuple[SnapshotRecord, memoryview]:
        """A value as it was written; its checksum has been verified.

        Args:
            name: Which one.
            size_bytes: How many bytes it has.

        Raises:
            ValueLost: it is not there, or is damaged.
        """
        key = self.key(name)
        fields = ["head", *map(str, range(-(-size_bytes // _CHUNK_BYTES)))]
        data = np.empty(size_bytes, np.uint8).data
        head: bytes = b""
        filled = 0
        for first in range(0, len(fields), _WINDOW_CHUNKS):
            window = fields[first : first + _WINDOW_CHUNKS]
            chunks = self._answers([("HGET", key, field) for field in window], name)
            if first == 0:
                head = chunks.pop(0)
            for chunk in chunks:
                end = filled + len(chunk)
                if end > size_bytes:
                    raise ValueLost(f"value {name} has more than {size_bytes} bytes")
                data[filled:end] = chunk
                filled = end
        record = _decoded(name, head)
        if filled != size_bytes or checksum(data) != record.value_xxh3_64:
            raise ValueLost(f"the bytes of value {name} do not match their checksum")
        return record, data

    def heads(self, names: Sequence[ValueName]) -> list[SnapshotRecord | None]:
        """What values are, without their bytes; None for one that is not there or damaged."""
        if not names:
            return []
        records: list[SnapshotRecord | None] = []
        commands = [("HGET", self.key(name), "head") for name in names]
        for name, answer in zip(names, self._servers.batch(commands), strict=True):
            _raise_error(answer)
            try:
                records.append(_decoded(name, answer) if answer is not None else None)
            except ValueLost:
                records.append(None)
        return records

    def missing(self, names: Sequence[ValueName]) -> list[ValueName]:
        """Those that are not there."""
        if not names:
            return []
        answers = self._servers.batch([("EXISTS", self.key(name)) for name in names])
        for answer in answers:
            _raise_error(answer)
        return [name for name, there in zip(names, answers, strict=True) if not there]

    def delete(self, names: Iterable[ValueName]) -> None:
        """Deletes values, those of an entry at once."""
        by_entry: dict[tuple[str, str], list[str]] = {}
        for name in names:
            by_entry.setdefault((name.namespace, name.entry_id), []).append(self.key(name))
        if by_entry:
            for answer in self._servers.batch([("UNLINK", *keys) for keys in by_entry.values()]):
                _raise_error(answer)

    def _answers(self, commands: Sequence[tuple[str, ...]], name: ValueName) -> list[bytes]:
        answers = self._servers.batch(commands)
        for answer in answers:
            _raise_error(answer)
            if answer is None:
                raise ValueLost(f"value {name} is not in Redis, or not whole")
        return answers


def _decoded(name: ValueName, head: bytes) -> SnapshotRecord:
    try:
        return decode_snapshot(str(name).encode(), head)
    except DataCorrupt as error:
        raise ValueLost(f"the head of value {name}: {error.message}") from error


def _raise_error(answer: object) -> None:
    if isinstance(answer, Exception):
        with redis_trouble():
            raise answer
