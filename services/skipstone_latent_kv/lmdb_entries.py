"""Entries in LMDB and in memory, changed together; what ``LmdbStore`` is built on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

import lmdb

from skipstone_latent_kv.entry_table import EntryKey, EntryState, EntryTable
from skipstone_latent_kv.eviction_log import EvictionLog
from skipstone_latent_kv.eviction_policies import EvictionPolicy
from skipstone_latent_kv.group_commit import GroupCommitter, Operation, Outcome
from skipstone_latent_kv.latent_codec import decode
from skipstone_latent_kv.lmdb_environment import LmdbEnvironment, Transaction
from skipstone_latent_kv.lmdb_rescue import rescue
from skipstone_latent_kv.lmdb_rows import LmdbRows
from skipstone_latent_kv.record_format import SnapshotRecord
from skipstone_latent_kv.references import reference
from skipstone_shared.data_directory import is_disk_trouble
from skipstone_shared.errors import DataCorrupt, EntryNotFound, ResourceExhausted, SkipstoneError
from skipstone_shared.latents import checksum
from skipstone_shared.page_check import PageCheck
from skipstone_shared.stored_entries import EvictionKind, StoredEntry, StoredSnapshot
from skipstone_shared.structured_logging import get_logger

T = TypeVar("T")


class LmdbEntries:
    """Rows in LMDB, the table of entries in memory, and the log of removals.

    Every change is an operation that ``change`` runs on the one writing thread, inside a write
    transaction in which rows and table change together; a failed commit rolls back both. Reads take
    their own transaction from ``read``. Whether an entry is there is decided by the table, which
    snapshots it has by the rows.
    """

    def __init__(
        self,
        path: Path,
        *,
        policy: EvictionPolicy,
        ttl_s: float,
        event_history: int,
        sync: bool,
        max_batch: int,
        initial_map_bytes: int,
        page_check: PageCheck,
        clock: Callable[[], float],
    ) -> None:
        """Opens the directory and reads which entries there are.

        Args:
            path: Directory.
            policy: Which entries go first.
            ttl_s: Time to live of committed entries in seconds; 0 for none.
            event_history: Eviction events kept.
            sync: Whether a commit waits for an fsync.
            max_batch: Operations that may share a commit.
            initial_map_bytes: Address space to start with.
            page_check: When pages are looked at.
            clock: Seconds since the epoch.

        Raises:
            FailedPrecondition: the directory cannot be used; the message says why.
        """
        self._ttl_s = ttl_s
        self._clock = clock
        self._logger = get_logger(store="lmdb")
        self._removals: list[tuple[EvictionKind, str, str]] = []
        self.evicted_count = 0
        self.table = EntryTable(policy)
        try:
            self._env = LmdbEnvironment(path, initial_map_bytes, sync, page_check)
        except DataCorrupt as damage:
            rescue(path, damage)
            self._env = LmdbEnvironment(path, initial_map_bytes, sync)
        try:
            self.rows = LmdbRows(self._env)
            with self._env.read() as txn:
                self.log = EvictionLog(event_history, self.rows.events(txn))
                self._last_value_id = self.rows.last_value_id(txn)
                damaged = self._load(txn)
        except BaseException:
            self._env.close()
            raise
        self._committer = GroupCommitter(self._execute, max_batch)
        if damaged:
            self.change(lambda txn: self._drop_damaged(txn, damaged))

    def read(self) -> AbstractContextManager[Transaction]:
        """A read transaction; see ``LmdbEnvironment.read``."""
        return self._env.read()

    def change(self, operation: Callable[[Transaction], T], size_bytes: int = 0) -> T:
        """Runs an operation in the next write transaction and waits for its commit.

        Args:
            operation: Changes rows and table. It may run again after a rollback.
            size_bytes: About how many bytes it writes.

        Raises:
            ResourceExhausted: the disk is full or failing.
        """
        with _disk_trouble():
            return self._committer.run(operation, size_bytes)

    def find(self, key: EntryKey) -> EntryState | None:
        """The entry unless it is over."""
        state = self.table.get(key)
        return None if state is None or state.end(self._ttl_s, self._clock()) else state

    def require(self, key: EntryKey) -> EntryState:
        """The entry.

        Raises:
            EntryNotFound: there is none, or it is over.
        """
        state = self.find(key)
        if state is None:
            raise no_entry(key)
        return state

    def stored_entry(self, txn: Transaction, state: EntryState) -> StoredEntry:
        """The entry as stores answer it.

        Raises:
            DataCorrupt: a record of it is damaged.
        """
        return state.stored_entry(
            StoredSnapshot(reference(state.namespace, r.metadata, r.xxh3_64), r.metadata)
            for r in self.rows.snapshots(txn, state.key)
        )

    def value(self, txn: Transaction, record: SnapshotRecord) -> bytes:
        """A copy of the bytes of a snapshot.

        Raises:
            DataCorrupt: they do not match their checksum.
        """
        data = self.rows.value(txn, record.value_id)
        if len(data) != record.value_bytes or checksum(data) != record.value_xxh3_64:
            raise DataCorrupt("the bytes of a snapshot do not match their checksum")
        return data if record.encoded is None else decode(data, record.metadata.parts)

    def remove_corrupt(self, key: EntryKey, error: DataCorrupt) -> None:
        """Removes an entry in which something corrupt was read, unless it is sound by now."""

        def remove(txn: Transaction) -> None:
            if self.table.get(key) is None:
                return
            try:
                for record in self.rows.snapshots(txn, key):
                    self.value(txn, record)
            except DataCorrupt:
                self.remove(txn, key, EvictionKind.CORRUPT)

        self._logger.error("corrupt entry", namespace=key[0], entry_id=key[1], error=error.message)
        try:
            self.change(remove)
        except (lmdb.Error, ResourceExhausted) as failure:
            # Damage in LMDB's own pages or a full disk; the entry goes on reading as not there.
            self._logger.error("corrupt entry cannot be removed", error=str(failure))

    def sweep(self) -> int:
        """Removes what ended by lease or time to live, saves use times; returns how many ended."""

        def sweep(txn: Transaction) -> int:
            ended = self.remove_over(txn, self._ttl_s)
            for state in self.table.take_touched():
                self.rows.put_entry(txn, state)
            return ended

        ended = self.change(sweep)
        with _disk_trouble():
            self._env.flush()
        return ended

    def disk_bytes(self) -> int:
        """Bytes on disk."""
        return self._env.disk_bytes()

    def close(self) -> None:
        """Finishes what waits, ends all watches and gives the directory free."""
        try:
            self.sweep()
        finally:
            self._committer.close()
            self.log.close()
            self._env.close()

    # The following run inside an operation.

    def put(self, txn: Transaction, state: EntryState, used: bool = False) -> None:
        """Adds or replaces an entry; ``used`` as in ``EntryTable.put``."""
        self.table.put(state, used)
        self.rows.put_entry(txn, state)

    def adopt(self, txn: Transaction, state: EntryState) -> None:
        """Replaces an entry; see ``EntryTable.adopt``."""
        self.table.adopt(state)
        self.rows.put_entry(txn, state)

    def remove(self, txn: Transaction, key: EntryKey, kind: EvictionKind) -> None:
        """Removes an entry that is there, with all its snapshots."""
        self.table.remove(key)
        self.rows.delete_entry(txn, key)
        self._removals.append((kind, *key))

    def remove_over(self, txn: Transaction, ttl_s: float) -> int:
        """Removes all entries whose lease or time to live is over; returns how many."""
        over = self.table.over(ttl_s, self._clock())
        for state, kind in over:
            self.remove(txn, state.key, kind)
        return len(over)

    def live(self, txn: Transaction, key: EntryKey) -> EntryState | None:
        """The entry; one that is over is removed first."""
        state = self.table.get(key)
        if state is not None and (kind := state.end(self._ttl_s, self._clock())):
            self.remove(txn, key, kind)
            return None
        return state

    def next_value_id(self) -> int:
        """An id for the bytes of a snapshot that no other had."""
        self._last_value_id += 1
        return self._last_value_id

    def _execute(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Runs operations in one transaction; the map grows as often as they need it."""
        tried_again = False
        while True:
            try:
                return self._execute_once(operations)
            except lmdb.MapFullError:
                self._logger.info("map grown", map_bytes=self._env.grow())
            except lmdb.Error as error:
                if tried_again or not is_disk_trouble(error):
                    raise
                tried_again = True
                self._free_pages()

    def _free_pages(self) -> None:
        """Lets the next transaction use what the last one freed.

        LMDB does so from the next commit but one on. On a full disk there may never be one, so this
        makes it: it needs hardly any room.
        """
        with self._env.write() as txn:
            self.rows.put_format(txn)

    def _execute_once(self, operations: Sequence[Operation]) -> list[Outcome]:
        self._removals = []
        with self.table.transaction(), self._env.write() as txn:
            outcomes = [_attempt(operation, txn) for operation in operations]
            events = self.log.number(self._removals)
            self.rows.put_events(txn, events, self.log.capacity)
        self.log.publish(events)
        self.evicted_count += sum(event.kind is not EvictionKind.DELETED for event in events)
        return outcomes

    def _load(self, txn: Transaction) -> list[bytes]:
        """Fills the table; returns the rows that are damaged."""
        found = list(self.rows.entries(txn))
        self.table.load([state for _, state in found if state is not None])
        return [row for row, state in found if state is None]

    def _drop_damaged(self, txn: Transaction, rows: Sequence[bytes]) -> None:
        for row in rows:
            self.rows.delete_entry_row(txn, row)
            namespace, _, entry_id = row.decode("ascii", "replace").partition("\0")
            self._logger.error("corrupt entry", namespace=namespace, entry_id=entry_id)
            self._removals.append((EvictionKind.CORRUPT, namespace, entry_id))


@contextmanager
def _disk_trouble() -> Iterator[None]:
    """Tells errors of the disk, for which LMDB has no common class, from all others."""
    try:
        yield
    except lmdb.Error as error:
        if not is_disk_trouble(error):
            raise
        raise ResourceExhausted(
            f"the data directory cannot be written ({error}): its disk is full or failing; free "
            "space or lower quota_bytes"
        ) from error


def _attempt(operation: Operation, txn: Transaction) -> Outcome:
    """Runs one operation. An error of ours leaves rows and table consistent; others roll back."""
    try:
        return operation(txn), None
    except SkipstoneError as error:
        return None, error


def no_entry(key: EntryKey) -> EntryNotFound:
    """The error that there is no such entry."""
    return EntryNotFound(f"no entry {key[1]!r} in namespace {key[0]!r}")
