"""Copies what the source of a `MirroredIndex` had before, and removes what it has no more.

A pass walks the source and copies what the target lacks or has otherwise, then walks the target and
removes what the source does not have. It works from what it finds, so it needs no memory of its
own: it may be broken off anywhere, begun again, and repeated. A pass that copied nothing has found
that the target has all that the source has.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import numpy as np

from skipstone_shared.errors import Unavailable
from skipstone_shared.index_entries import IndexEntry, IndexPage, LocatedEntry, Vector, VectorEntry
from skipstone_shared.migration import (
    MigrationStep,
    MissedWrites,
    RefusedEntry,
    StepTally,
    bad_page_token,
)
from skipstone_shared.migration_mirror import Mirror
from skipstone_vector_index.index import MovableIndex, VectorIndex
from skipstone_vector_index.mirrored_index import MirroredIndex

_PAGE_SIZE = 100
_TOKEN = re.compile(r"(source|target)/([A-Za-z0-9_.-]*)/([A-Za-z0-9-]*)")

_SAME_VECTOR = 1e-5
"""Largest difference of an element of two unit vectors that were one: each index scales anew."""

_READ_BOUND_S = 30.0
_WRITE_BOUND_S = 8.0
"""Seconds that the target may take for a hundred entries in all, while others wait to write."""

_Located = dict[str, dict[str, LocatedEntry]]
"""Entries by id and partition."""

T = TypeVar("T")


class IndexMover:
    """Makes the target what the source is; a `Mover`. Steps may run at the same time."""

    def __init__(
        self,
        indexes: MirroredIndex,
        write_bound_s: float = _WRITE_BOUND_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Creates the mover.

        Args:
            indexes: Both indexes, to which writes go meanwhile.
            write_bound_s: Seconds that the target may take for all calls while writers wait.
            monotonic: Seconds on a clock that never goes back.
        """
        self._indexes = indexes
        self._source = indexes.source
        self._target = indexes.target
        self._mirror = indexes.mirror
        self._write_bound_s = write_bound_s
        self._monotonic = monotonic
        self._is_cosine = self._source.get_capabilities().metric == "cosine"
        self._engines = [index.get_capabilities().engine for index in (self._source, self._target)]

    def missed_writes(self) -> MissedWrites:
        """Writes that the target missed; see `Mover`."""
        return self._mirror.settled()

    def step(self, page_token: str, max_bytes: int, verify: bool) -> MigrationStep:
        """Compares up to a hundred entries of one namespace, all that they are; see `Mover`."""
        side, first, token = _parsed(page_token)
        done = StepTally()
        if side == "source":
            namespaces, page = _page_of(self._source, first, token)
            done.compared += len(page.entries)
            if page.entries:
                self._copy_missing(namespaces[0], _ids(page.entries), done)
        else:
            namespaces, page = self._read(lambda: _page_of(self._target, first, token))
            if page.entries:
                self._remove_strangers(namespaces[0], _ids(page.entries), done)
        if page.next_page_token:
            goes_on = f"{side}/{namespaces[0]}/{page.next_page_token}"
        elif namespaces[1:]:
            goes_on = f"{side}/{namespaces[1]}/"
        else:
            goes_on = "target//" if side == "source" else ""
        return self._told(done, goes_on, page_token)

    def _copy_missing(self, namespace: str, entry_ids: Sequence[str], done: StepTally) -> None:
        kept = _located(self._source, namespace, entry_ids)
        copies = self._read(lambda: _located(self._target, namespace, entry_ids))
        if missing := self._differing(kept, copies, entry_ids):
            with self._indexes.writing:
                self._copy(namespace, missing, done, self._turn())

    def _copy(self, namespace: str, entry_ids: Sequence[str], done: StepTally, turn: _Turn) -> None:
        """Copies what differs now that nobody writes; what was being written does not any more."""
        kept = _located(self._source, namespace, entry_ids)
        copies = turn.ask(lambda: _located(self._target, namespace, entry_ids))
        differing = self._differing(kept, copies, entry_ids)
        if not differing:
            return
        by_key: dict[str, list[VectorEntry]] = {}
        for entry_id in differing:  # so listings have the same order there
            for key, located in kept[entry_id].items():
                if located.vector is not None:
                    item = VectorEntry(located.entry, located.vector)
                    by_key.setdefault(key, []).append(item)
        # Before: an entry may be in another partition there, or one of another dimension.
        turn.ask(lambda: self._target.delete_entries(namespace, differing))
        for key, items in by_key.items():
            upsert = partial(self._target.upsert_entries, namespace, key, items)
            for item, error in zip(items, turn.ask(upsert), strict=True):
                if error is not None:
                    refused = RefusedEntry(namespace, item.entry.entry_id, error.message)
                    done.refused.append(refused)
                    continue
                done.copied += 1
                done.copied_bytes += item.vector.nbytes

    def _remove_strangers(self, namespace: str, entry_ids: Sequence[str], done: StepTally) -> None:
        if not (strangers := self._strangers(namespace, entry_ids)):
            return
        with self._indexes.writing:
            if not (strangers := self._strangers(namespace, strangers)):
                return
            turn = self._turn()
            deleted = turn.ask(lambda: self._target.delete_entries(namespace, strangers))
            done.removed += sum(deleted)
            # Another process has a lock of its own, and may have written one meanwhile.
            if _located(self._source, namespace, strangers):
                self._copy(namespace, strangers, done, turn)

    def _strangers(self, namespace: str, entry_ids: Sequence[str]) -> list[str]:
        kept = _located(self._source, namespace, entry_ids)
        return [entry_id for entry_id in entry_ids if entry_id not in kept]

    def _read(self, run: Callable[[], T]) -> T:
        """Asks the target while nobody waits for it; also whether it is there again."""
        return self._mirror.ask(run, _READ_BOUND_S, though_doubted=True)

    def _turn(self) -> _Turn:
        return _Turn(self._mirror, self._write_bound_s, self._monotonic)

    def _differing(self, kept: _Located, copies: _Located, entry_ids: Sequence[str]) -> list[str]:
        """Those that the source has and the target lacks or has otherwise."""
        return [id_ for id_ in entry_ids if id_ in kept and not self._same(kept, copies, id_)]

    def _same(self, kept: _Located, copies: _Located, entry_id: str) -> bool:
        """Whether an id has the same entries with the same vectors in the same partitions."""
        here, there = kept[entry_id], copies.get(entry_id, {})
        return here == there and all(
            self._same_vector(located.vector, there[key].vector) for key, located in here.items()
        )

    def _same_vector(self, one: Vector | None, other: Vector | None) -> bool:
        if one is None or other is None or one.shape != other.shape:
            return False
        if self._is_cosine:
            one, other = _unit(one), _unit(other)
        return bool(np.allclose(one, other, rtol=_SAME_VECTOR, atol=_SAME_VECTOR))

    def _told(self, done: StepTally, next_page_token: str, page_token: str) -> MigrationStep:
        counted = () if page_token else _namespaces(self._source)
        return done.told(
            missed=self._mirror.missed(),
            source_entries=sum(self._source.get_stats(name).entry_count for name in counted),
            next_page_token=next_page_token,
            source=self._engines[0],
            target=self._engines[1],
        )


