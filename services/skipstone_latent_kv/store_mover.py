"""Copies what the source of a `MirroredStore` had before, and removes what it has no more.

A pass walks both stores in the order of namespaces and entry ids. It works from what it finds, so
it needs no memory of its own: it may be broken off anywhere, begun again, and repeated. What
differs is looked at again while nobody writes it, so that a busy source is no difference. A pass
that copied nothing has found that the target has all that the source has; what it removed the
source had evicted, as any store may at any time.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from skipstone_latent_kv.entry_pages import PAGE_SIZE, entries_of, page_after, up_to
from skipstone_latent_kv.mirrored_store import MirroredStore
from skipstone_latent_kv.movable_store import MovableStore
from skipstone_shared.errors import (
    EntryNotFound,
    FingerprintMismatch,
    InvalidArgument,
    LatentNotFound,
    QuotaExceeded,
)
from skipstone_shared.latents import LatentRef, checked_entry_id, checked_namespace
from skipstone_shared.migration import (
    MigrationStep,
    MissedWrites,
    RefusedEntry,
    StepTally,
    bad_page_token,
)
from skipstone_shared.stored_entries import (
    DEFAULT_LEASE_S,
    MAX_LEASE_S,
    MIN_LEASE_S,
    StoredEntry,
)

_SAME_TIME_S = 0.001
"""Stores keep times to the microsecond or better; earlier or later by this is another time."""

_BOUND_S = 30.0
_BYTES_PER_S = 1 << 20
"""Seconds that the target may take for one call, and bytes that it is expected to take or give at
least: a slow target is a slow move. Only writers of the same entries wait meanwhile, as long as
their callers let them."""

T = TypeVar("T")


@dataclasses.dataclass
class _Done(StepTally):
    """What a step has done so far; ``read_bytes`` counts what was only read back too."""

    read_bytes: int = 0


class StoreMover:
    """Makes the target what the source is; a `Mover`. Steps may run at the same time."""

    def __init__(
        self,
        stores: MirroredStore,
        clock: Callable[[], float] = time.time,
        bound_s: float = _BOUND_S,
    ) -> None:
        """Creates the mover.

        Args:
            stores: Both stores, to which writes go meanwhile.
            clock: Seconds since the epoch, for leases.
            bound_s: Seconds that the target may take for one call.
        """
        self._stores = stores
        self._source = stores.source
        self._target = stores.target
        self._clock = clock
        self._bound_s = bound_s
        self._engines = [store.get_capabilities().engine for store in (self._source, self._target)]

    def missed_writes(self) -> MissedWrites:
        """Writes that the target missed; see `Mover`."""
        missed = self._stores.mirror.settled()
        # One that the source had begun when its time was over is counted, and may not be made yet.
        # A pass that finds the entry as it was would never see it: the count stays as it is.
        self._source.adopt_entries("", [])
        return missed

    def step(self, page_token: str, max_bytes: int, verify: bool) -> MigrationStep:
        """Compares about a hundred entries, more of small namespaces; see `Mover`."""
        namespace_after, after = _parsed(page_token)
        # Now there is no lock whose waiters would wait too: the time to see whether it is there.
        names = self._ask(self._target.namespaces, though_doubted=True)
        done = _Done()
        for namespace in sorted({*names, *self._source.namespaces()}):
            if namespace < namespace_after:
                continue
            if done.compared >= PAGE_SIZE or done.read_bytes >= max_bytes:
                return self._told(done, f"{namespace}/", page_token)
            start = after if namespace == namespace_after else ""
            last = self._compare_page(namespace, start, max_bytes, verify, done)
            if last:
                return self._told(done, f"{namespace}/{last}", page_token)
        return self._told(done, "", page_token)

    def _compare_page(
        self, namespace: str, after: str, max_bytes: int, verify: bool, done: _Done
    ) -> str:
        """Compares entries of a namespace; the last id it dealt with, empty when none is left."""
        page = page_after(self._source, namespace, after)
        # One of the target too, which may have much that the source has no more.
        copies = self._ask(lambda: page_after(self._target, namespace, after))
        last = min(filter(None, (page.next_page_token, copies.next_page_token)), default="")
        there = {copy.entry_id: copy for copy in up_to(last, copies)}
        aged: set[str] = set()
        for entry in up_to(last, page):
            done.compared += 1
            copy = there.pop(entry.entry_id, None)
            if copy is None or not self._is_sound(namespace, entry, copy, verify, done):
                self._mend(namespace, entry.entry_id, verify, done)
            elif entry.committed and not _same_history(entry, copy):
                aged.add(entry.entry_id)
            if done.read_bytes >= max_bytes:
                last = entry.entry_id
                there = {id_: e for id_, e in there.items() if id_ <= last}
                break
        for entry_id in [*there, *self._carry_history(namespace, after, aged, done)]:
            self._mend(namespace, entry_id, verify, done)
        return last

    def _is_sound(
        self, namespace: str, entry: StoredEntry, copy: StoredEntry, verify: bool, done: _Done
    ) -> bool:
        """Whether the target has all that the entry is, and gives it back where that is asked."""
        if copy.snapshots != entry.snapshots or (copy.committed and not entry.committed):
            return False
        try:
            for snapshot in entry.snapshots if verify else ():
                self._read_back(namespace, snapshot.ref)
                done.read_bytes += snapshot.ref.size_bytes
        except (LatentNotFound, FingerprintMismatch):
            return False
        return True

    def _mend(self, namespace: str, entry_id: str, verify: bool, done: _Done) -> None:
        """Looks at an entry again while nobody writes it, and makes the target's what it is."""
        with self._stores.locks.hold((namespace, entry_id)):
            entry = _found(self._source, namespace, entry_id)
            copy = self._ask(lambda: _found(self._target, namespace, entry_id))
            if entry is None:
                self._remove(namespace, entry_id, done)
            elif copy is None or not self._is_sound(namespace, entry, copy, verify, done):
                if copy is not None:
                    self._delete(namespace, entry_id)
                self._copy(namespace, entry, done)

    def _copy(self, namespace: str, entry: StoredEntry, done: _Done) -> None:
        try:
            for snapshot in entry.snapshots:
                self._copy_snapshot(namespace, entry, snapshot.ref)
                done.read_bytes += snapshot.ref.size_bytes
            if entry.committed:
                self._adopt(namespace, entry.entry_id)
        except (EntryNotFound, LatentNotFound):
            self._remove(namespace, entry.entry_id, done)
        except (QuotaExceeded, InvalidArgument, FingerprintMismatch) as error:
            self._delete(namespace, entry.entry_id)
            done.refused.append(RefusedEntry(namespace, entry.entry_id, error.message))
        else:
            done.copied += 1
            done.copied_bytes += entry.size_bytes

    def _remove(self, namespace: str, entry_id: str, done: _Done) -> None:
        """Removes an entry that the source does not have: deleted, evicted, or ended there."""
        done.removed += self._delete(namespace, entry_id)
        # Another process has locks of its own, and may have written it anew meanwhile.
        entry = _found(self._source, namespace, entry_id)
        if entry is not None:
            self._copy(namespace, entry, done)

    def _delete(self, namespace: str, entry_id: str) -> int:
        return sum(self._ask(lambda: self._target.delete_entries(namespace, [entry_id])))

    def _ask(self, run: Callable[[], T], *, size_bytes: int = 0, though_doubted: bool = False) -> T:
        bound_s = self._bound_s + size_bytes / _BYTES_PER_S
        return self._stores.mirror.ask(run, bound_s, though_doubted=though_doubted)

    def _copy_snapshot(self, namespace: str, entry: StoredEntry, ref: LatentRef) -> None:
        """Copies one snapshot and reads it back.

        Raises:
            LatentNotFound: The source has it no more.
            QuotaExceeded: The target has no room for it, now or ever.
            InvalidArgument: It is larger than the target takes.
            FingerprintMismatch: The target gives back something else.
        """
        snapshot = self._source.peek_latent(namespace, ref)
        written = self._ask(
            lambda: self._target.write_latent(
                namespace,
                snapshot.metadata,
                [memoryview(snapshot.data)],
                size_bytes=snapshot.ref.size_bytes,
                xxh3_64=snapshot.ref.xxh3_64,
                lease_s=self._lease_of(entry),
            ),
            size_bytes=snapshot.ref.size_bytes,
        )
        if written != snapshot.ref:
            raise FingerprintMismatch("the target's codec would change its bytes")
        try:
            self._read_back(namespace, written)
        except LatentNotFound as error:
            raise _lost() from error

    def _read_back(self, namespace: str, ref: LatentRef) -> None:
        read = partial(self._target.peek_latent, namespace, ref)
        self._ask(read, size_bytes=ref.size_bytes)

    def _lease_of(self, entry: StoredEntry) -> float:
        if entry.lease_expire_time is None:
            return DEFAULT_LEASE_S  # until it is adopted
        return min(MAX_LEASE_S, max(MIN_LEASE_S, entry.lease_expire_time - self._clock()))

    def _adopt(self, namespace: str, entry_id: str) -> None:
        entry = self._source.get_entry(namespace, entry_id)
        (adopted,) = self._ask(lambda: self._target.adopt_entries(namespace, [entry]))
        if not adopted:
            raise _lost()

    def _carry_history(
        self, namespace: str, after: str, entry_ids: set[str], done: _Done
    ) -> list[str]:
        """Gives the target's entries the times, reads and pins that they have in the source now.

        Returns:
            Those that the target has no more.
        """
        if not entry_ids:
            return []
        with self._stores.locks.hold(*((namespace, entry_id) for entry_id in entry_ids)):
            aged = [e for e in entries_of(self._source, namespace, after, entry_ids) if e.committed]
            if not aged:
                return []
            adopted = self._ask(lambda: self._target.adopt_entries(namespace, aged))
            # Another process has locks of its own. What it pinned, or made anew and is still
            # writing, since it was read is otherwise in the target now: for another pass to mend.
            told = {entry.entry_id: _state(entry) for entry in aged}
            now = entries_of(self._source, namespace, after, told.keys())
            done.copied += sum(_state(entry) != told[entry.entry_id] for entry in now)
        return [e.entry_id for e, is_there in zip(aged, adopted, strict=True) if not is_there]

    def _told(self, done: _Done, next_page_token: str, page_token: str) -> MigrationStep:
        return done.told(
            missed=self._stores.mirror.missed(),
            source_entries=0 if page_token else self._source.totals().entry_count,
            next_page_token=next_page_token,
            source=self._engines[0],
            target=self._engines[1],
        )


def _found(store: MovableStore, namespace: str, entry_id: str) -> StoredEntry | None:
    with suppress(EntryNotFound):
        return store.get_entry(namespace, entry_id)
    return None


def _lost() -> FingerprintMismatch:
    return FingerprintMismatch("the target lost it as soon as it was written")


def _state(entry: StoredEntry) -> tuple[object, ...]:
    """What an adoption can change and no use of the entry does."""
    return entry.snapshots, entry.committed, entry.pinned, entry.create_time


def _same_history(entry: StoredEntry, copy: StoredEntry) -> bool:
    return (
        copy.committed
        and entry.pinned == copy.pinned
        and entry.read_count == copy.read_count
        and abs(entry.create_time - copy.create_time) < _SAME_TIME_S
        and abs(entry.access_time - copy.access_time) < _SAME_TIME_S
    )


def _parsed(page_token: str) -> tuple[str, str]:
    """The namespace to go on in, and the id to go on after; both empty for the start."""
    if not page_token:
        return "", ""
    namespace, slash, entry_id = page_token.partition("/")
    with suppress(InvalidArgument):
        if slash:
            return checked_namespace(namespace), checked_entry_id(entry_id) if entry_id else ""
    raise bad_page_token()
