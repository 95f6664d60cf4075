"""Two tenants on one deployment, each beside a deployment of its own where nobody else is.

Whatever a tenant does, both deployments must tell it the same: then nothing of the other tenant is
in an answer, neither an entry nor an id, a score, a count, a tier or an error.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from tests.unit.orchestrator import fakes
from tests.unit.orchestrator.site import QUIET

from skipstone_client.aio import (
    AsyncLatentKVClient,
    AsyncOrchestratorClient,
    AsyncVectorIndexClient,
)
from skipstone_latent_kv.memory_store import MemoryStore
from skipstone_latent_kv.server import mount as mount_store
from skipstone_latent_kv.store import LatentStore
from skipstone_orchestrator.config import OrchestratorSettings
from skipstone_orchestrator.gate import SimilarityGate
from skipstone_orchestrator.server import mounted
from skipstone_orchestrator.wiring import Backends, Orchestrator
from skipstone_shared.access import token_hash
from skipstone_shared.credentials import Credentials
from skipstone_shared.embeddings import Embedding
from skipstone_shared.errors import LatentNotFound, SkipstoneError
from skipstone_shared.generation import GenerationParams
from skipstone_shared.grpc_aio_server import in_process_async_server
from skipstone_shared.grpc_server import InProcessSettings, in_process_server
from skipstone_shared.latents import LatentRef, SnapshotMetadata, checksum, compatibility_key
from skipstone_shared.orchestration import CacheOptions, Entry, LookupDecision
from skipstone_shared.tensor_messages import parts_of
from skipstone_vector_index.flat_index import FlatIndex
from skipstone_vector_index.index import ServedIndex
from skipstone_vector_index.server import mount as mount_index

TENANTS = ("a", "b")
WORDS = ["red", "blue", "green", "round", "square", "big", "small", "on", "under", "old", "new"]
STEPS = 10
SIGMAS = tuple(1 - k / STEPS for k in range(STEPS + 1))
PRINT = fakes.fingerprint(GenerationParams("any", num_inference_steps=STEPS))
KEY = compatibility_key(PRINT)
LATENT = {"latents": np.zeros((1, 4), np.float32)}

PATIENCE_S = 600.0
"""An answer that came too late on a busy machine would look like a difference."""

PATIENT = {
    f"{stage}_timeout_s": PATIENCE_S
    for stage in ("embedding", "index", "latent_kv", "gate", "lookup", "plan", "call")
}
SHARES = {
    "look_up": 900.0,
    "generate": 15.0,
    "save": 60.0,
    "explain": 10.0,
    "get": 20.0,
    "delete": 20.0,
    "count": 10.0,
    "list": 4.0,
    "delete_prompt": 4.0,
    "verify": 4.0,
    "delete_all": 0.3,
}
"""What tenants do, and how often."""

Open = Callable[[Path], tuple[LatentStore, ServedIndex]]
"""Opens an empty store and an empty index; the path is a folder that is not there yet."""

Answer = Any
"""What a tenant is told, without times; equal for equal."""


class Words(fakes.BagOfWords):
    """Cosine of the shared words, the same whatever was embedded before."""

    async def embed_text(self, text: str, *, namespace: str = "") -> Embedding:
        vector = np.zeros(len(WORDS), np.float32)
        for word in text.split():
            vector[WORDS.index(word)] += 1
        return Embedding(vector / np.linalg.norm(vector), model_id=self.model_id)


class KeptTexts(fakes.MemoryStore):
    """The executor's latents, which are texts, in the store that everybody else reads."""

    def __init__(self, kept: LatentStore) -> None:
        super().__init__()
        self._kept = kept

    def write(
        self, namespace: str, entry_id: str, step: int, steps: int, latent: str, **metadata: Any
    ) -> LatentRef:
        arrays = {"latents": np.frombuffer(latent.encode(), np.uint8).astype(np.float32)}
        data = arrays["latents"].tobytes()
        sigma = 1 - step / steps
        about = SnapshotMetadata(entry_id, step, steps, sigma, parts=parts_of(arrays), **metadata)
        size, hashed = len(data), checksum(data)
        return self._kept.write_latent(namespace, about, [data], size_bytes=size, xxh3_64=hashed)

    def read(self, ref: LatentRef) -> tuple[SnapshotMetadata, str] | None:
        try:
            found = self._kept.read_latent(ref.namespace, ref)
        except LatentNotFound:
            return None
        codes = np.frombuffer(b"".join([found.data]), np.float32).astype(np.uint8)
        return found.metadata, codes.tobytes().decode()


def orchestrator(index: Any, store: Any, kept: LatentStore) -> Orchestrator:
    executor = fakes.Executor(KeptTexts(kept))
    return Orchestrator(
        OrchestratorSettings(**{**QUIET, **PATIENT}),
        Backends(Words(), index, store, executor),
        SimilarityGate(),
        version="1",
        clock=time.monotonic,
        draw_seed=itertools.count().__next__,
        draw_index=lambda count: 0,
        knock=lambda target: _always,
    )


