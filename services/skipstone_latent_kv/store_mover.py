"""Copies what the source of a `MirroredStore` had before, and removes what it has no more.

A pass walks both stores in the order of namespaces and entry ids. It works from what it finds, so
it needs no memory of its own: it may be broken off anywhere, begun again, and repeated. Races with
writers and deletions end at worst in a difference that the next pass finds; what the source says
counts. A pass that copied and removed nothing has found both stores equal.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from skipstone_latent_kv.mirrored_store import MirroredStore
from skipstone_shared.errors import (
    EntryNotFound,
    FingerprintMismatch,
    InvalidArgument,
    LatentNotFound,
    QuotaExceeded,
)
from skipstone_shared.latents import LatentRef, checked_entry_id, checked_namespace
from skipstone_shared.migration import MigrationStep, RefusedEntry, StepTally, bad_page_token
from skipstone_shared.stored_entries import (
    DEFAULT_LEASE_S,
    MAX_LEASE_S,
    MIN_LEASE_S,
    StoredEntry,
)

_PAGE_SIZE = 100

_SAME_TIME_S = 0.001
"""Stores keep times to the microsecond or better; earlier or later by this is another time."""


@dataclasses.dataclass
class _Done(StepTally):
    """What a step has done so far; ``read_bytes`` counts what was only read back too."""

    read_bytes: int = 0


class StoreMover:
    """Makes the target what the source is; a `Mover`. Steps may run at the same time."""

    def __init__(self, stores: MirroredStore, clock: Callable[[], float] = time.time) -> None:
        """Creates the mover.

        Args:
            stores: Both stores, to which writes go meanwhile.
            clock: Seconds since the epoch, for leases.
        """
        self._stores = stores
        self._source = stores.source
        self._target = stores.target
        self._clock = clock

    def step(self, page_token: str, max_bytes: int, verify: bool) -> MigrationStep:
        """Compares about a hundred entries, more of small namespaces; see `Mover`."""
        namespace_after, after = _parsed(page_token)
        names = {*self._source.namespaces(), *self._target.namespaces()}
        done = _Done()
        for namespace in sorted(name for name in names if name >= namespace_after):
            if done.compared >= _PAGE_SIZE or done.read_bytes >= max_bytes:
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
        page = self._source.list_entries(namespace, _PAGE_SIZE, after, include_uncommitted=True)
        last = page.next_page_token
        there = {e.entry_id: e for e in self._target_entries(namespace, after, last)}
        aged: set[str] = set()
        for entry in page.entries:
            done.compared += 1
            copy = there.pop(entry.entry_id, None)
            if copy is None or not self._is_sound(namespace, entry, copy, verify, done):
                self._copy(namespace, entry.entry_id, copy is not None, done)
            elif entry.committed and not _same_history(entry, copy):
                aged.add(entry.entry_id)
            if done.read_bytes >= max_bytes:
                last = entry.entry_id
                there = {id_: e for id_, e in there.items() if id_ <= last}
                break
        self._carry_history(namespace, after, aged)
        for stranger in there:
            self._remove_stranger(namespace, stranger, done)
        return last

    def _target_entries(self, namespace: str, after: str, last: str) -> Iterator[StoredEntry]:
        """The target's entries after an id up to another; empty for to the end."""
        token = after
        while True:
            page = self._target.list_entries(namespace, _PAGE_SIZE, token, include_uncommitted=True)
            yield from (entry for entry in page.entries if not last or entry.entry_id <= last)
            token = page.next_page_token
            if not token or (last and token >= last):
                return

    def _is_sound(
        self, namespace: str, entry: StoredEntry, copy: StoredEntry, verify: bool, done: _Done
    ) -> bool:
        """Whether the target has all that the entry is, and gives it back where that is asked."""
        if copy.snapshots != entry.snapshots or (copy.committed and not entry.committed):
            return False
        try:
            for snapshot in entry.snapshots if verify else ():
                self._target.peek_latent(namespace, snapshot.ref)
                done.read_bytes += snapshot.ref.size_bytes
        except (LatentNotFound, FingerprintMismatch):
            return False
        return True

    def _copy(self, namespace: str, entry_id: str, replaces: bool, done: _Done) -> None:
        with self._stores.locks.hold((namespace, entry_id)):
            if replaces:
                self._target.delete_entries(namespace, [entry_id])
            try:
                entry = self._source.get_entry(namespace, entry_id)
                for snapshot in entry.snapshots:
                    self._copy_snapshot(namespace, entry, snapshot.ref)
                    done.read_bytes += snapshot.ref.size_bytes
                if entry.committed:
                    self._adopt(namespace, entry_id)
            except (EntryNotFound, LatentNotFound):
                # It went meanwhile, and so does what was copied of it.
                self._target.delete_entries(namespace, [entry_id])
            except (QuotaExceeded, InvalidArgument, FingerprintMismatch) as error:
                self._target.delete_entries(namespace, [entry_id])
                done.refused.append(RefusedEntry(namespace, entry_id, error.message))
            else:
                done.copied += 1
                done.copied_bytes += entry.size_bytes

    def _copy_snapshot(self, namespace: str, entry: StoredEntry, ref: LatentRef) -> None:
        """Copies one snapshot and reads it back.

        Raises:
            LatentNotFound: The source has it no more.
            QuotaExceeded: The target has no room for it, now or ever.
            InvalidArgument: It is larger than the target takes.
            FingerprintMismatch: The target gives back something else.
        """
        snapshot = self._source.peek_latent(namespace, ref)
        written = self._target.write_latent(
            namespace,
            snapshot.metadata,
            [memoryview(snapshot.data)],
            size_bytes=snapshot.ref.size_bytes,
            xxh3_64=snapshot.ref.xxh3_64,
            lease_s=self._lease_of(entry),
        )
        if written != snapshot.ref:
            raise FingerprintMismatch("the target's codec would change its bytes")
        try:
            self._target.peek_latent(namespace, written)
        except LatentNotFound as error:
            raise FingerprintMismatch("the target lost it as soon as it was written") from error

    def _lease_of(self, entry: StoredEntry) -> float:
        if entry.lease_expire_time is None:
            return DEFAULT_LEASE_S  # until it is adopted
        return min(MAX_LEASE_S, max(MIN_LEASE_S, entry.lease_expire_time - self._clock()))

    def _adopt(self, namespace: str, entry_id: str) -> None:
        with self._stores.pinning:
            self._target.adopt_entries(namespace, [self._source.get_entry(namespace, entry_id)])

    def _carry_history(self, namespace: str, after: str, entry_ids: set[str]) -> None:
        """Gives the target's entries the times, reads and pins that they have in the source now."""
        if not entry_ids:
            return
        with self._stores.pinning:
            page = self._source.list_entries(namespace, _PAGE_SIZE, after)
            aged = [entry for entry in page.entries if entry.entry_id in entry_ids]
            self._target.adopt_entries(namespace, aged)

    def _remove_stranger(self, namespace: str, entry_id: str, done: _Done) -> None:
        """Removes an entry that the source does not have: deleted, evicted, or ended there."""
        try:
            self._source.get_entry(namespace, entry_id)
        except EntryNotFound:
            done.removed += sum(self._target.delete_entries(namespace, [entry_id]))

    def _told(self, done: _Done, next_page_token: str, page_token: str) -> MigrationStep:
        return done.told(
            missed_writes=self._stores.missed_writes,
            source_entries=0 if page_token else self._source.totals().entry_count,
            next_page_token=next_page_token,
            source=self._source.get_capabilities().engine,
            target=self._target.get_capabilities().engine,
        )


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
