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
import contextlib
import dataclasses
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    some_time,
    unframe,
    whole_number,
)
from skipstone_latent_kv.s3_values import ValueName
from skipstone_shared.errors import DataCorrupt, ResourceExhausted
from skipstone_shared.stored_entries import EvictionEvent, EvictionKind

_RECORD_VERSION = 1
_CHECKPOINT_VERSION = 2
"""Version 1 begins with the list of events, or already with an object; programs that know only the
list refuse version 2."""

LARGEST_RECORD = 512 << 20
"""Bytes of the largest record of changes, and of the largest line of a checkpoint, as JSON: room
for millions of removals at once. Checkpoints are as large as the entries they tell of."""
_STEPS = _READS = 1 << 32
"""Above all numbers of steps, and of reads that one record counts."""
_PIECE = 1 << 20
"""Bytes of JSON of a checkpoint that are unpacked at a time."""

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
    """The record with a number; ``writer`` makes it differ from those of other processes.

    Raises:
        ResourceExhausted: it is larger than any reader takes.
    """
    text = _json({"writer": writer, "changes": [_change_out(c) for c in changes]})
    if len(text) > LARGEST_RECORD:
        raise ResourceExhausted(
            f"so many changes at once make a record of {len(text)} bytes, and {LARGEST_RECORD} is "
            "the most: remove or adopt fewer entries at a time"
        )
    return _pack(number, _RECORD_VERSION, text)


def decode_changes(number: int, data: bytes | memoryview) -> list[Change]:
    """The changes of the record with a number.

    Raises:
        DataCorrupt: it is damaged.
    """
    unpacker = zlib.decompressobj()
    body = _unframe(number, _RECORD_VERSION, data)
    with _nonsense_is_corrupt():
        text = unpacker.decompress(body, LARGEST_RECORD)
        if not unpacker.eof:
            raise DataCorrupt(f"a record is cut, or has more than {LARGEST_RECORD} bytes")
        return [_change_in(*fields) for fields in json.loads(text)["changes"]]


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
    return _pack(number, _CHECKPOINT_VERSION, "\n".join(lines))


def decode_checkpoint(number: int, data: bytes | memoryview) -> Checkpoint:
    """The checkpoint after the record with a number, in any form that was ever written.

    Raises:
        DataCorrupt: it is damaged, or of a later version.
    """
    lines = _lines(_unframe(number, _CHECKPOINT_VERSION, data))
    with _nonsense_is_corrupt():
        first = json.loads(next(lines))
        if isinstance(first, list):
            first = {"events": first, "undeleted": []}
        return Checkpoint(
            [_entry_in(*json.loads(line)) for line in lines],
            [
                EvictionEvent(whole_number(sequence), EvictionKind(kind), *_key(*key))
                for sequence, kind, *key in first["events"]
            ],
            [
                ValueName(_key(*key), whole_number(value_id))
                for *key, value_id in first["undeleted"]
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


def _change_in(what: Any, namespace: Any, entry_id: Any, *rest: Any) -> Change:
    """A change of which every part is of its type: whoever applies it finds no nonsense."""
    key = _key(namespace, entry_id)
    match what, rest:
        case "put", (str(entry), bool(used)):
            return Change("put", key, (_bytes(entry), used))
        case "snapshot", (step, str(row)):
            return Change("snapshot", key, (whole_number(step, _STEPS), _bytes(row)))
        case "use", (int() | float() as time, reads):
            return Change("use", key, (some_time(time), whole_number(reads, _READS)))
        case "adopt", (str(entry),):
            return Change("adopt", key, (_bytes(entry),))
        case "remove", (kind,):
            return Change("remove", key, (EvictionKind(kind).value,))
        case "gone", (list(value_ids),):
            return Change("gone", key, (list(map(whole_number, value_ids)),))
        case "unreadable", (lacking,):
            return Change("unreadable", key, (whole_number(lacking),))
    raise DataCorrupt(f"a record tells of a change {what!r} that is none")


def _entry_in(namespace: Any, entry_id: Any, entry: str, rows: Any) -> tuple[EntryState, Rows]:
    key = _key(namespace, entry_id)
    by_step = {whole_number(step, _STEPS): _bytes(row) for step, row in rows}
    return unpacked_entry(key, _bytes(entry)), by_step


def _key(namespace: Any, entry_id: Any) -> EntryKey:
    key = namespace, entry_id
    _entry_row(key)  # Not everything in JSON is text that can be one.
    return key


def unpacked_entry(key: EntryKey, data: bytes) -> EntryState:
    """The entry that ``packed_entry`` packed."""
    return decode_entry(_entry_row(key), data)


def _pack(number: int, version: int, text: str) -> bytes:
    return frame(str(number).encode(), version, zlib.compress(text.encode(), 1))


@contextlib.contextmanager
def _nonsense_is_corrupt() -> Iterator[None]:
    """As in ``record_format``, and for what cannot be unpacked."""
    try:
        with nonsense_is_corrupt():
            yield
    except zlib.error as error:
        raise DataCorrupt(f"a record cannot be read: {error}") from error


def _unframe(number: int, newest: int, data: bytes | memoryview) -> bytes:
    version, body = unframe(str(number).encode(), data)
    if not 1 <= version <= newest:
        raise DataCorrupt(f"version {version}, this program knows those up to {newest}")
    return body


def _lines(body: bytes) -> Iterator[bytes]:
    """The lines of what was compressed, unpacked little by little: it may say more than it is."""
    unpacker = zlib.decompressobj()
    packed, rest = body, b""
    while not unpacker.eof:
        piece = unpacker.decompress(packed, _PIECE)
        packed = unpacker.unconsumed_tail
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > LARGEST_RECORD or not (piece or packed or unpacker.eof):
            raise DataCorrupt(f"a checkpoint is cut, or a line is above {LARGEST_RECORD} bytes")
        yield from lines
    yield rest


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
