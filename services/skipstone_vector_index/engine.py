"""What `EngineIndex` needs of a vector engine that runs elsewhere and may be shared."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Protocol

from skipstone_shared.index_entries import IndexStats, Vector
from skipstone_vector_index.vector_form import Matrix


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionName:
    """A partition: nothing of another one is ever found in it."""

    namespace: str
    compatibility_key: str

    def digest(self) -> str:
        """Returns 32 hexadecimal characters that stand for it; names hold no slash."""
        return _digest(f"{self.namespace}/{self.compatibility_key}")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Row:
    """An entry as an engine keeps it.

    Attributes:
        entry_id: Its id, unique in its partition.
        packed: The entry, as ``index_entry_messages.pack_entry`` made it.
        vector: float32 ``(dimension,)``; the engine gives it back bit for bit.
    """

    entry_id: str
    packed: bytes
    vector: Vector


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class NewRow(Row):
    """A row to store; ``model`` is the `model_digest` of the model of its vector."""

    model: str


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LocatedRow:
    """A row and the compatibility key of its partition."""

    compatibility_key: str
    row: Row


@dataclasses.dataclass(frozen=True, slots=True)
class ListedRow:
    """An entry in a listing: its label and the packed entry."""

    label: int
    packed: bytes


class OtherDimension(Exception):
    """The vectors of a partition have another dimension than those that came.

    Attributes:
        dimension: The one that they have.
    """

    def __init__(self, dimension: int) -> None:
        super().__init__(f"the vectors of the partition have {dimension} elements")
        self.dimension = dimension


class VectorEngine(Protocol):
    """Keeps rows and finds the nearest by inner product. Names and numbers have been checked.

    A label numbers a row in the order in which rows were first stored; it stays when a row is
    replaced. Vectors are unit vectors where similarities are cosines, so that the inner product
    orders them.

    Threads: every method may be called from any thread, and by several processes on one engine.

    Every method raises Unavailable when the engine cannot be reached or is starting or stopping,
    DeadlineExceeded when it does not answer in time, and ResourceExhausted when it is full. An
    engine that is back is used again without any further call.
    """

    name: str
    """For capabilities: ``pgvector``."""

    exact_search_limit: int
    """Entries up to which a partition is searched exactly."""

    max_packed_bytes: int
    """Largest packed entry that it can keep."""

    def put(self, partition: PartitionName, rows: Sequence[NewRow]) -> None:
        """Stores rows of one dimension and distinct ids, replacing those of the same id.

        When it returns the rows are durable and found by every later search of this process, and
        by those of others as soon as the engine promises.

        Raises:
            OtherDimension: The partition has rows of another one; nothing is stored.
        """
        ...

    def nearest(
        self, partition: PartitionName, queries: Matrix, count: int, model: str | None
    ) -> list[list[Row]]:
        """Returns per query about ``count`` rows with the largest inner products, in any order.

        Args:
            partition: Where to search.
            queries: float32 ``(n, dimension)``.
            count: Rows wanted per query; fewer when there are fewer.
            model: Only rows of this model digest; None for all.

        Raises:
            OtherDimension: The partition has rows of another one.
        """
        ...

    def find(self, namespace: str, entry_id: str) -> LocatedRow | None:
        """Returns the row of an entry, of several partitions the one stored last."""
        ...

    def find_all(self, namespace: str, entry_ids: Sequence[str]) -> list[LocatedRow]:
        """Returns the rows of up to a hundred entries in all partitions of a namespace."""
        ...

    def last_label(self) -> int:
        """Returns a number that no row stored until now has a label above."""
        ...

    def page(
        self, namespace: str, compatibility_key: str, after: int, until: int, limit: int
    ) -> list[ListedRow]:
        """Returns the first rows with ``after < label <= until``, by ascending label.

        Args:
            namespace: Namespace.
            compatibility_key: Only this partition; empty for all of the namespace.
            after: Label.
            until: Label.
            limit: Rows wanted.
        """
        ...

    def namespaces(self) -> list[str]:
        """Returns the namespaces that have rows, in any order."""
        ...

    def delete(self, namespace: str, entry_ids: Sequence[str]) -> set[str]:
        """Removes rows from every partition of a namespace; returns the ids that were there."""
        ...

    def delete_partition(self, namespace: str, compatibility_key: str) -> int:
        """Removes a partition, or the namespace when the key is empty; returns how many rows."""
        ...

    def stats(self, namespace: str) -> IndexStats:
        """Counts a namespace."""
        ...

    def count(self) -> int:
        """Returns how many rows there are, of all namespaces; cheap also where they are many."""
        ...

    def close(self) -> None:
        """Releases connections and threads. Called once."""
        ...


def model_digest(embedding_model_id: str) -> str:
    """Returns 32 hexadecimal characters that stand for a model; its id may be too long to index."""
    return _digest(embedding_model_id)


def _digest(text: str) -> str:
    # Cryptographic: nobody may choose names that lead into the partition of somebody else.
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
