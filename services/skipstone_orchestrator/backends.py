"""What the orchestrator needs of the four services, as narrow Protocols.

`skipstone_client`'s asynchronous classes satisfy them by shape. All methods raise the errors of
`skipstone_shared.errors`; the call is given up when the awaiting task is cancelled.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Protocol

from skipstone_shared.denoise_runs import (
    DenoiseCapabilities,
    DenoiseEvent,
    DenoiseRequest,
    DenoiseStats,
    GenerationPlan,
)
from skipstone_shared.embeddings import Embedding, EmbeddingInput
from skipstone_shared.errors import SkipstoneError
from skipstone_shared.generation import GenerationParams
from skipstone_shared.index_entries import (
    IndexPage,
    IndexStats,
    LocatedEntry,
    NamespacePage,
    SearchHit,
    Vector,
    VectorEntry,
)
from skipstone_shared.latents import LatentRef
from skipstone_shared.stored_entries import (
    EvictionEvent,
    StoredEntry,
    StoredEntryPage,
    StoreStats,
)


class Embedder(Protocol):
    """Turns prompts, and frames where its model sees, into search vectors."""

    async def embed_text(self, text: str, *, namespace: str = "") -> Embedding:
        """The vector of one text, with the id of the model it comes from."""
        ...

    async def embed(
        self, inputs: Sequence[EmbeddingInput], *, namespace: str = ""
    ) -> list[Embedding | SkipstoneError]:
        """Per input its vector, or why it has none: `InvalidArgument` for what cannot be read."""
        ...


class EntryIndex(Protocol):
    """Finds entries by vector within one partition, and keeps their payload."""

    async def search_entries(
        self,
        namespace: str,
        compatibility_key: str,
        queries: Sequence[Vector],
        top_k: int,
        *,
        embedding_model_id: str = "",
    ) -> list[list[SearchHit]]:
        """Hits of each query, best first; an empty partition gives none."""
        ...

    async def upsert_entries(
        self, namespace: str, compatibility_key: str, entries: Sequence[VectorEntry]
    ) -> Sequence[SkipstoneError | None]:
        """Stores entries; per entry None, or the error that refused it."""
        ...

    async def get_entry(self, namespace: str, entry_id: str) -> LocatedEntry:
        """One entry. Raises `EntryNotFound` when it is not there."""
        ...

    async def list_entries(
        self, namespace: str, *, page_size: int = 100, page_token: str = ""
    ) -> IndexPage:
        """One page, oldest first."""
        ...

    async def list_namespaces(self, page_size: int = 100, page_token: str = "") -> NamespacePage:
        """One page of the namespaces that have entries, ascending."""
        ...

    async def delete_entries(self, namespace: str, entry_ids: Sequence[str]) -> Sequence[bool]:
        """Removes entries from every partition; per id whether it was there."""
        ...

    async def delete_partition(self, namespace: str, compatibility_key: str = "") -> int:
        """Removes a partition, or all of the namespace; how many entries there were."""
        ...

    async def get_stats(self, namespace: str) -> IndexStats:
        """Counts of a namespace."""
        ...


class EvictionStream(Protocol):
    """Removals as they happen, an asynchronous iterator."""

    def __aiter__(self) -> AsyncIterator[EvictionEvent]:
        """Itself."""
        ...

    async def __anext__(self) -> EvictionEvent:
        """Waits for the next removal."""
        ...

    def close(self) -> None:
        """Ends the stream."""
        ...


class LatentEntries(Protocol):
    """Entries of the latent store, without their bytes."""

    async def get_entry(self, namespace: str, entry_id: str) -> StoredEntry:
        """An entry, committed or not. Raises `EntryNotFound` when it is not there."""
        ...

    async def commit_entry(self, namespace: str, entry_id: str) -> StoredEntry:
        """Makes an entry permanent. Raises `EntryNotFound` when it or its lease is gone."""
        ...

    async def delete_entries(self, namespace: str, entry_ids: Sequence[str]) -> Sequence[bool]:
        """Removes entries; per id whether it was there."""
        ...

    async def delete_namespace(self, namespace: str) -> int:
        """Removes every entry of a namespace; how many there were."""
        ...

    async def list_entries(
        self,
        namespace: str,
        page_size: int = 100,
        page_token: str = "",
        include_uncommitted: bool = False,
    ) -> StoredEntryPage:
        """One page of the entries, by ascending id; of the committed ones where not told else."""
        ...

    async def watch_evictions(self, namespace: str, after_sequence: int = 0) -> EvictionStream:
        """Removals after a sequence number (0: from now on) of a namespace, empty for all.

        The first event is a GAP where events are lost. Raises `InvalidArgument` when the store has
        not come to that number.
        """
        ...

    async def get_stats(self, namespace: str) -> StoreStats:
        """Counts and bytes of a namespace."""
        ...


class Denoiser(Protocol):
    """The denoise executor."""

    async def plan(self, params: GenerationParams, namespace: str = "") -> GenerationPlan:
        """What a run with these parameters would be. Raises `InvalidArgument`."""
        ...

    def run(self, request: DenoiseRequest) -> AsyncGenerator[DenoiseEvent, None]:
        """Runs; closing the generator stops the run within one step.

        Raises `FailedPrecondition` before the first event when the plan is out of date.
        """
        ...

    async def compare_latents(
        self, first: LatentRef, second: LatentRef, namespace: str = ""
    ) -> float:
        """How far apart two stored latents are: 0 for equal, about 1 for unrelated ones."""
        ...

    async def get_stats(self) -> DenoiseStats:
        """Counts of the executor, of all who use it."""
        ...

    async def get_capabilities(self) -> DenoiseCapabilities:
        """The model, its defaults and its limits."""
        ...
