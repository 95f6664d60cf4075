"""What a vector index stores and answers, as plain dataclasses.

Vectors are float32 of shape ``(dimension,)``; similarities are cosines, -1 to 1, or inner products
where the index says so; higher is closer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from skipstone_shared.latents import LatentRef

Vector = npt.NDArray[np.float32]


@dataclasses.dataclass(frozen=True, slots=True)
class IndexEntry:
    """What was generated and which snapshots it can give.

    Attributes:
        entry_id: 1 to 128 characters of [A-Za-z0-9_.-].
        prompt: Prompt it was generated from; empty when prompts are not stored.
        seed: Seed it was generated with.
        snapshots: References by ascending step_index.
        depth: Resumed runs between it and noise; 0 for a full run.
        create_time: Seconds since the epoch; 0 lets the index set it.
        embedding_model_id: Model the vector comes from.
        labels: At most 16 small labels.
    """

    entry_id: str
    prompt: str = ""
    seed: int = 0
    snapshots: tuple[LatentRef, ...] = ()
    depth: int = 0
    create_time: float = 0.0
    embedding_model_id: str = ""
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class VectorEntry:
    """An entry with its vector: float32 ``(dimension,)``, finite, not all zero, any norm."""

    entry: IndexEntry
    vector: Vector


@dataclasses.dataclass(frozen=True, slots=True)
class SearchHit:
    """One entry found."""

    entry: IndexEntry
    similarity: float


@dataclasses.dataclass(frozen=True, slots=True)
class PackedHit:
    """One entry found, for who only passes it on.

    Attributes:
        packed: The entry, as ``index_entry_messages.pack_entry`` made it.
        similarity: Its similarity.
    """

    packed: bytes
    similarity: float


@dataclasses.dataclass(frozen=True, slots=True)
class LocatedEntry:
    """An entry and where it is.

    Attributes:
        entry: The entry.
        compatibility_key: Key of its partition.
        vector: Its vector as it is kept, float32 ``(dimension,)``; None when not asked for.
    """

    entry: IndexEntry
    compatibility_key: str
    vector: Vector | None = dataclasses.field(default=None, compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class IndexPage:
    """One page of a listing; an empty token means that it was the last."""

    entries: tuple[IndexEntry, ...]
    next_page_token: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class NamespacePage:
    """One page of namespaces; an empty token means that it was the last."""

    namespaces: tuple[str, ...]
    next_page_token: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class IndexStats:
    """Counts of one namespace; ``disk_bytes`` is of the whole index."""

    entry_count: int
    partition_count: int
    tombstone_count: int = 0
    disk_bytes: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class IndexCapabilities:
    """Engine and limits of an index; ``metric`` is cosine or inner_product."""

    engine: str
    max_top_k: int = 1000
    max_batch_size: int = 1000
    exact_search_limit: int = 0
    max_dimension: int = 8192
    metric: str = "cosine"
