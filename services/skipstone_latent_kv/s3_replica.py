"""What one process knows of a store in S3: all entries as of one record of the log.

A record that cannot be read is asked for again, with pauses. If that does not help, nothing may be
made up in its place: whoever went on without it would evict, expire and delete by a state that no
other process has. So the process stays where it was and tells the log which record it lacks. Those
that know the record answer with a checkpoint, from which it goes on. Only when nobody has answered
for so long that nobody knows the record any more, the process does without it, and puts the
checkpoint that makes this so for all.
"""

from __future__ import annotations

import dataclasses
import functools
import uuid
from collections.abc import Callable
from typing import TypeVar

import tenacity

from skipstone_latent_kv.entry_table import EntryKey, EntryTable
from skipstone_latent_kv.eviction_log import EvictionLog
from skipstone_latent_kv.eviction_policies import EvictionPolicy
from skipstone_latent_kv.s3_log import SURE_S, S3Log
from skipstone_latent_kv.s3_records import (
    Change,
    Checkpoint,
    decode_changes,
    decode_checkpoint,
    encode_changes,
    encode_checkpoint,
)
from skipstone_latent_kv.s3_transaction import S3Transaction, SeenEntry
from skipstone_latent_kv.s3_values import ValueName
from skipstone_shared.errors import DataCorrupt, FailedPrecondition, Unavailable
from skipstone_shared.stored_entries import EvictionEvent, EvictionKind
from skipstone_shared.structured_logging import get_logger

T = TypeVar("T")

_READS = 5
"""Times that an object is read again before it counts as damaged."""
_PAUSE_S = 0.1
"""The first pause between them; each is twice as long as the one before, 1.5 s all together."""
_PATIENT_FOR = 16
"""Records that are waited for so in one start without them; of more, something else is wrong."""
_REPAIR_S = 1.0
"""Seconds between two looks whether a record can be done without by now."""
_TRIES = 100
_NO_ENTRY: EntryKey = ("", "")


