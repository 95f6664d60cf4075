"""Entries in memory as the log in S3 says they are; what ``S3Store`` is built on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from skipstone_latent_kv.entry_table import EntryKey, EntryState, EntryTable
from skipstone_latent_kv.eviction_log import EvictionLog
from skipstone_latent_kv.group_commit import GroupCommitter, Operation, Outcome
from skipstone_latent_kv.s3_deletions import S3Deletions
from skipstone_latent_kv.s3_log import S3Log
from skipstone_latent_kv.s3_records import encode_changes
from skipstone_latent_kv.s3_replica import S3Replica
from skipstone_latent_kv.s3_transaction import S3Transaction, SeenEntry
from skipstone_latent_kv.s3_uses import UnsavedUses
from skipstone_latent_kv.s3_values import ValueName
from skipstone_shared.errors import EntryNotFound, SkipstoneError, Unavailable
from skipstone_shared.structured_logging import get_logger

T = TypeVar("T")

_GROUP_SIZE = 64
_TRIES = 100
"""Times that others may say what happens next before a change is given up."""
_OTHERS_S = 60.0
"""Seconds that the process that took a value from an entry has to delete it and to say so."""


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
        replica: S3Replica,
        *,
        ttl_s: float,
        clock: Callable[[], float],
        delete: Callable[[Sequence[ValueName]], None],
    ) -> None:
        """Begins with what a replica knows.

        Args:
            log: Says what happens.
            replica: What happened.
            ttl_s: Time to live of committed entries in seconds; 0 for none.
            clock: Seconds since the epoch.
            delete: Deletes values in S3.
        """
        self._log = log
        self._replica = replica
        self._ttl_s = ttl_s
        self._clock = clock
        self._deletions = S3Deletions(delete)
        self._logger = get_logger(store="s3")
        self.uses = UnsavedUses()
        self._committer = GroupCommitter(self._execute, _GROUP_SIZE)

    @property
    def table(self) -> EntryTable:
        """The entries, for quotas, order and statistics."""
        return self._replica.table

    @property
    def events(self) -> EvictionLog:
        """The removals."""
        return self._replica.events

    def seen(self, key: EntryKey) -> SeenEntry | None:
        """An entry as of the last record that this process knows, unless it is over."""
        entry = self._replica.seen.get(key)
        if entry is None or entry.state.end(self._ttl_s, self._clock()):
            return None
        return entry

    def all_seen(self) -> list[SeenEntry]:
        """All entries as of one record that is as new as this call, those that are over too."""
        return self.change(lambda txn: list(self._replica.seen.values()))

    def has_value(self, name: ValueName) -> bool:
        """Whether an entry, over or not, has a value as of the last record that is known."""
        entry = self._replica.seen.get(name.entry)
        return entry is not None and name in entry.value_names()

    def refresh(self) -> None:
        """Waits until ``seen`` is as new as this call."""
        self.change(lambda txn: None)

    def change(self, operation: Callable[[S3Transaction], T], *, for_good: bool = False) -> T:
        """Runs an operation, waits until its changes are in the log, deletes what it replaced.

        Args:
            operation: Looks at entries and changes them. It may run several times.
            for_good: Whether to fail when S3 does not delete the values.

        Raises:
            Unavailable: S3 does not answer, or a record of the log cannot be read. Whether the
                change was made shows later.
            DeadlineExceeded: the time of the request is over.
            SkipstoneError: what the operation raised; what it had changed before stays changed.
        """
        garbage: list[ValueName] = []

        def collected(txn: S3Transaction) -> tuple[T | None, SkipstoneError | None]:
            before = len(txn.garbage)
            try:
                return operation(txn), None
            except SkipstoneError as error:
                return None, error
            finally:
                garbage[:] = txn.garbage[before:]

        result, error = self._committer.run(collected)
        if garbage:
            self._delete(garbage, for_good)
        if error is not None:
            raise error
        return result  # type: ignore[return-value]

    def delete_owed(self) -> int:
        """Deletes values that their own process has not deleted; returns how many."""

        def owed(txn: S3Transaction) -> list[ValueName]:
            told, now = set(txn.gone), self._log.clock()
            return [
                name
                for name, since in self._replica.undeleted.items()
                if now - since >= _OTHERS_S and name not in told and not self.has_value(name)
            ]

        names = self.change(owed)
        if names:
            self._deletions.delete(names)
        return len(names)

    def checkpoint(self, after_records: int) -> bool:
        """Puts a checkpoint if so many records have come since the last; returns whether."""
        if self._log.position - self._replica.checkpointed < after_records:
            return False
        self._replica.put_checkpoint(self.change(lambda txn: self._replica.contents()))
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
                self._replica.catch_up()
                outcomes = self._try(operations)
                if outcomes is not None:
                    return outcomes
            raise Unavailable("other processes change the store all the time: try again")
        except SkipstoneError as error:
            # Of S3, and so of all of them: the committer would try each again alone.
            return [(None, error)] * len(operations)

    def _try(self, operations: Sequence[Operation]) -> list[Outcome] | None:
        """The outcomes; None when the log went on meanwhile, so that they are to run again."""
        uses, gone = self.uses.take(), self._deletions.take()
        txn = self._replica.begin()
        saved = False
        try:
            with self.table.transaction():
                told = [*txn.count_uses(uses), *txn.tell_gone(gone)]
                outcomes: list[Outcome] = [(operation(txn), None) for operation in operations]
                if not (txn.changes or (told and txn.saves_uses)):
                    raise _Undone(outcomes)
                number = self._log.position + 1
                record = encode_changes(number, self._replica.writer, told + txn.changes)
                if not self._log.append(record):
                    raise _Undone(None)
            saved = True
        except _Undone as undone:
            return None if self._replica.read_on() or self._log.is_lost else undone.outcomes
        finally:
            if not saved:
                self.uses.give_back(uses)
                self._deletions.give_back(gone)
        self._replica.publish(txn)
        return outcomes

    def _delete(self, names: Sequence[ValueName], for_good: bool) -> None:
        try:
            self._deletions.delete(list(dict.fromkeys(names)))
        except SkipstoneError as error:
            if for_good:
                raise type(error)(
                    f"the entries are removed, but their bytes are still in S3 ({error.message}): "
                    "call again, or let a sweep delete them"
                ) from error
            self._logger.warning("values not deleted yet", count=len(names), error=error.message)
