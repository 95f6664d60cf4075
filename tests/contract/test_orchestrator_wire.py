"""The orchestrator over the wire: every rpc through the typed clients, errors included.

The services behind it are tiny real ones in memory; what is tested is what crosses the wire.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from tests.unit.orchestrator.fakes import fingerprint
from tests.unit.orchestrator.site import Site, in_loop

from skipstone.orchestrator.v1 import orchestrator_pb2 as pb
from skipstone.orchestrator.v1 import orchestrator_pb2_grpc
from skipstone_client import OrchestratorClient
from skipstone_client.aio import AsyncOrchestratorClient
from skipstone_orchestrator.server import SERVICE_NAME, mounted
from skipstone_shared.errors import (
    DeadlineExceeded,
    EntryNotFound,
    Internal,
    InvalidArgument,
    QueueFull,
    SkipstoneError,
    Unavailable,
)
from skipstone_shared.generation import Artifact, GenerationParams, StepProgress
from skipstone_shared.grpc_aio_server import in_process_async_server
from skipstone_shared.orchestration import (
    BreakerState,
    CacheMode,
    CacheOptions,
    GenerateAccepted,
    GenerateFinished,
    GenerateStarted,
    HitTier,
    ReuseKind,
)
from skipstone_shared.request_context import request_scope

PROMPT = "a red circle on a blue background"
NEAR = "a red circle on a green background"
SIGMAS = tuple(1 - k / 10 for k in range(11))


@asynccontextmanager
async def served(**settings: Any) -> AsyncIterator[tuple[Site, AsyncOrchestratorClient]]:
    """A site behind a real server, and a client of it."""
    site = Site(**settings)
    async with in_process_async_server(mounted(site.orchestrator)) as target:
        async with AsyncOrchestratorClient(target) as client:
            yield site, client


@in_loop
async def test_a_generation_arrives_whole_with_its_provenance() -> None:
    async with served() as (site, client):
        with request_scope("my-request"):
            first = await client.generate(GenerationParams(PROMPT, seed=1))
        assert first.artifact == Artifact("image/png", f"{PROMPT}|1".encode(), 64, 64)
        assert first.params.num_inference_steps == 10
        told = first.provenance
        assert told.request_id == "my-request"
        assert (told.tier, told.reason, told.executed_steps) == (HitTier.MISS, "NO_CANDIDATE", 10)
        assert set(told.stage_times_s) >= {"build_query", "lookup", "denoise", "decode", "total"}
        await site.settle()
        again = await client.generate(GenerationParams(PROMPT, seed=1))
        assert (again.provenance.tier, again.artifact) == (HitTier.EXACT, first.artifact)
        near = await client.generate(GenerationParams(NEAR, seed=2))
        assert near.provenance.tier is HitTier.APPROXIMATE
        assert near.provenance.reuse_kind is ReuseKind.RENOISE
        assert near.provenance.similarity == pytest.approx(8 / 9)
        assert near.provenance.donor_prompt == PROMPT


@in_loop
async def test_events_arrive_in_order_and_one_by_one() -> None:
    async with served() as (_, client):
        kinds = [type(e) async for e in client.generate_stream(GenerationParams(PROMPT, seed=1))]
        assert kinds[:2] == [GenerateAccepted, GenerateStarted]
        assert kinds[2:-2] == [StepProgress] * 10
        assert kinds[-2:] == [Artifact, GenerateFinished]


@in_loop
async def test_an_explanation_tells_what_the_generation_then_gets() -> None:
    async with served() as (site, client):
        await client.generate(GenerationParams(PROMPT, seed=1))
        await site.settle()
        params = GenerationParams(NEAR, seed=2)
        told = await client.explain(params)
        done = (await client.generate(params)).provenance
        assert (told.decision.tier, told.decision.reason) == (done.tier, done.reason)
        assert told.decision.compatibility_key == done.compatibility_key
        assert (told.decision.skip_steps, told.start_sigma) == (done.skip_steps, done.start_sigma)
        assert told.decision.candidates[0].explanation
        assert (told.params.seed, told.params.num_inference_steps) == (2, 10)
        with pytest.raises(InvalidArgument) as caught:
            await client.explain(params, CacheOptions(top_k=101))
        assert caught.value.field == "cache.top_k"


@in_loop
async def test_equal_generations_at_once_share_a_run_and_its_deadline_is_each_callers_own() -> None:
    async with served() as (site, client):
        site.executor.gate = asyncio.Event()
        params = GenerationParams(PROMPT, seed=1)
        hasty = asyncio.create_task(client.generate(params, timeout_s=0.5))
        while not site.executor.requests:
            await asyncio.sleep(0.001)
        patient = asyncio.create_task(client.generate(params, timeout_s=60.0))
        with pytest.raises(DeadlineExceeded):
            await hasty
        site.executor.gate.set()
        result = await patient
        assert result.artifact.data == f"{PROMPT}|1".encode()
        assert len(site.executor.requests) == 1
        assert site.executor.stopped_at is None


@in_loop
async def test_fallbacks_and_snapshot_failures_cross_the_wire() -> None:
    async with served() as (site, client):
        site.embedder.trouble["embed_text"] = Unavailable("connection refused")
        site.executor.snapshot_failure = "QUOTA_EXCEEDED"
        told = (await client.generate(GenerationParams(PROMPT, seed=1))).provenance
        assert [(f.stage, f.service, f.reason) for f in told.fallbacks] == [
            ("build_query", "embedding", "UNAVAILABLE"),
            ("snapshot", "latent_kv", "QUOTA_EXCEEDED"),
        ]
        assert told.snapshot_failures == {10: "QUOTA_EXCEEDED"}


@pytest.mark.parametrize(
    ("params", "options", "field"),
    [
        (GenerationParams(""), None, "params.prompt"),
        (GenerationParams("x" * (1 << 20)), None, "params.prompt"),
        (GenerationParams(PROMPT, num_inference_steps=0), None, "params.num_inference_steps"),
        (GenerationParams(PROMPT, num_inference_steps=100_000), None, "params.num_inference_steps"),
        (GenerationParams(PROMPT, seed=-1), None, "params.seed"),
        (GenerationParams(PROMPT), CacheOptions(min_similarity=math.nan), "cache.min_similarity"),
        (GenerationParams(PROMPT), CacheOptions(top_k=1000), "cache.top_k"),
    ],
)
@in_loop
async def test_bad_input_arrives_as_invalid_argument_with_field_and_range(
    params: GenerationParams, options: CacheOptions | None, field: str
) -> None:
    async with served() as (site, client):
        with pytest.raises(InvalidArgument) as caught:
            await client.generate(params, options)
        assert caught.value.field == field
        assert caught.value.allowed
        assert not site.store.entries


@in_loop
async def test_an_unknown_cache_mode_or_missing_params_are_refused() -> None:
    site = Site()
    async with in_process_async_server(mounted(site.orchestrator)) as target:
        async with grpc.aio.insecure_channel(target) as channel:
            stub: Any = orchestrator_pb2_grpc.OrchestratorStub(channel)
            unknown = pb.GenerateRequest(cache=pb.CacheOptions(mode=99))  # type: ignore[arg-type]
            unknown.params.prompt = PROMPT
            for request, field in ((unknown, "cache.mode"), (pb.GenerateRequest(), "params")):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    async for _ in stub.Generate(request):
                        pass
                assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
                assert field in (caught.value.details() or "")


@pytest.mark.parametrize(
    "error", [QueueFull("busy"), Unavailable("no executor"), Internal("the model failed")]
)
@in_loop
async def test_what_the_executor_raises_reaches_the_caller_as_itself(
    error: SkipstoneError,
) -> None:
    async with served() as (site, client):
        site.executor.fail_at_step = (3, error)
        with pytest.raises(type(error)):
            await client.generate(GenerationParams(PROMPT, seed=1))


@in_loop
async def test_a_caller_that_goes_away_stops_the_run_and_nothing_is_saved() -> None:
    async with served() as (site, client):
        site.executor.gate, site.executor.gate_from = asyncio.Event(), 2
        stream = client.generate_stream(
            GenerationParams(PROMPT, seed=1), CacheOptions(key_steps=(1,))
        )
        async for event in stream:
            if isinstance(event, StepProgress) and event.step_index == 1:
                break
        assert site.store.entries, "a snapshot is written and waits to be committed"
        await stream.aclose()
        while site.store.entries:
            await asyncio.sleep(0.001)
        await site.settle()
        assert not site.index.ids()
        assert (await client.get_stats()).queued_saves == 0


@in_loop
async def test_the_callers_deadline_ends_a_run() -> None:
    async with served() as (site, client):
        site.executor.gate = asyncio.Event()
        with pytest.raises(DeadlineExceeded):
            await client.generate(GenerationParams(PROMPT, seed=1), timeout_s=0.2)


@in_loop
async def test_lookup_and_save_serve_an_outside_engine() -> None:
    about = fingerprint(GenerationParams(PROMPT))
    async with served() as (site, client):
        first = await client.lookup(PROMPT, about, SIGMAS, seed=1)
        assert (first.tier, first.donor) == (HitTier.MISS, None)
        key = first.compatibility_key
        site.store.write("default", first.entry_id, 10, 10, "mine", compatibility_key=key)
        entry = await client.save(first.entry_id, PROMPT, 1, about)
        assert [ref.step_index for ref in entry.snapshots] == [10]
        exact = await client.lookup(PROMPT, about, SIGMAS, seed=1)
        assert (exact.tier, exact.skip_steps) == (HitTier.EXACT, 10)
        near = await client.lookup(NEAR, about, SIGMAS, seed=2, explain=True)
        assert (near.tier, near.skip_steps) == (HitTier.APPROXIMATE, 3)
        assert [c.reason for c in near.candidates] == ["DONOR_RESUMED"]
        assert near.donor == entry.snapshots[0]
        with pytest.raises(EntryNotFound):
            await client.save("unknown", PROMPT, 1, about)


@in_loop
async def test_entries_are_listed_shown_and_deleted() -> None:
    async with served() as (site, client):
        ids = []
        for seed in range(3):
            params = GenerationParams(f"number {seed} of many", seed=seed)
            ids.append((await client.generate(params)).provenance.saved_entry_id)
            await site.settle()
        page = await client.list_entries(page_size=2)
        rest = await client.list_entries(page_size=2, page_token=page.next_page_token)
        assert [e.entry_id for e in (*page.entries, *rest.entries)] == ids
        assert (await client.get_entry(ids[1])).prompt == "number 1 of many"
        assert await client.delete_entries([ids[1], "unknown"]) == [True, False]
        with pytest.raises(EntryNotFound):
            await client.get_entry(ids[1])
        with pytest.raises(InvalidArgument):
            await client.delete_entries([])


@in_loop
async def test_stats_and_capabilities_tell_the_replica() -> None:
    async with served(cache_mode="read_write") as (site, client):
        await client.generate(GenerationParams(PROMPT, seed=1))
        await site.settle()
        site.embedder.trouble["embed_text"] = Unavailable("connection refused")
        await client.generate(GenerationParams(NEAR, seed=2))
        await site.settle()
        stats = await client.get_stats()
        assert stats.tiers[HitTier.MISS] == 2
        assert (stats.saved_count, stats.dropped_saves) == (1, 1)
        assert stats.entry_count == 1
        assert stats.fallbacks["build_query/UNAVAILABLE"] == 1
        states = {s.service: s for s in stats.services}
        assert states["latent_kv"].breaker is BreakerState.CLOSED
        assert states["embedding"].last_error == "connection refused"
        known = await client.get_capabilities()
        assert (known.version, known.model_id) == ("1.2.3", "tiny")
        assert known.default_cache_mode is CacheMode.READ_WRITE


@in_loop
async def test_the_synchronous_client_gets_the_same() -> None:
    async with served() as (_, client):

        def use() -> None:
            with OrchestratorClient(client.target) as own:
                result = own.generate(GenerationParams(PROMPT, seed=1))
                assert result.provenance.tier is HitTier.MISS
                with pytest.raises(InvalidArgument) as caught:
                    own.generate("")
                assert caught.value.field == "params.prompt"

        await asyncio.to_thread(use)


def test_the_service_is_named_as_its_proto_says() -> None:
    assert pb.DESCRIPTOR.services_by_name["Orchestrator"].full_name == SERVICE_NAME
