"""What the asynchronous clients do differently; the rest is shared with the synchronous ones."""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing

import ml_dtypes
import numpy as np
import pytest
from tests.unit.client.fake_services import (
    FakeDenoise,
    FakeLatentKV,
    FakeOrchestrator,
    deletion,
    serving,
)

from skipstone.latent_kv.v1 import latent_kv_pb2
from skipstone_client.aio import (
    AsyncDenoiseClient,
    AsyncLatentKVClient,
    AsyncOrchestratorClient,
)
from skipstone_shared.denoise_run_messages import event_to_messages as denoise_messages
from skipstone_shared.denoise_runs import DenoiseRequest
from skipstone_shared.errors import (
    DataCorrupt,
    DeadlineExceeded,
    EntryNotFound,
    FailedPrecondition,
    InvalidArgument,
    Unavailable,
)
from skipstone_shared.generation import Artifact, GenerationParams, StepProgress
from skipstone_shared.latents import LatentRef, SnapshotMetadata, checksum
from skipstone_shared.orchestration import (
    CacheMode,
    GenerateAccepted,
    GenerateFinished,
    HitTier,
    Provenance,
)
from skipstone_shared.orchestration_messages import event_to_messages
from skipstone_shared.request_context import REQUEST_ID_KEY, request_scope
from skipstone_shared.stored_entries import EvictionEvent, EvictionKind
from skipstone_shared.stored_entry_messages import WATCH_READY, eviction_to_message

WAIT_S = 20.0
KEY = "0123456789abcdef0123456789abcdef"
HEAD = SnapshotMetadata("e", 1, 2, 0.5, KEY, ())
REF = LatentRef("ns", "e", 1)


def raising(error):
    def answer(request, context):
        raise error

    return answer


async def gone(servicer):
    assert await asyncio.to_thread(servicer.gone.wait, WAIT_S)


def test_answers_errors_and_the_request_id_are_those_of_the_synchronous_client():
    servicer = FakeLatentKV(
        DeleteEntries=lambda request, context: deletion(True, False),
        GetEntry=raising(EntryNotFound("no e")),
    )

    async def main(target):
        async with AsyncLatentKVClient(target) as kv:
            with request_scope("request-7"):
                assert await kv.delete_entries("ns", ["a", "b"]) == [True, False]
            with pytest.raises(EntryNotFound):
                await kv.get_entry("ns", "e")

    with serving(servicer) as target:
        asyncio.run(main(target))
    assert servicer.metadata[0][REQUEST_ID_KEY] == "request-7"


def test_an_idempotent_call_is_repeated_while_the_service_is_unavailable():
    answers = iter([Unavailable("one"), None])

    def answer(request, context):
        if error := next(answers):
            raise error
        return deletion(True)

    async def main(target):
        async with AsyncLatentKVClient(target) as kv:
            assert await kv.delete_entries("ns", ["a"]) == [True]

    with serving(FakeLatentKV(DeleteEntries=answer)) as target:
        asyncio.run(main(target))


def test_arrays_come_back_bit_for_bit():
    stored = {}

    def write(requests, context):
        header, *rest = requests
        stored["metadata"] = header.header.metadata
        stored["data"] = b"".join(r.data for r in rest)
        return latent_kv_pb2.WriteLatentResponse(ref={"entry_id": "e", "step_index": 1})

    def read(request, context):
        head = latent_kv_pb2.ReadLatentResponse()
        head.snapshot.metadata.CopyFrom(stored["metadata"])
        head.snapshot.ref.CopyFrom(request.ref)
        head.snapshot.ref.size_bytes = len(stored["data"])
        head.snapshot.ref.xxh3_64 = checksum(stored["data"])
        yield head
        yield latent_kv_pb2.ReadLatentResponse(data=stored["data"])

    latents = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)

    async def main(target):
        async with AsyncLatentKVClient(target, first_byte_timeout_s=WAIT_S) as kv:
            ref = await kv.write_arrays("ns", HEAD, {"latents": latents})
            return await kv.read_arrays("ns", ref)

    with serving(FakeLatentKV(WriteLatent=write, ReadLatent=read)) as target:
        _, arrays = asyncio.run(main(target))
    assert arrays["latents"].dtype == latents.dtype
    assert arrays["latents"].tobytes() == latents.tobytes()


def test_an_error_of_the_callers_data_passes_through():
    def broken():
        yield b"abc"
        raise RuntimeError("the tensor is gone")

    def answer(requests, context):
        assert not any(request.finish_write for request in requests)
        raise InvalidArgument("the stream ends early")

    async def main(target):
        async with AsyncLatentKVClient(target) as kv:
            with pytest.raises(RuntimeError, match="the tensor is gone"):
                await kv.write_latent("ns", HEAD, broken(), size_bytes=6, xxh3_64=0)

    with serving(FakeLatentKV(WriteLatent=answer)) as target:
        asyncio.run(main(target))


def test_a_store_that_hangs_costs_a_read_no_more_than_its_first_byte_timeout():
    servicer = FakeLatentKV()

    def read(request, context):
        servicer.gone.wait(WAIT_S)
        yield latent_kv_pb2.ReadLatentResponse()

    servicer._answers["ReadLatent"] = read

    async def main(target):
        async with AsyncLatentKVClient(target, first_byte_timeout_s=0.05) as kv:
            with pytest.raises(DeadlineExceeded, match=r"latent_kv at .*within 0\.05 s"):
                await kv.read_latent("ns", REF)
            await gone(servicer)

    with serving(servicer) as target:
        asyncio.run(main(target))


