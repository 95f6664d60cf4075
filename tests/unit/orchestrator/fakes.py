"""Tiny real services in memory: what the orchestrator's Protocols promise, without a wire.

Each can be told to fail or to hang in a method: `trouble["get_entry"] = Unavailable("gone")`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import numpy as np

from skipstone_shared.denoise_runs import (
    DenoiseCapabilities,
    DenoiseEvent,
    DenoiseFinished,
    DenoiseRequest,
    DenoiseStarted,
    DenoiseStats,
    GenerationPlan,
    ResumeKind,
    SchedulerResume,
    SnapshotFailure,
    SnapshotWritten,
)
from skipstone_shared.embeddings import (
    Embedding,
    EmbeddingCapabilities,
    EmbeddingInput,
    EncodedImage,
)
from skipstone_shared.errors import (
    CompatibilityMismatch,
    EntryNotFound,
    InvalidArgument,
    LatentNotFound,
    SkipstoneError,
)
from skipstone_shared.generation import Artifact, GenerationParams, StepProgress
from skipstone_shared.index_entries import (
    IndexCapabilities,
    IndexEntry,
    IndexPage,
    IndexStats,
    LocatedEntry,
    SearchHit,
    Vector,
    VectorEntry,
)
from skipstone_shared.latents import (
    DType,
    GuidanceMode,
    LatentFingerprint,
    LatentRef,
    SnapshotMetadata,
    TensorPart,
    TensorSpec,
    canonical_hash,
    checksum,
    compatibility_key,
)
from skipstone_shared.stored_entries import (
    StoreCapabilities,
    StoredEntry,
    StoredEntryPage,
    StoredSnapshot,
    StoreStats,
)

HANG = "hang"
SPEC = TensorSpec(DType.FLOAT32, (1, 4, 2, 2))


class Service:
    """A service that can be made to fail or to hang, method by method."""

    def __init__(self) -> None:
        self.trouble: dict[str, Exception | str] = {}
        self.calls: list[str] = []

    def break_all(self, trouble: Exception | str, *methods: str) -> None:
        self.trouble.update(dict.fromkeys(methods, trouble))

    async def meet(self, method: str) -> None:
        self.calls.append(method)
        # A real call always lets others run.
        await asyncio.sleep(0)
        trouble = self.trouble.get(method)
        if trouble == HANG:
            await asyncio.Event().wait()
        if isinstance(trouble, Exception):
            raise trouble


class BagOfWords(Service):
    """Cosine of two prompts = shared words over words, when both have equally many."""

    model_id = "bag-of-words"

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[str, int] = {}
        self.is_blind = False
        self.seen: list[tuple[EncodedImage, ...]] = []

    async def embed_text(self, text: str, *, namespace: str = "") -> Embedding:
        await self.meet("embed_text")
        vector = np.zeros(256, np.float32)
        for word in text.casefold().split():
            vector[self._places.setdefault(word, len(self._places))] += 1
        return Embedding(vector / np.linalg.norm(vector), model_id=self.model_id)

    async def embed(
        self, inputs: Sequence[EmbeddingInput], *, namespace: str = ""
    ) -> list[Embedding | SkipstoneError]:
        """A frame is the bytes of what is to be seen on it."""
        await self.meet("embed")
        (item,) = inputs
        self.seen.append(item.frames)
        if self.is_blind:
            return [InvalidArgument("the model reads no frames", field="frames")]
        text = " ".join(frame.data.decode(errors="replace") for frame in item.frames)
        return [await self.embed_text(text, namespace=namespace)]

    async def get_capabilities(self) -> EmbeddingCapabilities:
        await self.meet("get_capabilities")
        return EmbeddingCapabilities(self.model_id, 256)


class MemoryIndex(Service):
    """An exact vector index."""

    def __init__(self) -> None:
        super().__init__()
        self.partitions: dict[tuple[str, str], dict[str, VectorEntry]] = {}

    def ids(self, namespace: str = "default") -> list[str]:
        return [i for (n, _), part in self.partitions.items() if n == namespace for i in part]

    async def search_entries(
        self,
        namespace: str,
        compatibility_key: str,
        queries: Sequence[Vector],
        top_k: int,
        *,
        embedding_model_id: str = "",
    ) -> list[list[SearchHit]]:
        await self.meet("search_entries")
        part = self.partitions.get((namespace, compatibility_key), {})
        found = []
        for query in queries:
            hits = [
                SearchHit(e.entry, float(query @ e.vector))
                for e in part.values()
                if e.entry.embedding_model_id == embedding_model_id
            ]
            found.append(sorted(hits, key=lambda h: (-h.similarity, h.entry.entry_id))[:top_k])
        return found

    async def upsert_entries(
        self, namespace: str, compatibility_key: str, entries: Sequence[VectorEntry]
    ) -> list[SkipstoneError | None]:
        await self.meet("upsert_entries")
        part = self.partitions.setdefault((namespace, compatibility_key), {})
        part.update({entry.entry.entry_id: entry for entry in entries})
        return [None] * len(entries)

    async def get_entry(self, namespace: str, entry_id: str) -> LocatedEntry:
        await self.meet("get_entry")
        for (ns, key), part in self.partitions.items():
            if ns == namespace and entry_id in part:
                return LocatedEntry(part[entry_id].entry, key)
        raise EntryNotFound(entry_id)

    async def list_entries(
        self, namespace: str, *, page_size: int = 100, page_token: str = ""
    ) -> IndexPage:
        await self.meet("list_entries")
        entries: list[IndexEntry] = []
        for (ns, _), part in self.partitions.items():
            if ns == namespace:
                entries += [e.entry for e in part.values()]
        start = int(page_token or 0)
        end = start + page_size
        return IndexPage(tuple(entries[start:end]), str(end) if end < len(entries) else "")

    async def delete_entries(self, namespace: str, entry_ids: Sequence[str]) -> list[bool]:
        await self.meet("delete_entries")
        existed = [i in self.ids(namespace) for i in entry_ids]
        for (ns, _), part in self.partitions.items():
            if ns == namespace:
                for entry_id in entry_ids:
                    part.pop(entry_id, None)
        return existed

    async def delete_partition(self, namespace: str, compatibility_key: str = "") -> int:
        await self.meet("delete_partition")
        gone = [
            key
            for key in self.partitions
            if key[0] == namespace and compatibility_key in ("", key[1])
        ]
        return sum(len(self.partitions.pop(key)) for key in gone)

    async def get_stats(self, namespace: str) -> IndexStats:
        await self.meet("get_stats")
        return IndexStats(len(self.ids(namespace)), len(self.partitions))

    async def get_capabilities(self) -> IndexCapabilities:
        await self.meet("get_capabilities")
        return IndexCapabilities("memory")


class MemoryStore(Service):
    """A latent store; bytes are texts that say how a latent came about."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[tuple[str, str], dict[int, tuple[StoredSnapshot, str]]] = {}
        self.committed: set[tuple[str, str]] = set()

    def write(
        self, namespace: str, entry_id: str, step: int, steps: int, latent: str, **metadata: object
    ) -> LatentRef:
        """What the executor does with a snapshot."""
        sigma = 1 - step / steps
        key = str(metadata["compatibility_key"])
        ref = LatentRef(
            namespace,
            entry_id,
            step,
            spec=SPEC,
            xxh3_64=checksum(latent.encode()),
            size_bytes=SPEC.size_bytes,
            sigma=sigma,
            compatibility_key=key,
        )
        about = SnapshotMetadata(
            entry_id,
            step,
            steps,
            sigma,
            key,
            (TensorPart("latents", SPEC),),
            depth=int(str(metadata.get("depth", 0))),
        )
        snapshots = self.entries.setdefault((namespace, entry_id), {})
        snapshots[step] = (StoredSnapshot(ref, about), latent)
        return ref

    def read(self, ref: LatentRef) -> tuple[SnapshotMetadata, str] | None:
        found = self.entries.get((ref.namespace, ref.entry_id), {}).get(ref.step_index)
        return None if found is None else (found[0].metadata, found[1])

    async def get_entry(self, namespace: str, entry_id: str) -> StoredEntry:
        await self.meet("get_entry")
        return self._entry(namespace, entry_id)

    async def commit_entry(self, namespace: str, entry_id: str) -> StoredEntry:
        await self.meet("commit_entry")
        self._entry(namespace, entry_id)
        self.committed.add((namespace, entry_id))
        return self._entry(namespace, entry_id)

    async def delete_entries(self, namespace: str, entry_ids: Sequence[str]) -> list[bool]:
        await self.meet("delete_entries")
        self.committed -= {(namespace, i) for i in entry_ids}
        return [self.entries.pop((namespace, i), None) is not None for i in entry_ids]

    async def delete_namespace(self, namespace: str) -> int:
        await self.meet("delete_namespace")
        gone = [key for key in self.entries if key[0] == namespace]
        self.committed -= set(gone)
        return sum(bool(self.entries.pop(key)) for key in gone)

    async def list_entries(
        self,
        namespace: str,
        page_size: int = 100,
        page_token: str = "",
        include_uncommitted: bool = False,
    ) -> StoredEntryPage:
        await self.meet("list_entries")
        ids = sorted(
            i
            for ns, i in self.entries
            if ns == namespace
            and i > page_token
            and (include_uncommitted or (ns, i) in self.committed)
        )
        entries = tuple(self._entry(namespace, i) for i in ids[:page_size])
        return StoredEntryPage(entries, ids[page_size - 1] if len(ids) > page_size else "")

    async def get_stats(self, namespace: str) -> StoreStats:
        await self.meet("get_stats")
        snapshots = [s for (ns, _), e in self.entries.items() if ns == namespace for s in e]
        return StoreStats(len(self.committed), 0, len(snapshots), len(snapshots) * 64)

    async def get_capabilities(self) -> StoreCapabilities:
        await self.meet("get_capabilities")
        return StoreCapabilities("memory", 1 << 20, "process")

    def _entry(self, namespace: str, entry_id: str) -> StoredEntry:
        snapshots = self.entries.get((namespace, entry_id))
        if snapshots is None:
            raise EntryNotFound(entry_id)
        ordered = tuple(snapshots[step][0] for step in sorted(snapshots))
        return StoredEntry(
            entry_id, ordered, 0.0, 0.0, committed=(namespace, entry_id) in self.committed
        )


