"""Which partitions there are and where each entry is: what an index keeps in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from skipstone_shared.index_entries import Vector
from skipstone_vector_index.adaptive_vectors import AdaptiveVectors
from skipstone_vector_index.record_codec import Record
from skipstone_vector_index.record_log import Key
from skipstone_vector_index.vectors import Matrix


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where an entry is.

    Attributes:
        label: Its label in the log and among the vectors.
        embedding_model_id: Which of the partition's vectors hold it.
    """

    label: int
    embedding_model_id: str


@dataclasses.dataclass(slots=True, eq=False)
class Partition:
    """One (namespace, compatibility key) with entries.

    Vectors of different models are kept apart, so that a search for one model never has to step
    over those of others.

    Attributes:
        number: Its number in the log; never used again for another partition.
        namespace: Its namespace.
        compatibility_key: Its key.
        dimension: Elements of its vectors.
        places: Place of each entry by its id.
        vectors: Vectors by embedding model id.
    """

    number: int
    namespace: str
    compatibility_key: str
    dimension: int
    places: dict[str, Place] = dataclasses.field(default_factory=dict)
    vectors: dict[str, AdaptiveVectors] = dataclasses.field(default_factory=dict)

    def key_of(self, entry_id: str) -> Key:
        """Returns the log's key of an entry that is here."""
        return self.number, self.places[entry_id].label


class Catalog:
    """The partitions of an index.

    One thread at a time may change it; others may read meanwhile: every read is one step of a dict
    or works on a `list` of it, which CPython copies in one step.
    """

    def __init__(
        self,
        new_vectors: Callable[[Partition, str], AdaptiveVectors],
        searchable: Callable[[Matrix], Matrix],
    ) -> None:
        """Creates an empty catalog.

        Args:
            new_vectors: Makes an empty set of vectors of an embedding model in a partition.
            searchable: Turns stored vectors into those that are searched.
        """
        self._new_vectors = new_vectors
        self._searchable = searchable
        self._partitions: dict[str, dict[str, Partition]] = {}

    def find(self, namespace: str, compatibility_key: str) -> Partition | None:
        """Returns a partition; None when it has no entries."""
        return self._partitions.get(namespace, {}).get(compatibility_key)

    def select(self, namespace: str, compatibility_key: str = "") -> list[Partition]:
        """Returns the named partition if it has entries, or all of the namespace."""
        if not compatibility_key:
            return list(self._partitions.get(namespace, {}).values())
        found = self.find(namespace, compatibility_key)
        return [] if found is None else [found]

    def namespaces(self) -> list[str]:
        """Returns the namespaces that have entries."""
        return list(self._partitions)

    def holding(self, namespace: str, entry_id: str) -> Iterator[Partition]:
        """Yields the partitions of a namespace that have an entry of this id."""
        for partition in self.select(namespace):
            if entry_id in partition.places:
                yield partition

    def put(self, partition: Partition, records: Mapping[Key, Record]) -> None:
        """Adds or replaces entries of a partition, which becomes known if it was not."""
        named = self._partitions.setdefault(partition.namespace, {})
        named[partition.compatibility_key] = partition
        added: dict[str, tuple[list[int], list[Vector]]] = {}
        moved: list[Place] = []
        for (_, label), record in records.items():
            model_id = record.embedding_model_id
            old = partition.places.get(record.entry_id)
            if old and old.embedding_model_id != model_id:
                moved.append(old)
            labels, vectors = added.setdefault(model_id, ([], []))
            labels.append(label)
            vectors.append(record.vector)
            partition.places[record.entry_id] = Place(label, model_id)
        for model_id, (labels, vectors) in added.items():
            if model_id not in partition.vectors:
                partition.vectors[model_id] = self._new_vectors(partition, model_id)
            rows = self._searchable(np.stack(vectors))
            partition.vectors[model_id].put(np.array(labels), rows)
        _drop_vectors(partition, moved)

    def remove(self, partition: Partition, entry_ids: Iterable[str]) -> None:
        """Removes entries of a partition, and the partition itself with the last of them."""
        _drop_vectors(partition, [partition.places.pop(entry_id) for entry_id in entry_ids])
        if partition.places:
            return
        named = self._partitions[partition.namespace]
        del named[partition.compatibility_key]
        if not named:
            del self._partitions[partition.namespace]


def _drop_vectors(partition: Partition, places: Iterable[Place]) -> None:
    by_model: dict[str, list[int]] = {}
    for place in places:
        by_model.setdefault(place.embedding_model_id, []).append(place.label)
    for model_id, labels in by_model.items():
        vectors = partition.vectors[model_id]
        if len(labels) == vectors.live_count:
            del partition.vectors[model_id]
            vectors.discard()
        else:
            vectors.remove(np.array(labels))