class _Turn:
    """Asks the target while writers wait, which they do for no longer than one bound.

    What it has copied by then stays: who tries again finds it, and gets further.
    """

    def __init__(self, mirror: Mirror, bound_s: float, monotonic: Callable[[], float]) -> None:
        """Begins it now."""
        self._mirror = mirror
        self._bound_s = bound_s
        self._monotonic = monotonic
        self._ends = monotonic() + bound_s

    def ask(self, run: Callable[[], T]) -> T:
        """Asks the target in the time that is left.

        Raises:
            Unavailable: It does not answer in this time, or there is none left.
            SkipstoneError: What it answers.
        """
        left_s = self._ends - self._monotonic()
        if left_s <= 0:
            raise Unavailable(f"the target took all {self._bound_s:g} s that writers wait for it")
        return self._mirror.ask(run, left_s)


def _page_of(index: VectorIndex, first: str, token: str) -> tuple[list[str], IndexPage]:
    """Namespaces from ``first`` on, and entries of the first of them that there is."""
    namespaces = [name for name in _namespaces(index) if name >= first]
    if not namespaces:
        return [], IndexPage((), "")
    start = token if namespaces[0] == first else ""
    return namespaces, index.list_entries(namespaces[0], page_size=_PAGE_SIZE, page_token=start)


def _namespaces(index: VectorIndex) -> Iterator[str]:
    token = ""
    while True:
        page = index.list_namespaces(1000, token)
        yield from page.namespaces
        token = page.next_page_token
        if not token:
            return


def _located(index: MovableIndex, namespace: str, entry_ids: Sequence[str]) -> _Located:
    found: _Located = {}
    for located in index.locate_entries(namespace, entry_ids) if entry_ids else ():
        found.setdefault(located.entry.entry_id, {})[located.compatibility_key] = located
    return found


def _ids(entries: Sequence[IndexEntry]) -> list[str]:
    return list(dict.fromkeys(entry.entry_id for entry in entries))


def _unit(vector: Vector) -> Vector:
    length = float(np.linalg.norm(vector.astype(np.float64)))
    return (vector / length).astype(np.float32) if length else vector


def _parsed(page_token: str) -> tuple[str, str, str]:
    """Which index is walked, the namespace to go on in, and the token of its listing there."""
    match = _TOKEN.fullmatch(page_token or "source//")
    if match is None:
        raise bad_page_token()
    return match[1], match[2], match[3]