async def _always() -> bool:
    return True


class Tenant:
    """One tenant: how it reaches a deployment, and in which namespace it is there."""

    def __init__(self, namespace: str, front: AsyncOrchestratorClient, store: Any) -> None:
        self.namespace = namespace
        self._front = front
        self._store = store

    async def look_up(self, prompt: str, seed: int | None, options: CacheOptions) -> Answer:
        told = await self._front.lookup(
            prompt, PRINT, SIGMAS, seed, options, explain=True, namespace=self.namespace
        )
        if seed is None:
            told = dataclasses.replace(told, entry_id="drawn anew each time")
        return self._decision(told)

    async def generate(self, prompt: str, seed: int) -> Answer:
        """What is made and where it comes from; when it returns it is saved."""
        params = GenerationParams(prompt, seed=seed, num_inference_steps=STEPS)
        made = await self._front.generate(params, namespace=self.namespace)
        while (await self._front.get_stats(self.namespace)).queued_saves:
            await asyncio.sleep(0.001)
        told = made.provenance
        assert not told.fallbacks, "trouble would hide what is tested"
        return (
            (told.tier, told.reason, told.skip_steps, told.reuse_kind, told.saved_entry_id),
            (_rounded(told.similarity), told.donor_entry_id, told.donor_prompt, told.passed_over),
            (told.joined_request_id, told.compatibility_key, made.artifact.data),
        )

    async def explain(self, prompt: str, seed: int) -> Answer:
        params = GenerationParams(prompt, seed=seed, num_inference_steps=STEPS)
        told = await self._front.explain(params, namespace=self.namespace)
        return (self._decision(told.decision), told.explanation, told.start_sigma)

    async def save(self, entry_id: str, prompt: str, seed: int) -> Answer:
        head = SnapshotMetadata(entry_id, STEPS, STEPS, 0.0, KEY, ())
        await self._store.write_arrays(self.namespace, head, LATENT)
        saved = await self._front.save(entry_id, prompt, seed, PRINT, namespace=self.namespace)
        return self._entry(saved)

    async def get(self, entry_id: str) -> Answer:
        return self._entry(await self._front.get_entry(entry_id, self.namespace))

    async def list(self, page_size: int) -> Answer:
        found, token = [], ""
        while True:
            page = await self._front.list_entries(self.namespace, page_size, token)
            found += [self._entry(entry) for entry in page.entries]
            token = page.next_page_token
            if not token:
                return found

    async def delete(self, entry_ids: list[str]) -> Answer:
        return await self._front.delete_entries(entry_ids, self.namespace)

    async def delete_prompt(self, prompt: str) -> Answer:
        return await self._front.delete_prompt(prompt, self.namespace)

    async def delete_all(self) -> Answer:
        return await self._front.delete_namespace(self.namespace)

    async def verify(self, prompt: str) -> Answer:
        return await self._front.verify_deleted(self.namespace, prompt=prompt)

    async def count(self) -> Answer:
        told = await self._front.get_stats(self.namespace)
        kept = await self._store.get_stats(self.namespace)
        return (
            (told.saved_count, told.entry_count, told.latent_bytes, told.queued_saves),
            (dict(told.tiers), dict(told.fallbacks), told.drift),
            (kept.entry_count, kept.uncommitted_count, kept.snapshot_count, kept.size_bytes),
            (kept.disk_bytes, kept.evicted_count),
        )

    def _decision(self, told: LookupDecision) -> Answer:
        if told.donor is not None:
            assert told.donor.namespace == self.namespace, "a donor of somebody else"
        assert not told.fallbacks, "trouble would hide what is tested"
        return (
            (told.tier, told.reason, told.skip_steps, told.reuse_kind, told.entry_id),
            (_rounded(told.similarity), told.rerank_score, told.donor and told.donor.entry_id),
            [
                (self._entry(c.entry), _rounded(c.similarity), c.skip_steps, c.reason, c.reuse_tier)
                for c in told.candidates
            ],
        )

    def _entry(self, entry: Entry) -> Answer:
        owners = {ref.namespace for ref in entry.snapshots}
        assert owners == {self.namespace}, "an entry of somebody else"
        return (entry.entry_id, entry.prompt, entry.seed, entry.depth, len(entry.snapshots))


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 5)


def _access_file(folder: Path) -> Path:
    path = folder / "access.toml"
    rights = "['generate', 'read', 'write', 'admin']"
    path.write_text(
        "".join(
            f"[{name}]\ntokens = ['{token_hash(f'token-of-{name}')}']\n"
            f"namespaces = ['{namespace}']\nrights = {rights}\n"
            for name, namespace in (("root", "*"), *((tenant, tenant) for tenant in TENANTS))
        )
    )
    return path


def in_memory(folder: Path) -> tuple[LatentStore, ServedIndex]:
    """The quickest backends."""
    return MemoryStore(), FlatIndex()