@pytest.mark.parametrize("how", ["close the watch", "close the client"])
def test_a_watch_gives_events_and_ends_when_it_is_closed(how):
    event = EvictionEvent(1, EvictionKind.CAPACITY, "ns", "e")

    def answer(request, context):
        context.send_initial_metadata(WATCH_READY)
        yield eviction_to_message(event)
        over = threading.Event()
        context.add_callback(over.set)
        over.wait(WAIT_S)

    async def main(target):
        kv = AsyncLatentKVClient(target)
        watch = await kv.watch_evictions("ns")
        assert await anext(watch) == event

        async def rest():
            return [item async for item in watch]

        waiting = asyncio.create_task(rest())
        await asyncio.sleep(0)
        if how == "close the watch":
            watch.close()
        else:
            await kv.close()
        assert await asyncio.wait_for(waiting, WAIT_S) == []
        await kv.close()

    with serving(FakeLatentKV(WatchEvictions=answer)) as target:
        asyncio.run(main(target))


def test_a_refused_watch_raises_at_once():
    error = InvalidArgument("sequence 9 is in the future", field="after_sequence")

    async def main(target):
        async with AsyncLatentKVClient(target) as kv:
            with pytest.raises(InvalidArgument, match="future"):
                await kv.watch_evictions("ns", 9)

    with serving(FakeLatentKV(WatchEvictions=raising(error))) as target:
        asyncio.run(main(target))


def endless_steps(request, context):
    while context.is_active():
        yield from denoise_messages(StepProgress(0, 10))


@pytest.mark.parametrize("how", ["close", "cancel the task", "close unstarted"])
def test_a_run_that_nobody_follows_any_more_is_cancelled(how):
    servicer = FakeDenoise(RunDenoise=endless_steps)
    request = DenoiseRequest("ns", GenerationParams("a", seed=1))

    async def main(target):
        async with AsyncDenoiseClient(target) as denoise:

            async def follow(count):
                async with aclosing(denoise.run(request)) as events:
                    async for _ in events:
                        count -= 1
                        if count == 0:
                            return

            if how == "close":
                await follow(1)
            elif how == "close unstarted":
                events = denoise.run(request)
                # gRPC sends the request when the loop runs, so it is waited for without blocking.
                await asyncio.to_thread(wait_for_request, servicer)
                await events.aclose()
            else:
                task = asyncio.create_task(follow(-1))
                await asyncio.to_thread(wait_for_request, servicer)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await gone(servicer)

    with serving(servicer) as target:
        asyncio.run(main(target))


def wait_for_request(servicer):
    while not servicer.requests:
        threading.Event().wait(0.01)


def test_generate_gives_picture_parameters_and_provenance():
    artifact = Artifact("image/png", b"png" * 1_000_000, 64, 64)
    params = GenerationParams("a red circle", num_inference_steps=1, seed=3)
    provenance = Provenance("r", HitTier.MISS, "NO_CANDIDATE", 1, 1, 3, CacheMode.READ_WRITE, "1")
    events = [
        GenerateAccepted("r", params),
        StepProgress(0, 1),
        artifact,
        GenerateFinished(provenance),
    ]
    answers = [events, events[:2]]

    def answer(request, context):
        return (m for event in answers.pop(0) for m in event_to_messages(event))

    async def main(target):
        async with AsyncOrchestratorClient(target) as client:
            steps = []
            result = await client.generate(params, on_step=steps.append)
            assert (result.artifact, result.params) == (artifact, params)
            assert result.provenance == provenance
            assert steps == [StepProgress(0, 1)]
            with pytest.raises(DataCorrupt):
                await client.generate(params)

    with serving(FakeOrchestrator(Generate=answer)) as target:
        asyncio.run(main(target))


def test_a_call_that_is_running_when_its_client_is_closed_is_unavailable_not_cancelled():
    """CancelledError would tell the caller's task group that somebody cancelled the task."""
    servicer = FakeLatentKV()

    def answer(request, context):
        servicer.gone.wait(WAIT_S)
        return deletion()

    servicer._answers["DeleteEntries"] = answer

    async def main(target):
        kv = AsyncLatentKVClient(target)
        call = asyncio.create_task(kv.delete_entries("ns", ["a"]))
        await asyncio.to_thread(wait_for_request, servicer)
        await kv.close()
        with pytest.raises(Unavailable, match="closed"):
            await call
        with pytest.raises(Unavailable, match="closed"):
            await kv.get_stats()

    with serving(servicer) as target:
        asyncio.run(main(target))


def test_a_client_belongs_to_one_event_loop():
    async def use():
        with pytest.raises(Unavailable):
            await kv.get_stats()

    async def use_elsewhere():
        with pytest.raises(FailedPrecondition, match="another event loop"):
            await kv.get_stats()

    kv = AsyncLatentKVClient("127.0.0.1:1")
    asyncio.run(use())
    asyncio.run(use_elsewhere())