class RecordUnreadable(Unavailable):
    """A record of the log is damaged or missing, and nobody has put it right yet."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"record {number} of the log in S3 cannot be read: this process waits for one that "
            f"knows it, and does without it after {SURE_S:.0f} s"
        )


@dataclasses.dataclass
class _Lacking:
    """A record that cannot be read: since when the log says so, and the last look at it."""

    number: int
    told_at: float | None = None
    looked_at: float = float("-inf")


class S3Replica:
    """Entries in memory, which follow the log; for the thread of changes, reads of ``seen`` apart.

    Attributes:
        table: The entries, for quotas, order and statistics.
        seen: The same with their snapshots, as readers see them.
        events: The removals.
        undeleted: Values that no entry has any more and that may still be in S3, with the time
            (of the log's clock) at which this process learned it.
        evicted_count: Entries removed since the start, other than by a caller.
        damaged_count: Records that could not be read since the start.
        checkpointed: Number of the last record that is in a checkpoint of this process.
    """

    def __init__(self, log: S3Log, policy: EvictionPolicy, event_history: int) -> None:
        """Reads what there is; a record that it cannot read does not keep it from being made.

        Args:
            log: Says what there is.
            policy: Which entries go first.
            event_history: Eviction events kept.

        Raises:
            Unavailable: S3 does not answer.
            FailedPrecondition: there are checkpoints, and none can be read.
        """
        self._log = log
        self._policy = policy
        self._logger = get_logger(store="s3")
        self._lacking: _Lacking | None = None
        self._asked = False
        self.writer = uuid.uuid4().hex
        self.table = EntryTable(policy)
        self.seen: dict[EntryKey, SeenEntry] = {}
        self.events = EvictionLog(event_history)
        self.undeleted: dict[ValueName, float] = {}
        self.evicted_count = 0
        self.damaged_count = 0
        self.checkpointed = 0
        try:
            self.load()
        except RecordUnreadable as error:
            self._logger.error("started without the end of the log", error=error.message)

    def begin(self) -> S3Transaction:
        """Changes to make; ``publish`` makes them known."""
        return S3Transaction(self.table, self.seen, self.undeleted)

    def publish(self, txn: S3Transaction) -> None:
        """Lets readers and watchers see what the log now says."""
        for key, entry in txn.seen().items():
            if entry is None:
                self.seen.pop(key, None)
            else:
                self.seen[key] = entry
        self.undeleted.update(dict.fromkeys(txn.garbage, self._log.clock()))
        for name in txn.gone:
            self.undeleted.pop(name, None)
        events = self.events.number(txn.removals)
        self.evicted_count += sum(event.kind is not EvictionKind.DELETED for event in events)
        self.events.publish(events)
        self._asked = self._asked or txn.unreadable

    def catch_up(self) -> None:
        """Makes sure that this place in the log can be gone on from.

        Raises:
            RecordUnreadable: it cannot; a later call may help.
        """
        if self._lacking is not None:
            self._repair(self._lacking)
        elif self._log.is_lost and self._log.was_passed():
            self.load()

    def read_on(self) -> bool:
        """Applies the records that others have put; whether there were any.

        Raises:
            RecordUnreadable: one of them cannot be read.
        """
        found = False
        for number, body in self._log.read_on():
            self._apply(number, body)
            found = True
        if self._asked:
            self.put_checkpoint(self.contents())
            self._asked = False
        return found

    def contents(self) -> tuple[int, Checkpoint]:
        """Everything, and the number of the record as of which it is so."""
        entries = [(entry.state, entry.rows) for entry in self.seen.values()]
        return self._log.position, Checkpoint(entries, self.events.events, list(self.undeleted))

    def put_checkpoint(self, contents: tuple[int, Checkpoint]) -> None:
        """Puts everything into a checkpoint; on any thread."""
        number, checkpoint = contents
        self._log.checkpoint(number, encode_checkpoint(number, checkpoint))
        self.checkpointed = number

    def load(self, *, give_up: bool = False) -> None:
        """Begins with the newest checkpoint and applies the records after it.

        Args:
            give_up: Whether to do without records that cannot be read.

        Raises:
            RecordUnreadable: one of them cannot be read; what came before it is there.
        """
        known = self._log.moment()
        number, checkpoint = self._newest_checkpoint()
        table = EntryTable(self._policy)
        table.load([state for state, _ in checkpoint.entries])
        self.table = table
        # Not the states of the checkpoint: the table has numbered their uses.
        self.seen = {
            state.key: SeenEntry(table.get(state.key) or state, rows)
            for state, rows in checkpoint.entries
        }
        self.undeleted = dict.fromkeys(checkpoint.undeleted, self._log.clock())
        last = self.events.last_sequence
        self.events.publish(event for event in checkpoint.events if event.sequence > last)
        self.checkpointed = number
        self._log.go_to(number, known)
        self._apply_backlog(number + 1, give_up)
        self.read_on()
        # Not before: what was given up is so for all only with the checkpoint that this has put.
        self._lacking = None

    def _apply_backlog(self, first: int, give_up: bool) -> None:
        given_up = 0
        for number, body in self._log.backlog():
            if number > first and not give_up:
                raise self._lack(first, DataCorrupt("it is not there, and later ones are"))
            given_up += number - first
            first = number + 1
            try:
                self._apply(number, body, _READS if given_up < _PATIENT_FOR else 1)
            except RecordUnreadable:
                if not give_up:
                    raise
                given_up += 1
        if given_up:
            self._logger.error("records of the log given up", count=given_up)
            # Removals may be among them.
            gap = EvictionEvent(self.events.last_sequence + 1, EvictionKind.GAP)
            self.events.publish([gap])

    def _apply(self, number: int, body: memoryview | None, reads: int = _READS) -> None:
        try:
            changes = self._changes(number, body, reads)
            txn = self.begin()
            with self.table.transaction():
                txn.apply(changes)
        except DataCorrupt as error:
            raise self._lack(number, error) from error
        self.publish(txn)

    def _lack(self, number: int, error: DataCorrupt) -> RecordUnreadable:
        self._logger.error("record of the log is lost", number=number, error=error.message)
        if self._lacking is None or number > self._lacking.number:
            self.damaged_count += 1
            self._lacking = _Lacking(number)
        return RecordUnreadable(number)

    def _changes(self, number: int, body: memoryview | None, reads: int) -> list[Change]:
        """What a record says; its body is read again when it makes no sense."""
        try:
            return _decoded(number, body)
        except DataCorrupt as error:
            self._logger.warning("record read again", number=number, error=error.message)
        return _patiently(lambda: _decoded(number, self._log.read(number)), reads)

    def _newest_checkpoint(self) -> tuple[int, Checkpoint]:
        problem = ""
        for _ in range(2):  # Those of the first listing may have been replaced meanwhile.
            numbers = self._log.checkpoints()
            if not numbers:
                return 0, Checkpoint()
            for number in reversed(numbers):
                try:
                    return number, _patiently(functools.partial(self._checkpoint, number), _READS)
                except DataCorrupt as error:
                    problem = error.message
                    self._logger.error("checkpoint is lost", number=number, error=problem)
        raise FailedPrecondition(
            f"none of the checkpoints in S3 ({numbers}) can be read ({problem}): start the version "
            "of this program that wrote them, bring one back, or delete everything below s3_prefix "
            "and begin with an empty store"
        )

    def _checkpoint(self, number: int) -> Checkpoint:
        body = self._log.read_checkpoint(number)
        if body is None:
            raise DataCorrupt("it is not there")
        return decode_checkpoint(number, body)

    def _repair(self, lacking: _Lacking) -> None:
        """Goes on from a checkpoint that has the record, with the record, or without it."""
        now = self._log.clock()
        if now - lacking.looked_at < _REPAIR_S:
            raise RecordUnreadable(lacking.number)
        lacking.looked_at = now
        checkpoints = self._log.checkpoints()
        if (checkpoints and checkpoints[-1] >= lacking.number) or self._is_readable(lacking.number):
            self.load()
        elif lacking.told_at is None:
            self._tell(lacking)
            raise RecordUnreadable(lacking.number)
        elif now - lacking.told_at < SURE_S:
            raise RecordUnreadable(lacking.number)
        else:
            self._asked = True
            self.load(give_up=True)

    def _is_readable(self, number: int) -> bool:
        try:
            _decoded(number, self._log.read(number))
        except DataCorrupt:
            return False
        return True

    def _tell(self, lacking: _Lacking) -> None:
        """Puts a record that says which one is lacking; what else the log says is passed over."""
        change = Change("unreadable", _NO_ENTRY, (lacking.number,))
        # Listed first: where a record is missing, reading on would end.
        for _ in self._log.backlog():
            pass
        for _ in range(_TRIES):
            for _ in self._log.read_on():
                pass
            record = encode_changes(self._log.position + 1, self.writer, [change])
            if self._log.append(record):
                lacking.told_at = self._log.clock()
                return


def _decoded(number: int, body: memoryview | None) -> list[Change]:
    if body is None:
        raise DataCorrupt("it is not there")
    return decode_changes(number, body)


def _patiently(read: Callable[[], T], reads: int) -> T:
    """What is read, again and again while it is damaged."""
    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(reads),
        wait=tenacity.wait_exponential(_PAUSE_S),
        retry=tenacity.retry_if_exception_type(DataCorrupt),
        reraise=True,
    )
    return retrying(read)