@asynccontextmanager
async def deployment(
    access_file: Path | None, *tenants: str, backends: tuple[LatentStore, ServedIndex] | None = None
) -> AsyncIterator[dict[str, Tenant]]:
    """Real servers of orchestrator, vector_index and latent_kv; tenants have tokens where asked."""
    settings = InProcessSettings(access_file=access_file)

    def credentials(name: str) -> Credentials:
        return Credentials(token=f"token-of-{name}" if access_file else None)

    async with AsyncExitStack() as stack:
        servers = stack.enter_context(ExitStack())
        kept, found_by = backends or in_memory(Path())
        store_target = servers.enter_context(
            in_process_server(mount_store(kept, on_stop=[kept.close]), settings)
        )
        index_target = servers.enter_context(in_process_server(mount_index(found_by), settings))
        root = credentials("root")
        index = AsyncVectorIndexClient(index_target, timeout_s=PATIENCE_S, credentials=root)
        store = AsyncLatentKVClient(store_target, timeout_s=PATIENCE_S, credentials=root)
        front = orchestrator(index, store, kept)
        target = await stack.enter_async_context(
            in_process_async_server(mounted(front, [index.close, store.close]), settings)
        )
        found = {}
        for name in tenants:
            me = credentials(name)
            found[name] = Tenant(
                name,
                await stack.enter_async_context(
                    AsyncOrchestratorClient(target, timeout_s=PATIENCE_S, credentials=me)
                ),
                await stack.enter_async_context(
                    AsyncLatentKVClient(store_target, timeout_s=PATIENCE_S, credentials=me)
                ),
            )
        yield found


class Fuzz:
    """Random requests of two tenants who want the same things, to tempt the deployment."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._ids: list[str] = []
        self.lookups = 0
        self.hits = 0
        self.crossings: list[str] = []

    async def run(self, lookups: int, shared: dict[str, Tenant], alone: dict[str, Tenant]) -> None:
        """Works until so many lookups were compared."""
        while self.lookups < lookups:
            rpc, args = self._request()
            # Runs of both at once, since those of one tenant are shared.
            names = TENANTS if rpc == "generate" else (self._random.choice(TENANTS),)
            answers = await asyncio.gather(
                *(_told(getattr(at[name], rpc), args) for at in (shared, alone) for name in names)
            )
            for name, told, expected in zip(
                names, answers[: len(names)], answers[len(names) :], strict=True
            ):
                if told != expected:
                    self.crossings.append(f"{name} {rpc}{args}: {told} instead of {expected}")
                if rpc == "look_up":
                    self.lookups += 1
                    self.hits += bool(told[0][2]) if isinstance(told[0], tuple) else 0

    def _request(self) -> tuple[str, tuple[Any, ...]]:
        rpc = self._random.choices(list(SHARES), list(SHARES.values()))[0]
        prompt, seed = self._prompt(), self._random.randrange(3)
        match rpc:
            case "look_up":
                return rpc, (prompt, self._random.choice([seed, None]), self._options())
            case "save":
                entry_id = f"e{self._random.randrange(200)}"
                self._ids.append(entry_id)
                return rpc, (entry_id, prompt, seed)
            case "explain" | "generate" as asked:
                return asked, (prompt, seed)
            case "get" | "delete" as by_id:
                found = self._random.choice(self._ids or ["none"])
                return by_id, (found if by_id == "get" else [found, "none"],)
            case "list":
                return rpc, (self._random.choice([3, 1000]),)
            case "delete_prompt" | "verify":
                return rpc, (prompt,)
        return rpc, ()

    def _prompt(self) -> str:
        # Few words, so that prompts of the tenants are often the same or close.
        return " ".join(self._random.sample(WORDS, 3))

    def _options(self) -> CacheOptions:
        return CacheOptions(
            top_k=self._random.choice([None, 1, 5, 50]),
            allow_exact=self._random.choice([None, False]),
            min_similarity=self._random.choice([None, 0.0, 0.9]),
        )


async def _told(call: Callable[..., Awaitable[Answer]], args: tuple[Any, ...]) -> Answer:
    try:
        return await call(*args)
    except SkipstoneError as error:
        return (type(error), error.reason, error.message)


async def fuzz(lookups: int, seed: int, folder: Path, opened: Open = in_memory) -> Fuzz:
    """Runs requests of two tenants on one deployment, and each on one of its own.

    Args:
        lookups: How many are compared.
        seed: Of the requests.
        folder: For files.
        opened: The backends of each deployment.
    """
    made = Fuzz(seed)
    access = _access_file(folder)
    async with (
        deployment(access, *TENANTS, backends=opened(folder / "shared")) as shared,
        deployment(access, "a", backends=opened(folder / "alone-a")) as alone_a,
        deployment(access, "b", backends=opened(folder / "alone-b")) as alone_b,
    ):
        await made.run(lookups, shared, {**alone_a, **alone_b})
    return made
