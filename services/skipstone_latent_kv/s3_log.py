"""The numbered log of a store in S3: which change came when, agreed upon by all its processes.

Record n is the object ``PREFIX/log/N``, put on the condition that there is none yet. So of all
processes that want to say what happens next, one does; the others read what it said and try again.
From time to time a process puts what all records together amount to in ``PREFIX/checkpoints/N``,
and records that everybody has read long ago are deleted.

Deleted records leave numbers free, and a process that slept while the log went on past its place
could put a record there that nobody else reads. So a place counts only while it is known to be the
end: a record is deleted no sooner than ``_KEPT_S`` after somebody has read it, and a process that
has not looked for ``SURE_S`` looks for a checkpoint ahead of it before it believes anything; one
whose put took so long does the same after it.

Time is told by two clocks, and the one that says more is believed. The process's own counts from
the boot, which is no harm, since places and times live in memory: after a restart of the machine a
process begins at a checkpoint. But it stands still in a virtual machine that is paused or restored
from an image. So the dates of S3's own answers are looked at too.
"""

from __future__ import annotations

import itertools
import re
import time
from collections import deque
from collections.abc import Callable, Iterator

from skipstone_latent_kv.s3_bucket import S3Bucket
from skipstone_latent_kv.s3_records import LARGEST_RECORD

SURE_S = 300.0
"""Seconds after which every process has looked at the log, or will look for a checkpoint first."""
_KEPT_S = 3600.0
_CHECKPOINTS_KEPT = 2
"""One in case the newest is damaged; records since the older one are kept too."""
_READ_AT_ONCE = 64
_NUMBER = re.compile("[0-9]{20}")


Moment = tuple[float, float]
"""Seconds by the own clock, and by that of S3 as of its last answer."""


def time_since_boot() -> float:
    """Seconds since the boot, those too in which the machine slept.

    Linux leaves these out of ``time.monotonic``, and it is sleep that the log must notice.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class S3Log:
    """One process's place in the log; for one thread at a time, ``checkpoint`` and ``prune`` apart.

    Attributes:
        position: Number of the last record that this process has read.
        clock: Seconds that pass, from anywhere.
    """

    def __init__(self, bucket: S3Bucket, steady_clock: Callable[[], float]) -> None:
        """Begins before the first record.

        Args:
            bucket: Where the log is.
            steady_clock: Seconds that pass, from anywhere.
        """
        self._bucket = bucket
        self.clock = steady_clock
        self.position = 0
        self._known = self.moment()
        self._seen: deque[tuple[float, int]] = deque()
        self._read_long_ago = 0
        self._pruned = 0

    def checkpoints(self) -> list[int]:
        """Numbers of the checkpoints that there are, ascending."""
        return list(self._numbers("checkpoints"))

    def read(self, number: int) -> memoryview | None:
        """A record, None when it is not there; one that is too large to be one is cut."""
        return self._bucket.get(_key("log", number), at_most=LARGEST_RECORD)

    def read_checkpoint(self, number: int) -> memoryview | None:
        """A checkpoint, None when it has gone."""
        return self._bucket.get(_key("checkpoints", number))

    def moment(self) -> Moment:
        """This time, to be taken before a request that shows where the log ends."""
        return self.clock(), self._bucket.server_time

    def go_to(self, position: int, known: Moment) -> None:
        """Goes to a place that a checkpoint told after a moment."""
        self.position, self._known = position, known

    @property
    def is_lost(self) -> bool:
        """Whether ``position`` may be one that the log has long passed."""
        return self._passed(self._known) >= SURE_S

    def was_passed(self) -> bool:
        """Whether a checkpoint is ahead, so that records after ``position`` may be deleted."""
        now = self.moment()
        checkpoints = self.checkpoints()
        if checkpoints and checkpoints[-1] > self.position:
            return True
        self._known = now
        return False

    def backlog(self) -> Iterator[tuple[int, memoryview | None]]:
        """The records that are listed after ``position``, each with its number, for a start.

        Here and in ``read_on`` the position follows when the next one is asked for.
        """
        numbers = list(self._numbers("log", _key("log", self.position)))
        for first in range(0, len(numbers), _READ_AT_ONCE):
            some = numbers[first : first + _READ_AT_ONCE]
            keys = [_key("log", number) for number in some]
            bodies = self._bucket.get_many(keys, at_most=LARGEST_RECORD)
            for number, body in zip(some, bodies, strict=True):
                yield number, body
                self.position = number

    def read_on(self) -> Iterator[tuple[int, memoryview]]:
        """The records after ``position``, until there is none."""
        while True:
            now, number = self.moment(), self.position + 1
            body = self.read(number)
            if body is None:
                if not self.is_lost:
                    self._known = now
                return
            yield number, body
            self.position = number

    def append(self, body: bytes) -> bool:
        """Puts the next record.

        Args:
            body: The record, unlike that of any other process.

        Returns:
            False when it did not become the next one: others were faster, or ``position`` was
            passed long ago.

        Raises:
            Unavailable: S3 does not answer; whether the record is there shows when it is read.
        """
        number, known = self.position + 1, self._known
        key, now = _key("log", number), self.moment()
        # The library repeats a put whose answer was lost, and is then told that one is there.
        if not self._bucket.put_new(key, body) and bytes(self._bucket.get(key) or b"") != body:
            return False
        if self._passed(known) >= SURE_S and self.was_passed():
            self._bucket.delete([key])
            return False
        self.position, self._known = number, now
        return True

    def note(self) -> None:
        """Notes how far this process has read, for ``prune``."""
        if not self._seen or self._seen[-1][1] != self.position:
            self._seen.append((self.clock(), self.position))

    def checkpoint(self, number: int, body: bytes) -> None:
        """Puts a checkpoint, and deletes those that nobody needs any more."""
        self._bucket.put_new(_key("checkpoints", number), body)
        for old in self.checkpoints()[:-_CHECKPOINTS_KEPT]:
            self._bucket.delete([_key("checkpoints", old)])

    def prune(self) -> int:
        """Deletes records that are in a checkpoint and were read long ago; returns how many."""
        while self._seen and self.clock() - self._seen[0][0] >= _KEPT_S:
            self._read_long_ago = self._seen.popleft()[1]
        if self._read_long_ago <= self._pruned:
            return 0
        checkpoints = self.checkpoints()
        if len(checkpoints) < _CHECKPOINTS_KEPT:
            return 0
        last = min(self._read_long_ago, checkpoints[-_CHECKPOINTS_KEPT])
        old = list(itertools.takewhile(lambda number: number <= last, self._numbers("log")))
        self._bucket.delete([_key("log", number) for number in old])
        self._pruned = last
        return len(old)

    def _numbers(self, kind: str, after: str = "") -> Iterator[int]:
        """Numbers of the objects of a kind, ascending; what else people keep there is none."""
        for key in self._bucket.keys(f"{kind}/", after):
            name = key.removeprefix(f"{kind}/")
            if _NUMBER.fullmatch(name):
                yield int(name)

    def _passed(self, moment: Moment) -> float:
        """Seconds since then, by the clock that says more."""
        steady, server_time = moment
        return max(self.clock() - steady, self._bucket.server_time - server_time)


def _key(kind: str, number: int) -> str:
    return f"{kind}/{number:020d}"
