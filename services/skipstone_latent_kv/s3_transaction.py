"""What an operation on a store in S3 works with: the entries as they are, and what it changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from skipstone_latent_kv.entry_table import EntryKey, EntryState, EntryTable, use_elsewhere
from skipstone_latent_kv.record_format import SnapshotRecord
from skipstone_latent_kv.references import reference
from skipstone_latent_kv.s3_records import (
    Change,
    Rows,
    packed_entry,
    packed_snapshot,
    unpacked_entry,
    unpacked_snapshot,
)
from skipstone_latent_kv.s3_uses import Use
from skipstone_latent_kv.s3_values import ValueName
from skipstone_shared.errors import Unavailable
from skipstone_shared.stored_entries import EvictionKind, StoredEntry, StoredSnapshot


@dataclasses.dataclass(frozen=True, slots=True)
class SeenEntry:
    """An entry as readers see it: as of the last record, never of one that is being put."""

    state: EntryState
    rows: Rows

    def record(self, step_index: int) -> SnapshotRecord | None:
        """The snapshot at a step, None when there is none."""
        row = self.rows.get(step_index)
        return None if row is None else unpacked_snapshot(self.state.key, step_index, row)

    def value_names(self) -> list[ValueName]:
        """The values of its snapshots."""
        return _value_names(self.state.key, self.rows)


class S3Transaction:
    """Changes table and rows for all operations of one record; for one thread.

    The table is changed at once, inside a transaction of its own; rows only here, until ``seen``
    says what they have become.
    """

    def __init__(
        self,
        table: EntryTable,
        seen: Mapping[EntryKey, SeenEntry],
        undeleted: Collection[ValueName],
    ) -> None:
        """Begins.

        Args:
            table: The entries.
            seen: The same with their rows.
            undeleted: Values that no entry has any more and that may still be in S3.
        """
        self.table = table
        self.changes: list[Change] = []
        self.removals: list[tuple[EvictionKind, str, str]] = []
        self.garbage: list[ValueName] = []
        """Values that no entry has any more after this."""
        self.gone: list[ValueName] = []
        """Those of which a process says that S3 has deleted them."""
        self.unreadable = False
        """Whether a process says that it cannot read a record."""
        self.saves_uses = False
        """Whether reads and deletions are worth a record of their own."""
        self._before = seen
        self._undeleted = undeleted
        self._rows: dict[EntryKey, Rows] = {}
        self._touched: set[EntryKey] = set()

    def rows(self, key: EntryKey) -> Rows:
        """The rows of an entry."""
        if key in self._rows:
            return self._rows[key]
        entry = self._before.get(key)
        return entry.rows if entry else {}

    def record(self, key: EntryKey, step_index: int) -> SnapshotRecord | None:
        """A snapshot of an entry, None when there is none."""
        row = self.rows(key).get(step_index)
        return None if row is None else unpacked_snapshot(key, step_index, row)

    def value_names(self, key: EntryKey) -> list[ValueName]:
        """The values of an entry's snapshots."""
        return _value_names(key, self.rows(key))

    def stored_entry(self, state: EntryState) -> StoredEntry:
        """An entry as stores answer it."""
        records = [
            unpacked_snapshot(state.key, step, row)
            for step, row in sorted(self.rows(state.key).items())
        ]
        return state.stored_entry(
            StoredSnapshot(reference(state.namespace, r.metadata, r.xxh3_64), r.metadata)
            for r in records
        )

    def put(self, state: EntryState, used: bool = False) -> None:
        """Adds or replaces an entry; ``used`` as in ``EntryTable.put``."""
        self.table.put(state, used)
        self._note(Change("put", state.key, (packed_entry(state), used)))

    def put_snapshot(self, key: EntryKey, record: SnapshotRecord) -> None:
        """Adds or replaces a snapshot; the bytes of the one before are garbage.

        The one before may be this very one, where a put that seemed lost has landed after all.
        """
        step = record.metadata.step_index
        self._set_row(key, step, record.value_id, packed_snapshot(key, record))
        self._note(Change("snapshot", key, (step, self._rows[key][step])))

    def adopt(self, state: EntryState) -> None:
        """Replaces an entry; see ``EntryTable.adopt``."""
        self.table.adopt(state)
        self._note(Change("adopt", state.key, (packed_entry(state),)))

    def remove(self, key: EntryKey, kind: EvictionKind) -> None:
        """Removes an entry that is there; the bytes of its snapshots are garbage."""
        self._remove(key, kind)
        self._note(Change("remove", key, (kind.value,)))

    def remove_lost(self, name: ValueName) -> bool:
        """Removes the entry that has a lost value; False when it has that value no more."""
        has_it = self.table.get(name.entry) is not None and name in self.value_names(name.entry)
        if has_it:
            self.remove(name.entry, EvictionKind.CORRUPT)
        return has_it

    def count_uses(self, uses: Sequence[Use]) -> list[Change]:
        """Counts reads; returns the changes that say so, which alone need no record."""
        changes = []
        for key, time, reads in uses:
            if self._count(key, time, reads):
                changes.append(Change("use", key, (time, reads)))
        return changes

    def tell_gone(self, names: Sequence[ValueName]) -> list[Change]:
        """Notes what S3 has deleted; returns the changes that say so, which need no record."""
        self.gone += names
        by_entry: dict[EntryKey, list[int]] = {}
        for name in names:
            by_entry.setdefault(name.entry, []).append(name.value_id)
        return [Change("gone", key, (value_ids,)) for key, value_ids in by_entry.items()]

    def delete_again(
        self, namespace: str, entry_id: str | None = None, at_most: int | None = None
    ) -> None:
        """Values of removed entries that may still be in S3 are garbage once more.

        Args:
            namespace: That of the entries.
            entry_id: One of them; None for all.
            at_most: How many the caller has time for.

        Raises:
            Unavailable: there are more.
        """
        told = set(self.gone)
        found = [
            name
            for name in self._undeleted
            if name.entry[0] == namespace
            and entry_id in (None, name.entry[1])
            and name not in told
            and self.table.get(name.entry) is None
        ]
        if at_most is not None and len(found) > at_most:
            raise Unavailable(f"{len(found)} values of removed entries are being deleted")
        self.garbage += found

    def apply(self, changes: Sequence[Change]) -> None:
        """Makes changes that a record tells; whoever put it deletes the garbage.

        Raises:
            DataCorrupt: one of them is damaged.
        """
        for change in changes:
            self._apply(change)
            self._touched.add(change.key)

    def seen(self) -> dict[EntryKey, SeenEntry | None]:
        """Every entry that was changed as it has become, None for one that has gone."""
        after: dict[EntryKey, SeenEntry | None] = {}
        for key in self._touched:
            state = self.table.get(key)
            after[key] = None if state is None else SeenEntry(state, self.rows(key))
        return after

    def _note(self, change: Change) -> None:
        self.changes.append(change)
        self._touched.add(change.key)

    def _apply(self, change: Change) -> None:
        key, state = change.key, self.table.get(change.key)
        match change.what:
            case "put":
                packed, used = change.rest
                told = unpacked_entry(key, packed)
                if state is not None:
                    # Numbers of uses are those of this process.
                    told = dataclasses.replace(
                        told, first_use=state.first_use, last_use=state.last_use
                    )
                self.table.put(told, used)
            case "snapshot":
                step, row = change.rest
                self._set_row(key, step, unpacked_snapshot(key, step, row).value_id, row)
            case "use":
                self._count(key, *change.rest)
            case "adopt":
                told = unpacked_entry(key, change.rest[0])
                self.table.adopt(
                    dataclasses.replace(
                        told,
                        first_use=use_elsewhere(told.create_time),
                        last_use=use_elsewhere(told.access_time),
                    )
                )
            case "remove":
                if state is not None:
                    self._remove(key, EvictionKind(change.rest[0]))
            case "gone":
                self.gone += [ValueName(key, value_id) for value_id in change.rest[0]]
            case "unreadable":
                self.unreadable = True

    def _count(self, key: EntryKey, time: float, reads: int) -> bool:
        state = self.table.get(key)
        if state is None:
            return False
        read = dataclasses.replace(
            state,
            access_time=max(state.access_time, time),
            read_count=state.read_count + reads,
        )
        self.table.put(read, used=True)
        self._touched.add(key)
        return True

    def _set_row(self, key: EntryKey, step: int, value_id: int, row: bytes) -> None:
        before = self.record(key, step)
        if before is not None and before.value_id != value_id:
            self.garbage.append(ValueName(key, before.value_id))
        self._rows[key] = {**self.rows(key), step: row}

    def _remove(self, key: EntryKey, kind: EvictionKind) -> None:
        self.garbage += self.value_names(key)
        self.table.remove(key)
        self._rows[key] = {}
        self.removals.append((kind, *key))


def _value_names(key: EntryKey, rows: Rows) -> list[ValueName]:
    return [
        ValueName(key, unpacked_snapshot(key, step, row).value_id) for step, row in rows.items()
    ]
