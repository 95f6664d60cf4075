"""Entries in memory as the log in S3 says they are; what ``S3Store`` is built on."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TypeVar

from skipstone_latent_kv.entry_table import EntryKey, EntryState, EntryTable
from skipstone_latent_kv.eviction_log import EvictionLog
from skipstone_latent_kv.eviction_policies import EvictionPolicy
from skipstone_latent_kv.group_commit import GroupCommitter, Operation, Outcome
from skipstone_latent_kv.s3_log import S3Log
from skipstone_latent_kv.s3_records import (
    Checkpoint,
    decode_changes,
    decode_checkpoint,
    encode_changes,
    encode_checkpoint,
)
from skipstone_latent_kv.s3_transaction import S3Transaction, SeenEntry
from skipstone_latent_kv.s3_uses import UnsavedUses, Use
from skipstone_latent_kv.s3_values import ValueName
from skipstone_shared.errors import DataCorrupt, EntryNotFound, SkipstoneError, Unavailable
from skipstone_shared.stored_entries import EvictionEvent, EvictionKind
from skipstone_shared.structured_logging import get_logger

T = TypeVar("T")

_GROUP_SIZE = 64
_TRIES = 100
"""Times that others may say what happens next before a change is given up."""


class _Undone(Exception):
    """Ends a transaction that is not to be; the outcomes when nothing was to be changed."""

    def __init__(self, outcomes: list[Outcome] | None) -> None:
        self.outcomes = outcomes


class S3Entries:
    """The entries of a store that several processes share through one log.

    All changes of the table are made on one thread: that of ``change``, which puts what operations
    did as the next record of the log. Was another process faster, its record is applied first and
    the operations run again. An operation that changes nothing is answered once it is certain that
    no record was missing when it ran, so every operation sees all that was acknowledged before.
    """

    def __init__(
        self,
        log: S3Log,
        *,
        policy: EvictionPolicy,
        ttl_s: float,
        event_history: int,
        clock: Callable[[], float],
        discard: Callable[[Sequence[ValueName]], None],
    ) -> None:
        """Reads which entries there are.

        Args:
            log: Says so.
            policy: Which entries go first.
            ttl_s: Time to live of committed entries in seconds; 0 for none.
            event_history: Eviction events kept.
            clock: Seconds since the epoch.
            discard: Deletes values that nothing refers to any more.

        Raises:
            Unavailable: S3 does not answer.
        """
        self._log = log
        self._policy = policy
        self._ttl_s = ttl_s
        self._clock = clock
        self._discard = discard
        self._writer = uuid.uuid4().hex
        self._logger = get_logger(store="s3")
        self._seen: dict[EntryKey, SeenEntry] = {}
        self._checkpointed = 0
        self.uses = UnsavedUses()
        self.table = EntryTable(policy)
        self.events = EvictionLog(event_history)
        self.evicted_count = 0
        self._load()
        self._committer = GroupCommitter(self._execute, _GROUP_SIZE)

    def seen(self, key: EntryKey) -> SeenEntry | None:
        """An entry as of the last record that this process knows, unless it is over."""
        entry = self._seen.get(key)
        if entry is None or entry.state.end(self._ttl_s, self._clock()):
            return None
        return entry

    def all_seen(self) -> list[SeenEntry]:
        """All entries as of one record that is as new as this call, those that are over too."""
        return self.change(lambda txn: list(self._seen.values()))

    def has_value(self, name: ValueName) -> bool:
        """Whether an entry, over or not, has a value as of the last record that is known."""
        entry = self._seen.get(name.entry)
        return entry is not None and name in entry.value_names()

    def refresh(self) -> None:
        """Waits until ``seen`` is as new as this call."""
        self.change(lambda txn: None)

    def change(self, operation: Callable[[S3Transaction], T]) -> T:
        """Runs an operation, waits until its changes are in the log, deletes what it replaced.

        Args:
            operation: Looks at entries and changes them. It may run several times.

        Raises:
            Unavailable: S3 does not answer. Whether the change was made shows later.
        """
        garbage: list[ValueName] = []

        def collected(txn: S3Transaction) -> T:
            before = len(txn.garbage)
            result = operation(txn)
            garbage[:] = txn.garbage[before:]
            return result

        result = self._committer.run(collected)
        if garbage:
            self._discard(garbage)
        return result

    def checkpoint(self, after_records: int) -> bool:
        """Puts a checkpoint if so many records have come since the last; returns whether."""
        if self._log.position - self._checkpointed < after_records:
            return False
        number, entries, events = self.change(
            lambda txn: (self._log.position, list(self._seen.values()), self.events.events)
        )
        checkpoint = Checkpoint([(entry.state, entry.rows) for entry in entries], events)
        self._log.checkpoint(number, encode_checkpoint(number, checkpoint))
        self._checkpointed = number
        return True

    def close(self) -> None:
        """Finishes what waits and ends all watches."""
        self._committer.close()
        self.events.close()

    # The following run inside an operation.

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
            raise EntryNotFound(f"no entry {key[1]!r} in namespace {key[0]!r}")
        return state

    def live(self, txn: S3Transaction, key: EntryKey) -> EntryState | None:
        """The entry; one that is over is removed first."""
        state = self.table.get(key)
        if state is not None and (kind := state.end(self._ttl_s, self._clock())):
            txn.remove(key, kind)
            return None
        return state

    def remove_over(self, txn: S3Transaction, ttl_s: float) -> int:
        """Removes all entries whose lease or time to live is over; returns how many."""
        over = self.table.over(ttl_s, self._clock())
        for state, kind in over:
            txn.remove(state.key, kind)
        return len(over)

    def sweep(self, txn: S3Transaction) -> int:
        """Removes what ended and saves reads; returns how many entries ended."""
        self._log.note()
        txn.saves_uses = True
        return self.remove_over(txn, self._ttl_s)

    # The following run on the thread of changes.

    def _execute(self, operations: Sequence[Operation]) -> list[Outcome]:
        try:
            for _ in range(_TRIES):
                if self._log.is_lost and self._log.was_passed():
                    self._load()
                uses = self.uses.take()
                outcomes = self._try(operations, uses)
                if outcomes is not None:
                    return outcomes
            raise Unavailable("other processes change the store all the time: try again")
        except SkipstoneError as error:
            # Of S3, and so of all of them: the committer would try each again alone.
            return [(None, error)] * len(operations)

    def _try(self, operations: Sequence[Operation], uses: Sequence[Use]) -> list[Outcome] | None:
        """The outcomes; None when the log went on meanwhile, so that they are to run again."""
        txn = S3Transaction(self.table, self._seen)
        saved = False
        try:
            with self.table.transaction():
                read = txn.count_uses(uses)
                outcomes = [_attempt(operation, txn) for operation in operations]
                if not (txn.changes or (read and txn.saves_uses)):
                    raise _Undone(outcomes)
                number = self._log.position + 1
                if not self._log.append(encode_changes(number, self._writer, read + txn.changes)):
                    raise _Undone(None)
            saved = True
        except _Undone as undone:
            return None if self._read_on() or self._log.is_lost else undone.outcomes
        finally:
            if not saved:
                self.uses.give_back(uses)
        self._publish(txn)
        return outcomes

    def _read_on(self) -> bool:
        """Applies the records that others have put; whether there were any."""
        found = False
        for number, body in self._log.read_on():
            self._apply(number, body)
            found = True
        return found

    def _apply(self, number: int, body: memoryview | None) -> None:
        txn = S3Transaction(self.table, self._seen)
        try:
            if body is None:
                raise DataCorrupt("it is not there")
            changes = decode_changes(number, body)
            with self.table.transaction():
                txn.apply(changes)
        except DataCorrupt as error:
            # Its entries are lost or stay; watchers reconcile, sweeps find the bytes.
            self._logger.error("record of the log is lost", number=number, error=error.message)
            lost = EvictionEvent(self.events.last_sequence + 1, EvictionKind.GAP)
            self.events.publish([lost])
            return
        self._publish(txn)

    def _publish(self, txn: S3Transaction) -> None:
        for key, entry in txn.seen().items():
            if entry is None:
                self._seen.pop(key, None)
            else:
                self._seen[key] = entry
        events = self.events.number(txn.removals)
        self.evicted_count += sum(event.kind is not EvictionKind.DELETED for event in events)
        self.events.publish(events)

    def _load(self) -> None:
        """Begins with the newest checkpoint and applies the records after it."""
        number, checkpoint = self._newest_checkpoint()
        table = EntryTable(self._policy)
        table.load([state for state, _ in checkpoint.entries])
        self.table = table
        # Not the states of the checkpoint: the table has numbered their uses.
        self._seen = {
            state.key: SeenEntry(table.get(state.key) or state, rows)
            for state, rows in checkpoint.entries
        }
        last = self.events.last_sequence
        self.events.publish(event for event in checkpoint.events if event.sequence > last)
        self._checkpointed = number
        self._log.go_to(number)
        for missing, body in self._log.backlog():
            self._apply(missing, body)
        self._read_on()

    def _newest_checkpoint(self) -> tuple[int, Checkpoint]:
        for number in reversed(self._log.checkpoints()):
            body = self._log.read_checkpoint(number)
            try:
                if body is not None:
                    return number, decode_checkpoint(number, body)
            except DataCorrupt as error:
                self._logger.error("checkpoint is damaged", number=number, error=error.message)
        return 0, Checkpoint([], [])


def _attempt(operation: Operation, txn: S3Transaction) -> Outcome:
    """Runs one operation; an error of ours leaves table and rows consistent."""
    try:
        return operation(txn), None
    except SkipstoneError as error:
        return None, error
