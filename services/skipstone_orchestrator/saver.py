"""Saving after a request, off its path: one queue, one worker, in order.

The executor has written the snapshots of a run under a lease. A save makes the entry permanent in
latent_kv first and findable in vector_index second, so that none is found whose latents may still
vanish. What cannot be saved is dropped and counted; its lease or a discard frees the bytes.

One worker keeps the order: a repair or discard of an entry never overtakes the save that follows.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter as Tally
from collections.abc import Awaitable, Callable

from skipstone_orchestrator.backends import EntryIndex, LatentEntries
from skipstone_orchestrator.breaker import Clock
from skipstone_orchestrator.compatibility import (
    donor_partition,
)
from skipstone_orchestrator.deadlines import Guards
from skipstone_orchestrator.donor_vectors import DonorVectors
from skipstone_orchestrator.journal import SAVE
from skipstone_orchestrator.prompt_keys import PromptKeys
from skipstone_orchestrator.served_counts import ServedCounts
from skipstone_shared.embeddings import Embedding, EncodedImage
from skipstone_shared.errors import EntryNotFound, SkipstoneError
from skipstone_shared.index_entries import IndexEntry, VectorEntry
from skipstone_shared.latents import LatentRef
from skipstone_shared.orchestration import Fallback
from skipstone_shared.request_context import current_request_id, request_scope
from skipstone_shared.structured_logging import get_logger
from skipstone_shared.tracing import current_span, span_scope, traced


@dataclasses.dataclass(frozen=True, slots=True)
class SaveJob:
    """An entry to save.

    Attributes:
        namespace: Partition of all stores.
        entry_id: Entry the snapshots were written under.
        prompt: Prompt of the run.
        seed: Seed of the run.
        compatibility_key: Key of the run.
        snapshots: What was written, by ascending step.
        depth: Resumed runs between it and noise.
        embedding: Vector of the prompt; None when the request did not get one.
        frames: Frames of what the run made; none where donors are found by their prompts.
        replaces: Whether an entry of this id may be in another partition of the index.
    """

    namespace: str
    entry_id: str
    prompt: str
    seed: int
    compatibility_key: str
    snapshots: tuple[LatentRef, ...]
    depth: int = 0
    embedding: Embedding | None = None
    frames: tuple[EncodedImage, ...] = ()
    replaces: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class SaveSettings:
    """How entries are saved.

    Attributes:
        timeout_s: Seconds each call of a save may take.
        store_prompts: Whether the index keeps the prompt of an entry.
        max_donor_depth: Depth up to which an entry may be found as a donor.
        prompts: How prompts stand in what is saved.
    """

    timeout_s: float
    store_prompts: bool
    max_donor_depth: int
    prompts: PromptKeys = dataclasses.field(default_factory=PromptKeys)


class EntryWriter:
    """Makes one entry findable: embed, commit, upsert. The same for `Save` and for the queue."""

    def __init__(
        self,
        *,
        vectors: DonorVectors,
        index: EntryIndex,
        store: LatentEntries,
        guards: Guards,
        settings: SaveSettings,
    ) -> None:
        """Creates the writer."""
        self._vectors = vectors
        self._index = index
        self._store = store
        self._guards = guards
        self._settings = settings

    @traced(SAVE)
    async def write(self, job: SaveJob) -> IndexEntry:
        """Saves an entry; when it returns the entry is found.

        Raises:
            EntryNotFound: The store has no such entry, or its lease ended.
            SkipstoneError: A service failed.
        """
        timeout_s = self._settings.timeout_s
        embedding = await self._vectors.of_entry(
            job.namespace, job.prompt, job.embedding, job.frames
        )
        await self._guards.store.call(
            lambda: self._store.commit_entry(job.namespace, job.entry_id), timeout_s
        )
        entry = self._index_entry(job, embedding)
        await self._guards.index.call(
            lambda: self._upsert(job, VectorEntry(entry, embedding.vector)), timeout_s
        )
        return entry

    async def _upsert(self, job: SaveJob, entry: VectorEntry) -> None:
        if job.replaces:
            await self._index.delete_entries(job.namespace, [job.entry_id])
        partition = donor_partition(
            job.compatibility_key, job.depth, self._settings.max_donor_depth
        )
        refused = (await self._index.upsert_entries(job.namespace, partition, [entry]))[0]
        if refused is not None:
            raise refused

    def _index_entry(self, job: SaveJob, embedding: Embedding) -> IndexEntry:
        return IndexEntry(
            entry_id=job.entry_id,
            prompt=job.prompt if self._settings.store_prompts else "",
            seed=job.seed,
            snapshots=job.snapshots,
            depth=job.depth,
            embedding_model_id=embedding.model_id,
            labels=self._settings.prompts.labels(job.prompt, kept=self._settings.store_prompts),
        )

    @traced("discard")
    async def discard(self, namespace: str, entry_id: str) -> None:
        """Removes an entry that was never committed; a committed one is another run's."""
        try:
            stored = await self._guards.store.call(
                lambda: self._store.get_entry(namespace, entry_id), self._settings.timeout_s
            )
        except EntryNotFound:
            return
        if not stored.committed:
            await self._guards.store.call(
                lambda: self._store.delete_entries(namespace, [entry_id]), self._settings.timeout_s
            )

    @traced("repair")
    async def repair(self, namespace: str, entry_id: str) -> None:
        """Removes an entry from the index when the store really has it no more."""
        try:
            await self._guards.store.call(
                lambda: self._store.get_entry(namespace, entry_id), self._settings.timeout_s
            )
        except EntryNotFound:
            await self._guards.index.call(
                lambda: self._index.delete_entries(namespace, [entry_id]), self._settings.timeout_s
            )


