"""Copies what the source of a `MirroredIndex` had before, and removes what it has no more.

A pass walks the source and copies what the target lacks or has otherwise, then walks the target and
removes what the source does not have. It works from what it finds, so it needs no memory of its
own: it may be broken off anywhere, begun again, and repeated. A pass that copied and removed
nothing has found both indexes equal.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from skipstone_shared.errors import EntryNotFound, InvalidArgument
from skipstone_shared.index_entries import IndexEntry, LocatedEntry, Vector, VectorEntry
from skipstone_shared.migration import MigrationStep, RefusedEntry
from skipstone_vector_index.index import VectorIndex
from skipstone_vector_index.mirrored_index import MirroredIndex

_PAGE_SIZE = 100
_TOKEN = re.compile(r"(source|target)/([A-Za-z0-9_.-]*)/([A-Za-z0-9-]*)")

_SAME_VECTOR = 1e-5
"""Largest difference of an element of two unit vectors that were one: each index scales anew."""


@dataclasses.dataclass
class _Done:
    compared: int = 0
    copied: int = 0
    copied_bytes: int = 0
    removed: int = 0
    refused: list[RefusedEntry] = dataclasses.field(default_factory=list)


class IndexMover:
    """Makes the target what the source is; a `Mover`. Steps may run at the same time.

    An id that is in two partitions of a namespace moves with the one stored last, and the other
    one is told as refused; Skipstone makes ids of the key of the partition.
    """

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
        done = _Done()
        namespaces = [name for name in _namespaces(walked) if name >= first]
        if not namespaces:
            return self._told(done, "target//" if side == "source" else "", page_token)
        namespace = namespaces[0]
        start = token if namespace == first else ""
        page = walked.list_entries(namespace, page_size=_PAGE_SIZE, page_token=start)
        if side == "source":
            if self._copy_missing(namespace, page.entries, done):
                self._tell_shadowed(namespace, start, done)
        else:
            self._remove_strangers(namespace, page.entries, done)
        if page.next_page_token:
            goes_on = f"{side}/{namespace}/{page.next_page_token}"
        elif namespaces[1:]:
            goes_on = f"{side}/{namespaces[1]}/"
        else:
            goes_on = "target//" if side == "source" else ""
        return self._told(done, goes_on, page_token)

    def _copy_missing(self, namespace: str, entries: Sequence[IndexEntry], done: _Done) -> bool:
        """Copies what the target lacks; whether an entry was listed otherwise than it is found."""
        missing, any_differs = [], False
        for entry in entries:
            done.compared += 1
            kept = _find(self._source, namespace, entry.entry_id)
            if kept is None:
                continue  # It was deleted meanwhile.
            any_differs |= kept.entry != entry
            if not self._same(kept, _find(self._target, namespace, entry.entry_id)):
                missing.append(entry.entry_id)
        if missing:
            self._copy(namespace, missing, done)
        return any_differs

    def _tell_shadowed(self, namespace: str, page_token: str, done: _Done) -> None:
        """Refuses entries that nobody can get, since another partition has a later one of the id.

        Listed anew: one that has only just been overwritten looked the same.
        """
        page = self._source.list_entries(namespace, page_size=_PAGE_SIZE, page_token=page_token)
        for entry in page.entries:
            kept = _find(self._source, namespace, entry.entry_id)
            if kept is not None and kept.entry != entry:
                reason = "another partition has a later entry of this id"
                done.refused.append(RefusedEntry(namespace, entry.entry_id, reason))

    def _copy(self, namespace: str, entry_ids: Sequence[str], done: _Done) -> None:
        by_key: dict[str, list[VectorEntry]] = {}
        with self._indexes.writing:
            for entry_id in entry_ids:
                # Again, now that nobody writes.
                kept = _find(self._source, namespace, entry_id)
                if kept is not None and kept.vector is not None:
                    item = VectorEntry(kept.entry, kept.vector)
                    by_key.setdefault(kept.compatibility_key, []).append(item)
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

    def _remove_strangers(self, namespace: str, entries: Iterable[IndexEntry], done: _Done) -> None:
        strangers = [
            entry.entry_id
            for entry in entries
            if _find(self._source, namespace, entry.entry_id) is None
        ]
        if strangers:
            done.removed += sum(self._target.delete_entries(namespace, strangers))

    def _same(self, kept: LocatedEntry, copy: LocatedEntry | None) -> bool:
        if copy is None or copy != kept or copy.vector is None or kept.vector is None:
            return False
        one, other = copy.vector, kept.vector
        if one.shape != other.shape:
            return False
        if self._is_cosine:
            one, other = _unit(one), _unit(other)
        return bool(np.allclose(one, other, rtol=_SAME_VECTOR, atol=_SAME_VECTOR))

    def _told(self, done: _Done, next_page_token: str, page_token: str) -> MigrationStep:
        counted = () if page_token else _namespaces(self._source)
        return MigrationStep(
            compared=done.compared,
            copied=done.copied,
            copied_bytes=done.copied_bytes,
            removed=done.removed,
            refused=tuple(done.refused),
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


def _find(index: VectorIndex, namespace: str, entry_id: str) -> LocatedEntry | None:
    try:
        return index.get_entry(namespace, entry_id, include_vector=True)
    except EntryNotFound:
        return None


def _unit(vector: Vector) -> Vector:
    length = float(np.linalg.norm(vector.astype(np.float64)))
    return (vector / length).astype(np.float32) if length else vector


def _parsed(page_token: str) -> tuple[str, str, str]:
    """Which index is walked, the namespace to go on in, and the token of its listing there."""
    match = _TOKEN.fullmatch(page_token or "source//")
    if match is None:
        raise InvalidArgument(
            "page_token is not one that a step returned",
            field="page_token",
            allowed="next_page_token of the step before, or empty",
        )
    return match[1], match[2], match[3]