def fingerprint(params: GenerationParams, model_id: str = "tiny") -> LatentFingerprint:
    steps = params.num_inference_steps or 10
    return LatentFingerprint(
        model_id=model_id,
        pipeline_class="P",
        weights_hash="w",
        text_encoder_id="t",
        vae_id="v",
        latents=SPEC,
        height=64,
        width=64,
        scheduler_class="FlowMatchEulerDiscreteScheduler",
        scheduler_config_hash="c",
        sigmas_hash=canonical_hash(steps),
        num_inference_steps=steps,
        prediction_type="flow",
        guidance_mode=GuidanceMode.BATCHED,
        guidance_scales=(params.guidance_scale or 3.0,),
        negative_prompt=params.negative_prompt,
    )


class Executor(Service):
    """An executor whose pictures are texts that say how they came about."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__()
        self.store = store
        self.model_id = "tiny"
        self.instance = 1
        self.kinds: tuple[ResumeKind, ...] = tuple(ResumeKind)
        self.requests: list[DenoiseRequest] = []
        self.stopped_at: int | None = None
        self.fail_at_step: tuple[int, SkipstoneError] | None = None
        self.lose_once: tuple[int, SkipstoneError] | None = None
        self.refuse_with = ""
        self.snapshot_failure = ""
        self.gate: asyncio.Event | None = None
        self.gate_from = 0
        self.drift = 0.3
        self.shows: dict[str, str] = {}
        self.running = 0
        self.others_running = 0
        self.others_queued = 0

    def restart(self, model_id: str) -> None:
        self.model_id = model_id
        self.instance += 1

    async def plan(self, params: GenerationParams, namespace: str = "") -> GenerationPlan:
        await self.meet("plan")
        steps = 10 if params.num_inference_steps is None else params.num_inference_steps
        if not 1 <= steps <= 1000:
            raise InvalidArgument(
                f"params.num_inference_steps is {steps}",
                field="params.num_inference_steps",
                allowed="1 to 1000",
            )
        guidance = params.guidance_scale or 3.0
        if not math.isfinite(guidance):  # as the real one does
            raise InvalidArgument("guidance is not finite", field="params.guidance_scale")
        params = dataclasses.replace(params, num_inference_steps=steps, guidance_scale=guidance)
        about = fingerprint(params, self.model_id)
        return GenerationPlan(
            params=dataclasses.replace(params, seed=None),
            fingerprint=about,
            compatibility_key=compatibility_key(about),
            sigmas=tuple(1 - k / steps for k in range(steps + 1)),
            resume_kinds=self.kinds,
            instance_id=str(self.instance),
        )

    async def run(self, request: DenoiseRequest) -> AsyncGenerator[DenoiseEvent, None]:
        self.running += 1
        try:
            async with aclosing(self._run(request)) as events:
                async for event in events:
                    yield event
        finally:
            self.running -= 1

    async def _run(self, request: DenoiseRequest) -> AsyncGenerator[DenoiseEvent, None]:
        await self.meet("run")
        self.requests.append(request)
        plan = await self.plan(request.params)
        if request.expected_compatibility_key != plan.compatibility_key:
            raise CompatibilityMismatch("the executor has another model")
        steps = len(plan.sigmas) - 1
        latent, skip, depth, refusal = self._start(request)
        yield DenoiseStarted(skip, refusal, refusal and f"donor refused: {refusal}")
        written: list[LatentRef] = []
        failures: list[SnapshotFailure] = []
        wanted = request.snapshots
        for step in range(skip, steps):
            if wanted is not None and step in wanted.key_steps and step > skip:
                self._write(request, plan, step, f"{latent}@{step}", depth, written, failures)
                yield (
                    SnapshotWritten(written[-1])
                    if written
                    else SnapshotWritten(LatentRef("", "none", 0))
                )
            if self.fail_at_step is not None and self.fail_at_step[0] == step:
                raise self.fail_at_step[1]
            if self.lose_once is not None and self.lose_once[0] == step:
                error, self.lose_once = self.lose_once[1], None
                raise error
            if self.gate is not None and step >= self.gate_from:
                await self.gate.wait()
            try:
                yield StepProgress(step, steps)
            except GeneratorExit:
                self.stopped_at = step
                raise
        if wanted is not None and wanted.store_clean and skip < steps:
            self._write(request, plan, steps, latent, depth, written, failures)
        if request.wants_artifact:
            yield Artifact("image/png", latent.encode(), 64, 64)
        yield DenoiseFinished(
            steps - skip,
            skip,
            plan.compatibility_key,
            tuple(written),
            tuple(failures),
            frames=self._frames(request),
        )

    def _frames(self, request: DenoiseRequest) -> tuple[EncodedImage, ...]:
        """What is to be seen is what `shows` says, else the prompt."""
        shown = self.shows.get(request.params.prompt, request.params.prompt)
        return (EncodedImage("image/jpeg", shown.encode()),) * min(request.sample_frames, 5)

    async def compare_latents(
        self, first: LatentRef, second: LatentRef, namespace: str = ""
    ) -> float:
        """`drift` unless both came about in the same way."""
        await self.meet("compare_latents")
        found = [self.store.read(ref) for ref in (first, second)]
        if None in found:
            raise LatentNotFound("evicted")
        one, other = (f[1] for f in found if f is not None)
        return 0.0 if one == other else self.drift

    async def get_stats(self) -> DenoiseStats:
        await self.meet("get_stats")
        return DenoiseStats(
            running_count=self.running + self.others_running, queued_count=self.others_queued
        )

    async def get_capabilities(self) -> DenoiseCapabilities:
        await self.meet("get_capabilities")
        return DenoiseCapabilities(
            str(self.instance),
            self.model_id,
            "P",
            "S",
            10,
            1000,
            3.0,
            64,
            64,
            8,
            64,
            64,
            4,
            self.kinds,
            SchedulerResume.EXACT,
            frame_rate=12.0,
            frame_step=4,
        )

    def _start(self, request: DenoiseRequest) -> tuple[str, int, int, str]:
        params = request.params
        fresh = f"{params.prompt}|{params.seed}"
        resume = request.resume
        if resume is None:
            return fresh, 0, 0, ""
        found = self.store.read(resume.donor)
        refusal = self.refuse_with or ("" if found else "LATENT_NOT_FOUND")
        if refusal or found is None:
            return fresh, 0, 0, refusal
        about, latent = found
        if resume.kind is ResumeKind.DECODE:
            return latent, resume.skip_steps, about.depth, ""
        if resume.kind is ResumeKind.TRAJECTORY:  # the seed has no say
            return f"{params.prompt}|from {latent}", resume.skip_steps, about.depth + 1, ""
        return f"{fresh}|renoised {latent}", resume.skip_steps, about.depth + 1, ""

    def _write(
        self,
        request: DenoiseRequest,
        plan: GenerationPlan,
        step: int,
        latent: str,
        depth: int,
        written: list[LatentRef],
        failures: list[SnapshotFailure],
    ) -> None:
        assert request.snapshots is not None
        if self.snapshot_failure:
            failures.append(SnapshotFailure(step, self.snapshot_failure, "not stored"))
            return
        written.append(
            self.store.write(
                request.namespace,
                request.snapshots.entry_id,
                step,
                len(plan.sigmas) - 1,
                latent,
                compatibility_key=plan.compatibility_key,
                depth=depth,
            )
        )