class Saver:
    """The queue of saves, discards and repairs of one replica."""

    def __init__(
        self,
        writer: EntryWriter,
        counts: ServedCounts,
        *,
        queue_size: int,
        late_write_s: float,
        clock: Clock,
    ) -> None:
        """Creates the queue; `run` must be running for it to drain.

        Args:
            writer: Does the work.
            counts: Where saves and drops are counted.
            queue_size: Jobs that may wait.
            late_write_s: Seconds until a snapshot of an abandoned run must have arrived.
            clock: Seconds.
        """
        self._late_write_s = late_write_s
        self._writer = writer
        self._counts = counts
        self._clock = clock
        self._queue: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue(queue_size)
        self._waiting: Tally[str] = Tally()
        self._claimed: set[tuple[str, str]] = set()

    @property
    def waiting_saves(self) -> int:
        """Saves that are not done."""
        return self._waiting.total()

    def waiting_saves_of(self, namespace: str) -> int:
        """Saves of a namespace that are not done."""
        return self._waiting[namespace]

    def claim(self, namespace: str, entry_id: str) -> bool:
        """Reserves an entry id for one run of this replica, until it is saved, discarded, released.

        Two runs of the same request at the same time would write the same entry, and the one that
        is abandoned would take away what the other has written.
        """
        key = (namespace, entry_id)
        if key in self._claimed:
            return False
        self._claimed.add(key)
        return True

    def release(self, namespace: str, entry_id: str) -> None:
        """Gives a claim back under which nothing was written."""
        self._claimed.discard((namespace, entry_id))

    def save(self, job: SaveJob) -> bool:
        """Queues the save of a claimed entry; False when the queue is full and it is dropped."""
        if not self._put(lambda: self._save(job)):
            self.release(job.namespace, job.entry_id)
            self._counts.count_dropped(job.namespace)
            return False
        self._waiting[job.namespace] += 1
        return True

    def discard(self, namespace: str, entry_id: str) -> None:
        """Queues the removal of what an abandoned run wrote under a claimed entry.

        It is done twice, since a snapshot may still be on its way. When the queue is full the
        entry's lease does it.
        """
        self._queue_discard(namespace, entry_id)
        loop = asyncio.get_running_loop()
        loop.call_later(self._late_write_s, self._discard_late, namespace, entry_id)

    def _discard_late(self, namespace: str, entry_id: str) -> None:
        if self.claim(namespace, entry_id):  # else the same request runs again and writes it anew
            self._queue_discard(namespace, entry_id)

    def _queue_discard(self, namespace: str, entry_id: str) -> None:
        if not self._put(lambda: self._discard(namespace, entry_id)):
            self.release(namespace, entry_id)

    def repair(self, namespace: str, entry_id: str) -> None:
        """Queues the removal of an index entry whose latents are gone; the next hit can retry."""
        self._put(lambda: self._writer.repair(namespace, entry_id))

    async def run(self) -> None:
        """Works on the queue for ever."""
        while True:
            job = await self._queue.get()
            try:
                await job()
            except SkipstoneError as error:
                get_logger().warning("clean-up failed", reason=error.reason, error=error.message)
            finally:
                self._queue.task_done()

    async def settle(self) -> None:
        """Waits until everything that waits at this moment is done; what comes later is not."""
        reached = asyncio.Event()

        async def reach() -> None:
            reached.set()

        await self._queue.put(reach)
        await reached.wait()

    async def drain(self, timeout_s: float) -> None:
        """Waits until the queue is worked off, at most `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._queue.join()
        except TimeoutError:
            get_logger().warning("saves lost at shutdown", count=self.waiting_saves)

    def _put(self, job: Callable[[], Awaitable[None]]) -> bool:
        request_id, span = current_request_id(), current_span()

        async def scoped() -> None:
            with request_scope(request_id), span_scope(span):
                await job()

        try:
            self._queue.put_nowait(scoped)
        except asyncio.QueueFull:
            return False
        return True

    async def _save(self, job: SaveJob) -> None:
        started = self._clock()
        try:
            await self._writer.write(job)
            self._counts.count_saved(job.namespace)
        except SkipstoneError as error:
            self._counts.count_dropped(job.namespace)
            delay = self._clock() - started
            lost = Fallback(SAVE, "", error.reason, error.message, delay)
            self._counts.count_fallbacks([lost], job.namespace)
            get_logger().warning("save dropped", reason=error.reason, error=error.message)
            await self._writer.discard(job.namespace, job.entry_id)
        finally:
            self._waiting[job.namespace] -= 1
            self._waiting += Tally()  # forgets those at nought
            self.release(job.namespace, job.entry_id)

    async def _discard(self, namespace: str, entry_id: str) -> None:
        try:
            await self._writer.discard(namespace, entry_id)
        finally:
            self.release(namespace, entry_id)
