"""Copies what the source of a `MirroredIndex` had before, and removes what it has no more.

A pass walks the source and copies what the target lacks or has otherwise, then walks the target and
removes what the source does not have. It works from what it finds, so it needs no memory of its
own: it may be broken off anywhere, begun again, and repeated. A pass that copied and removed
nothing has found both indexes equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from skipstone_shared.index_entries import IndexEntry, LocatedEntry, Vector, VectorEntry
from skipstone_shared.migration import MigrationStep, RefusedEntry, StepTally, bad_page_token
from skipstone_vector_index.index import MovableIndex, VectorIndex
from skipstone_vector_index.mirrored_index import MirroredIndex

_PAGE_SIZE = 100
_TOKEN = re.compile(r"(source|target)/([A-Za-z0-9_.-]*)/([A-Za-z0-9-]*)")

_SAME_VECTOR = 1e-5
"""Largest difference of an element of two unit vectors that were one: each index scales anew."""


_Located = dict[str, dict[str, LocatedEntry]]
"""Entries by id and partition."""


class IndexMover:
    """Makes the target what the source is; a `Mover`. Steps may run at the same time."""

    def __init__(self, indexes: MirroredIndex) -> None:
        """Creates the mover.

        Args:
            indexes: Both indexes, to which writes go meanwhile.
        """
        self._indexes = indexes
        self._source = indexes.source
        self._target = indexes.target
        self._is_cosine = self._source.get_capabilities().metric == "cosine"

    def step(self, page_token: str, max_bytes: int, verify: bool) -> MigrationStep:
        """Compares up to a hundred entries of one namespace, all that they are; see `Mover`."""
        side, first, token = _parsed(page_token)
        walked = self._source if side == "source" else self._target
        done = StepTally()
        namespaces = [name for name in _namespaces(walked) if name >= first]
        if not namespaces:
            return self._told(done, "target//" if side == "source" else "", page_token)
        namespace = namespaces[0]
        start = token if namespace == first else ""
        page = walked.list_entries(namespace, page_size=_PAGE_SIZE, page_token=start)
        if side == "source":
            self._copy_missing(namespace, page.entries, done)
        else:
            self._remove_strangers(namespace, page.entries, done)
        if page.next_page_token:
            goes_on = f"{side}/{namespace}/{page.next_page_token}"
        elif namespaces[1:]:
            goes_on = f"{side}/{namespaces[1]}/"
        else:
            goes_on = "target//" if side == "source" else ""
        return self._told(done, goes_on, page_token)

    def _copy_missing(self, namespace: str, entries: Sequence[IndexEntry], done: StepTally) -> None:
        done.compared += len(entries)
        ids = list(dict.fromkeys(entry.entry_id for entry in entries))
        kept = _located(self._source, namespace, ids)
        copies = _located(self._target, namespace, ids)
        missing = [id_ for id_ in ids if id_ in kept and not self._same(kept, copies, id_)]
        if missing:
            self._copy(namespace, missing, done)

    def _copy(self, namespace: str, entry_ids: Sequence[str], done: StepTally) -> None:
        by_key: dict[str, list[VectorEntry]] = {}
        with self._indexes.writing:
            # Read again, now that nobody writes.
            kept = _located(self._source, namespace, entry_ids)
            for entry_id in entry_ids:  # so listings have the same order there
                for key, located in kept.get(entry_id, {}).items():
                    if located.vector is not None:
                        item = VectorEntry(located.entry, located.vector)
                        by_key.setdefault(key, []).append(item)
            # Before: an entry may be in another partition there, or one of another dimension.
            self._target.delete_entries(namespace, entry_ids)
            for key, items in by_key.items():
                statuses = self._target.upsert_entries(namespace, key, items)
                for item, error in zip(items, statuses, strict=True):
                    if error is not None:
                        refused = RefusedEntry(namespace, item.entry.entry_id, error.message)
                        done.refused.append(refused)
                        continue
                    done.copied += 1
                    done.copied_bytes += item.vector.nbytes

    def _remove_strangers(
        self, namespace: str, entries: Sequence[IndexEntry], done: StepTally
    ) -> None:
        ids = list(dict.fromkeys(entry.entry_id for entry in entries))
        kept = _located(self._source, namespace, ids)
        strangers = [entry_id for entry_id in ids if entry_id not in kept]
        if strangers:
            done.removed += sum(self._target.delete_entries(namespace, strangers))

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
            missed_writes=self._indexes.missed_writes,
            source_entries=sum(self._source.get_stats(name).entry_count for name in counted),
            next_page_token=next_page_token,
            source=self._source.get_capabilities().engine,
            target=self._target.get_capabilities().engine,
        )


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


def _unit(vector: Vector) -> Vector:
    length = float(np.linalg.norm(vector.astype(np.float64)))
    return (vector / length).astype(np.float32) if length else vector


def _parsed(page_token: str) -> tuple[str, str, str]:
    """Which index is walked, the namespace to go on in, and the token of its listing there."""
    match = _TOKEN.fullmatch(page_token or "source//")
    if match is None:
        raise bad_page_token()
    return match[1], match[2], match[3]
