"""What stands in the log of a store in S3: records of changes, and checkpoints of everything.

Both are a frame (``record_format``) around compressed JSON, in a checkpoint a line per entry, under
the number of the record. In the JSON, entries and snapshots are records of ``record_format`` again,
so that their versions are those of the other stores. A record is a list of what happened to
entries, in order:

| what         | then                                                                      |
|--------------|---------------------------------------------------------------------------|
| `put`        | entry record, whether it was a use                                        |
| `snapshot`   | step, snapshot record                                                     |
| `use`        | time of the last read, reads                                              |
| `adopt`      | entry record                                                              |
| `remove`     | why                                                                       |
| `gone`       | ids of values that the entry has no more and that S3 has deleted          |
| `unreadable` | number of a record that its process cannot read; of no entry              |

Who knows what the record says that another process cannot read answers with a checkpoint.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from skipstone_latent_kv.entry_table import EntryKey, EntryState
from skipstone_latent_kv.record_format import (
    SnapshotRecord,
    decode_entry,
    decode_snapshot,
    encode_entry,
    encode_snapshot,
    frame,
    nonsense_is_corrupt,
    unframe,
)
from skipstone_latent_kv.s3_values import ValueName
from skipstone_shared.errors import DataCorrupt
from skipstone_shared.stored_entries import EvictionEvent, EvictionKind

_VERSION = 1

Rows = Mapping[int, bytes]
"""Snapshot records of an entry by their steps, as ``packed_snapshot`` makes them."""


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One thing that happens to an entry.

    Attributes:
        what: Which kind of thing.
        key: The entry.
        rest: What else there is to say, see the table above.
    """

    what: Literal["put", "snapshot", "use", "adopt", "remove", "gone", "unreadable"]
    key: EntryKey
    rest: tuple[Any, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything that a store knows after some record.

    Attributes:
        entries: All entries with their snapshots.
        events: The last removals.
        undeleted: Values that no entry has any more and that may still be in S3.
    """

    entries: Sequence[tuple[EntryState, Rows]] = ()
    events: Sequence[EvictionEvent] = ()
    undeleted: Sequence[ValueName] = ()


def encode_changes(number: int, writer: str, changes: Iterable[Change]) -> bytes:
    """The record with a number; ``writer`` makes it differ from those of other processes."""
    body = {"writer": writer, "changes": [_change_out(c) for c in changes]}
    return _pack(number, _json(body))


def decode_changes(number: int, data: bytes | memoryview) -> list[Change]:
    """The changes of the record with a number.

    Raises:
        DataCorrupt: it is damaged.
    """
    body = _unpack(number, data)
    with nonsense_is_corrupt():
        return [_change_in(*fields) for fields in json.loads(body)["changes"]]


def encode_checkpoint(number: int, checkpoint: Checkpoint) -> bytes:
    """The checkpoint after the record with a number; takes a while, on any thread."""
    first = {
        "events": [[e.sequence, e.kind.value, e.namespace, e.entry_id] for e in checkpoint.events],
        "undeleted": [[*name.entry, name.value_id] for name in checkpoint.undeleted],
    }
    # A line each: one text for all of them would hold CPython's lock for seconds.
    lines = [_json(first)]
    for state, rows in checkpoint.entries:
        packed = [[step, _text(row)] for step, row in rows.items()]
        lines.append(_json([*state.key, _text(packed_entry(state)), packed]))
    return _pack(number, "\n".join(lines))


def decode_checkpoint(number: int, data: bytes | memoryview) -> Checkpoint:
    """The checkpoint after the record with a number.

    Raises:
        DataCorrupt: it is damaged.
    """
    body = _unpack(number, data)
    with nonsense_is_corrupt():
        first, *entries = map(json.loads, body.split(b"\n"))
        return Checkpoint(
            [
                (
                    unpacked_entry((namespace, entry_id), _bytes(entry)),
                    {step: _bytes(row) for step, row in rows},
                )
                for namespace, entry_id, entry, rows in entries
            ],
            [
                EvictionEvent(sequence, EvictionKind(kind), namespace, entry_id)
                for sequence, kind, namespace, entry_id in first["events"]
            ],
            [
                ValueName((namespace, entry_id), value_id)
                for namespace, entry_id, value_id in first["undeleted"]
            ],
        )


def packed_entry(state: EntryState) -> bytes:
    """The record of an entry."""
    return encode_entry(_entry_row(state.key), state)


def packed_snapshot(key: EntryKey, record: SnapshotRecord) -> bytes:
    """The record of a snapshot; kept so, since its parts are many small objects otherwise."""
    return encode_snapshot(_snapshot_row(key, record.metadata.step_index), record)


def unpacked_snapshot(key: EntryKey, step_index: int, data: bytes) -> SnapshotRecord:
    """The snapshot that ``packed_snapshot`` packed."""
    return decode_snapshot(_snapshot_row(key, step_index), data)


def _change_out(change: Change) -> list[Any]:
    rest: list[Any] = [_text(r) if isinstance(r, bytes) else r for r in change.rest]
    return [change.what, *change.key, *rest]


def _change_in(what: Any, namespace: str, entry_id: str, *rest: Any) -> Change:
    key = namespace, entry_id
    match what:
        case "put":
            return Change(what, key, (_bytes(rest[0]), rest[1]))
        case "snapshot":
            return Change(what, key, (rest[0], _bytes(rest[1])))
        case "adopt":
            return Change(what, key, (_bytes(rest[0]),))
        case _:
            return Change(what, key, rest)


def unpacked_entry(key: EntryKey, data: bytes) -> EntryState:
    """The entry that ``packed_entry`` packed."""
    return decode_entry(_entry_row(key), data)


def _pack(number: int, text: str) -> bytes:
    return frame(str(number).encode(), _VERSION, zlib.compress(text.encode(), 1))


def _unpack(number: int, data: bytes | memoryview) -> bytes:
    version, body = unframe(str(number).encode(), data)
    if version != _VERSION:
        raise DataCorrupt(f"record version {version}, this program knows {_VERSION}")
    try:
        return zlib.decompress(body)
    except zlib.error as error:
        raise DataCorrupt(f"a record cannot be read: {error}") from error


def _json(body: object) -> str:
    return json.dumps(body, separators=(",", ":"))


def _entry_row(key: EntryKey) -> bytes:
    return "\0".join(key).encode()


def _snapshot_row(key: EntryKey, step_index: int) -> bytes:
    return _entry_row(key) + b"\0" + step_index.to_bytes(4, "big")


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)
