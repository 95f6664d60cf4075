"""How the synchronous clients behave on a real wire."""

from __future__ import annotations

import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
from google.rpc import status_pb2
from tests.unit.client.fake_services import (
    FakeDenoise,
    FakeLatentKV,
    FakeOrchestrator,
    FakeVectorIndex,
    deletion,
    serving,
)

from skipstone.denoise.v1 import denoise_pb2
from skipstone.latent_kv.v1 import latent_kv_pb2
from skipstone.orchestrator.v1 import orchestrator_pb2
from skipstone.vector_index.v1 import vector_index_pb2
from skipstone_client import (
    DenoiseClient,
    LatentKVClient,
    OrchestratorClient,
    VectorIndexClient,
    _channel,
)
from skipstone_client._channel import LATENT_KV, channel_options
from skipstone_client.aio import __all__ as async_names
from skipstone_shared.denoise_runs import DenoiseRequest
from skipstone_shared.errors import (
    DataCorrupt,
    DeadlineExceeded,
    EntryNotFound,
    FailedPrecondition,
    InvalidArgument,
    QuotaExceeded,
    Unavailable,
)
from skipstone_shared.generation import Artifact, GenerationParams, StepProgress
from skipstone_shared.grpc_errors import to_status
from skipstone_shared.index_entries import IndexEntry, VectorEntry
from skipstone_shared.latents import (
    DType,
    LatentRef,
    SnapshotMetadata,
    TensorPart,
    TensorSpec,
    checksum,
)
from skipstone_shared.orchestration import (
    CacheMode,
    CacheOptions,
    GenerateAccepted,
    GenerateFinished,
    HitTier,
    Provenance,
)
from skipstone_shared.orchestration_messages import event_to_messages
from skipstone_shared.request_context import REQUEST_ID_KEY, request_scope
from skipstone_shared.snapshot_streams import snapshot_to_stream
from skipstone_shared.stored_entries import EvictionEvent, EvictionKind, Snapshot
from skipstone_shared.stored_entry_messages import WATCH_READY, eviction_to_message

WAIT_S = 20.0
KEY = "0123456789abcdef0123456789abcdef"
HEAD = SnapshotMetadata("e", 1, 2, 0.5, KEY, ())


def raising(error):
    def answer(request, context):
        raise error

    return answer


def test_a_remote_error_is_the_same_exception_with_its_field():
    error = InvalidArgument("lease of 0 s", field="lease_s", allowed="1 to 86400")
    with serving(FakeLatentKV(RenewLease=raising(error))) as target, LatentKVClient(target) as kv:
        with pytest.raises(InvalidArgument) as caught:
            kv.renew_lease("ns", "e", 0.0)
    assert str(caught.value) == str(error)
    assert (caught.value.field, caught.value.allowed) == ("lease_s", "1 to 86400")


def test_a_subclass_of_an_error_keeps_its_class():
    with serving(FakeLatentKV(GetEntry=raising(EntryNotFound("no e")))) as target:
        with LatentKVClient(target) as kv, pytest.raises(EntryNotFound):
            kv.get_entry("ns", "e")


def test_a_service_that_is_not_there_is_unavailable_and_named():
    with LatentKVClient("127.0.0.1:1") as kv, pytest.raises(Unavailable) as caught:
        kv.get_stats("ns")
    assert caught.value.stage == "latent_kv"
    assert "latent_kv at 127.0.0.1:1" in str(caught.value)


def test_an_idempotent_call_is_repeated_while_the_service_is_unavailable():
    answers = iter([Unavailable("one"), Unavailable("two"), None])

    def answer(request, context):
        if error := next(answers):
            raise error
        return deletion(True, False)

    with serving(FakeLatentKV(DeleteEntries=answer)) as target, LatentKVClient(target) as kv:
        assert kv.delete_entries("ns", ["a", "b"]) == [True, False]


@pytest.mark.parametrize("error", [QuotaExceeded("full"), DataCorrupt("bad"), EntryNotFound("no")])
def test_no_other_error_is_retried(error):
    servicer = FakeLatentKV(CommitEntry=raising(error))
    with serving(servicer) as target, LatentKVClient(target) as kv:
        with pytest.raises(type(error)):
            kv.commit_entry("ns", "e")
    assert len(servicer.requests) == 1


def test_a_run_is_never_repeated():
    servicer = FakeDenoise(RunDenoise=raising(Unavailable("draining")))
    with serving(servicer) as target, DenoiseClient(target) as denoise:
        with pytest.raises(Unavailable):
            list(denoise.run(DenoiseRequest("ns", GenerationParams("a", seed=1))))
    assert len(servicer.requests) == 1


def test_a_call_has_the_deadline_of_its_client_or_its_own():
    servicer = FakeLatentKV(DeleteEntries=lambda request, context: deletion(True))
    with serving(servicer) as target, LatentKVClient(target, timeout_s=500) as kv:
        kv.delete_entries("ns", ["a"])
        kv.delete_entries("ns", ["a"], timeout_s=100)
        with request_scope(timeout_s=50):
            kv.delete_entries("ns", ["a"])
    of_client, own, of_request = servicer.time_remaining
    assert 400 < of_client < 510
    assert 60 < own < 110
    assert 20 < of_request < 60


def test_a_late_answer_is_a_deadline_exceeded_that_says_how_long_was_waited():
    release = threading.Event()

    def answer(request, context):
        release.wait(WAIT_S)
        return deletion()

    with serving(FakeLatentKV(DeleteEntries=answer)) as target, LatentKVClient(target) as kv:
        with pytest.raises(DeadlineExceeded, match=r"latent_kv at .*no answer within 0.05 s"):
            kv.delete_entries("ns", ["a"], timeout_s=0.05)
        release.set()


def test_the_request_id_travels_with_the_call():
    servicer = FakeLatentKV(DeleteEntries=lambda request, context: deletion())
    with serving(servicer) as target, LatentKVClient(target) as kv:
        with request_scope("request-7"):
            kv.delete_entries("ns", ["a"])
        kv.delete_entries("ns", ["a"])
    assert servicer.metadata[0][REQUEST_ID_KEY] == "request-7"
    assert servicer.metadata[1][REQUEST_ID_KEY] not in ("", "request-7")


def test_a_closed_client_is_unavailable():
    kv = LatentKVClient("127.0.0.1:1")
    kv.close()
    kv.close()
    with pytest.raises(Unavailable, match="closed"):
        kv.get_stats("ns")


def test_a_client_made_before_a_fork_works_in_the_child_and_a_used_one_says_why_not():
    used = LatentKVClient("127.0.0.1:1")
    with pytest.raises(Unavailable):
        used.get_stats("ns")
    # The child only runs the check that comes before any use of gRPC: forking a process with
    # gRPC's threads and then calling would hang now and then.
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            used.get_stats("ns")
        except FailedPrecondition as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    used.close()
    assert "forked" in said
    assert "create one in the child" in said


def test_only_dns_targets_spread_calls_over_all_addresses():
    assert "round_robin" in dict(channel_options("dns:///kv:1", LATENT_KV))["grpc.service_config"]
    listed = channel_options("ipv4:127.0.0.1:1,127.0.0.1:2", LATENT_KV)
    assert "round_robin" in dict(listed)["grpc.service_config"]
    assert "round_robin" not in dict(channel_options("kv:1", LATENT_KV))["grpc.service_config"]


def test_calls_to_this_machine_go_to_no_proxy(monkeypatch):
    """Behind a company's proxy nothing would work on a machine that does not set ``no_proxy``."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    servicer = FakeLatentKV(DeleteEntries=lambda request, context: deletion(True))
    with serving(servicer) as target, LatentKVClient(target) as kv:
        assert kv.delete_entries("ns", ["a"]) == [True]


@pytest.mark.parametrize(
    ("target", "is_asked"),
    [
        ("kv.example:50053", True),
        ("dns:///kv:50053", True),
        ("localhost:50053", False),
        ("dns:///127.0.0.1:50053", False),
        ("[::1]:50053", False),
    ],
)
def test_a_proxy_is_asked_for_other_machines(target, is_asked):
    options = dict(channel_options(target, LATENT_KV))
    assert options.get("grpc.enable_http_proxy", 1) == is_asked


def write_receiver(requests_seen):
    def answer(requests, context):
        requests_seen.extend(requests)
        return latent_kv_pb2.WriteLatentResponse(
            ref={"entry_id": "e", "step_index": 1, "namespace": "ns"}
        )

    return answer


def test_a_write_is_cut_into_messages_that_are_allowed():
    seen = []
    data = bytes(range(256)) * 10_000
    with serving(FakeLatentKV(WriteLatent=write_receiver(seen))) as target:
        with LatentKVClient(target) as kv:
            ref = kv.write_latent(
                "ns", HEAD, [data[:3], data[3:]], size_bytes=len(data), xxh3_64=5, lease_s=30
            )
    assert ref == LatentRef("ns", "e", 1)
    header, *rest = seen
    assert header.header.size_bytes == len(data)
    assert header.header.lease.seconds == 30
    assert [r.finish_write for r in rest] == [False] * (len(rest) - 1) + [True]
    assert b"".join(r.data for r in rest) == data
    assert max(len(r.data) for r in rest) == 1 << 20


def test_an_error_of_the_callers_data_passes_through_and_the_write_is_not_finished():
    seen = []

    def broken():
        yield b"abc"
        raise RuntimeError("the tensor is gone")

    def answer(requests, context):
        seen.extend(requests)
        raise InvalidArgument("the stream ends early")

    with serving(FakeLatentKV(WriteLatent=answer)) as target, LatentKVClient(target) as kv:
        with pytest.raises(RuntimeError, match="the tensor is gone"):
            kv.write_latent("ns", HEAD, broken(), size_bytes=6, xxh3_64=0)
    assert not any(request.finish_write for request in seen)


def test_arrays_come_back_bit_for_bit_bfloat16_and_special_values_too():
    stored = {}

    def write(requests, context):
        header, *rest = requests
        stored["metadata"] = header.header.metadata
        stored["data"] = b"".join(r.data for r in rest)
        assert checksum(stored["data"]) == header.header.xxh3_64
        return latent_kv_pb2.WriteLatentResponse(ref={"entry_id": "e", "step_index": 1})

    def read(request, context):
        head = latent_kv_pb2.ReadLatentResponse()
        head.snapshot.metadata.CopyFrom(stored["metadata"])
        head.snapshot.ref.CopyFrom(request.ref)
        head.snapshot.ref.size_bytes = len(stored["data"])
        head.snapshot.ref.xxh3_64 = checksum(stored["data"])
        yield head
        for start in range(0, len(stored["data"]), 1000):
            yield latent_kv_pb2.ReadLatentResponse(data=stored["data"][start : start + 1000])

    bits = np.arange(1 << 16, dtype=np.uint16)
    arrays = {
        "latents": bits.view(ml_dtypes.bfloat16).reshape(4, 4, -1),
        "scheduler.history.0": np.linspace(0, 1, 7, dtype=np.float16),
        "scheduler.count": np.array([-(2**63), 2**63 - 1]),
        "scheduler.scalar": np.array(0.5, np.float32),
    }
    with serving(FakeLatentKV(WriteLatent=write, ReadLatent=read)) as target:
        with LatentKVClient(target) as kv:
            ref = kv.write_arrays("ns", HEAD, arrays)
            metadata, read_back = kv.read_arrays("ns", ref)
    assert list(read_back) == list(arrays)
    assert metadata.parts[0] == TensorPart("latents", TensorSpec(DType.BFLOAT16, (4, 4, 4096)))
    for name, array in arrays.items():
        assert read_back[name].dtype == array.dtype
        assert read_back[name].shape == array.shape
        assert read_back[name].tobytes() == array.tobytes()
        assert read_back[name].flags.writeable


def snapshot() -> Snapshot:
    data = b"12345678"
    metadata = SnapshotMetadata(
        "e", 1, 2, 0.5, KEY, (TensorPart("latents", TensorSpec(DType.FLOAT32, (2,))),)
    )
    return Snapshot(LatentRef("ns", "e", 1, "", None, checksum(data), 8), metadata, data)


def snapshot_messages() -> list[latent_kv_pb2.ReadLatentResponse]:
    stream = snapshot_to_stream(snapshot())
    return [latent_kv_pb2.ReadLatentResponse.FromString(message) for message in stream]


def test_a_byte_that_changed_on_the_way_is_found():
    def read(request, context):
        head, data = snapshot_messages()
        yield head
        yield latent_kv_pb2.ReadLatentResponse(data=b"0" + data.data[1:])

    with serving(FakeLatentKV(ReadLatent=read)) as target, LatentKVClient(target) as kv:
        with pytest.raises(DataCorrupt, match="checksum"):
            kv.read_latent("ns", LatentRef("ns", "e", 1))


def test_a_store_that_hangs_costs_a_read_no_more_than_its_first_byte_timeout():
    servicer = FakeLatentKV()

    def read(request, context):
        servicer.gone.wait(WAIT_S)
        yield from snapshot_messages()

    servicer._answers["ReadLatent"] = read
    with serving(servicer) as target:
        with LatentKVClient(target, timeout_s=WAIT_S, first_byte_timeout_s=0.05) as kv:
            with pytest.raises(DeadlineExceeded, match=r"no answer within 0\.05 s"):
                kv.read_latent("ns", LatentRef("ns", "e", 1))
        assert servicer.gone.wait(WAIT_S)


def test_a_read_may_take_longer_than_its_first_byte_timeout():
    """The limit is for a store that hangs, not for a large snapshot."""

    def read(request, context):
        head, data = snapshot_messages()
        yield head
        # The server runs in this process: wait until the client has called off its limit. Did it
        # not, this would wait until the limit ends the read.
        for thread in threading.enumerate():
            if isinstance(thread, threading.Timer):
                # Set when it is called off; joining it would fail before it has started.
                thread.finished.wait(WAIT_S)
        yield data

    with serving(FakeLatentKV(ReadLatent=read)) as target:
        with LatentKVClient(target, timeout_s=2 * WAIT_S, first_byte_timeout_s=WAIT_S / 2) as kv:
            assert bytes(kv.read_latent("ns", LatentRef("ns", "e", 1)).data) == b"12345678"


@pytest.mark.parametrize("page_size", [0, -1, 1001])
def test_a_page_size_that_the_wire_would_change_is_refused(page_size):
    with LatentKVClient("127.0.0.1:1") as kv, pytest.raises(InvalidArgument, match="1 to 1000"):
        kv.list_entries("ns", page_size)


def test_pinning_tells_which_entries_are_there():
    answer = latent_kv_pb2.PinEntriesResponse(
        statuses=[
            to_status(EntryNotFound("no a")),
            latent_kv_pb2.PinEntriesResponse().statuses.add(),
        ]
    )
    with serving(FakeLatentKV(PinEntries=lambda request, context: answer)) as target:
        with LatentKVClient(target) as kv:
            assert kv.pin_entries("ns", ["a", "b"], True) == [False, True]


def watch_answer(events, release):
    def answer(request, context):
        context.send_initial_metadata(WATCH_READY)
        for event in events:
            yield eviction_to_message(event)
        context.add_callback(release.set)
        release.wait(WAIT_S)

    return answer


def test_closing_a_watch_ends_it_while_another_thread_waits():
    event = EvictionEvent(1, EvictionKind.CAPACITY, "ns", "e")
    seen, release = [], threading.Event()
    with serving(FakeLatentKV(WatchEvictions=watch_answer([event], release))) as target:
        with LatentKVClient(target) as kv:
            watch = kv.watch_evictions("ns")
            got_one = threading.Event()

            def follow():
                for item in watch:
                    seen.append(item)
                    got_one.set()

            thread = threading.Thread(target=follow)
            thread.start()
            assert got_one.wait(WAIT_S)
            watch.close()
            thread.join(WAIT_S)
            assert not thread.is_alive()
    assert seen == [event]


def test_closing_the_client_ends_its_watches():
    with serving(FakeLatentKV(WatchEvictions=watch_answer([], threading.Event()))) as target:
        kv = LatentKVClient(target)
        watch = kv.watch_evictions("ns")
        kv.close()
        assert list(watch) == []


def test_a_refused_watch_raises_at_once():
    error = InvalidArgument("sequence 9 is in the future", field="after_sequence")
    with serving(FakeLatentKV(WatchEvictions=raising(error))) as target:
        with LatentKVClient(target) as kv, pytest.raises(InvalidArgument, match="future"):
            kv.watch_evictions("ns", 9)


def test_a_watch_has_no_deadline():
    servicer = FakeLatentKV(WatchEvictions=watch_answer([], threading.Event()))
    with serving(servicer) as target, LatentKVClient(target, timeout_s=1) as kv:
        kv.watch_evictions("ns").close()
    assert servicer.time_remaining == [None] or servicer.time_remaining[0] > 1e6


HTTP2_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


def test_a_peer_that_is_silent_for_the_keepalive_timeout_is_taken_for_dead(monkeypatch):
    """A stopped process keeps its connections; a watch without a deadline would wait for ever."""
    monkeypatch.setattr(_channel, "KEEPALIVE_S", 0.1)
    monkeypatch.setattr(_channel, "KEEPALIVE_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        with LatentKVClient(f"127.0.0.1:{listener.getsockname()[1]}") as kv:
            watch = pool.submit(kv.watch_evictions, "ns")
            peer, _ = listener.accept()
            peer.sendall(HTTP2_SETTINGS)
            with peer, pytest.raises(Unavailable, match="ping timeout"):
                watch.result(WAIT_S)


def test_a_bad_entry_does_not_fail_its_neighbours():
    statuses = [
        status_pb2.Status(),
        to_status(InvalidArgument("vector is zero", field="entries[1].vector")),
    ]
    answer = vector_index_pb2.UpsertEntriesResponse(statuses=statuses)
    servicer = FakeVectorIndex(UpsertEntries=lambda request, context: answer)
    entry = VectorEntry(IndexEntry("a"), np.array([1, 2], np.float32))
    with serving(servicer) as target, VectorIndexClient(target) as index:
        fine, bad = index.upsert_entries("ns", KEY, [entry, entry])
    assert fine is None
    assert isinstance(bad, InvalidArgument)
    assert bad.field == "entries[1].vector"
    assert np.frombuffer(servicer.requests[0].entries[0].vector, "<f4").tolist() == [1, 2]


def test_no_smallest_similarity_differs_from_zero():
    answer = vector_index_pb2.SearchEntriesResponse()
    servicer = FakeVectorIndex(SearchEntries=lambda request, context: answer)
    query = [np.ones(2, np.float32)]
    with serving(servicer) as target, VectorIndexClient(target) as index:
        index.search_entries("ns", KEY, query, 3)
        index.search_entries("ns", KEY, query, 3, 0.0)
    assert [r.HasField("min_similarity") for r in servicer.requests] == [False, True]


def endless_steps(request, context):
    step = 0
    while context.is_active():
        yield denoise_pb2.RunDenoiseResponse(
            step={"step_index": step, "num_inference_steps": 10_000_000}
        )
        step += 1


@pytest.mark.parametrize("how", ["close", "lose", "close unstarted"])
def test_a_run_that_nobody_follows_any_more_is_cancelled(how):
    servicer = FakeDenoise(RunDenoise=endless_steps)
    with serving(servicer) as target, DenoiseClient(target) as denoise:
        events = denoise.run(DenoiseRequest("ns", GenerationParams("a", seed=1)))
        if how == "close unstarted":
            # A run that was cancelled before it reached the service has nothing to stop.
            assert servicer.called.wait(WAIT_S)
        else:
            assert next(events) == StepProgress(0, 10_000_000)
        if how == "lose":
            del events
        else:
            events.close()
        assert servicer.gone.wait(WAIT_S)


ARTIFACT = Artifact("image/png", b"png" * 1_000_000, 64, 64)
PARAMS = GenerationParams("a red circle", num_inference_steps=1, seed=3)
PROVENANCE = Provenance("r", HitTier.MISS, "NO_CANDIDATE", 1, 1, 3, CacheMode.READ_WRITE, "1")
EVENTS = (
    GenerateAccepted("r", PARAMS),
    StepProgress(0, 1),
    ARTIFACT,
    GenerateFinished(PROVENANCE),
)


def generation(events):
    return lambda request, context: (m for event in events for m in event_to_messages(event))


def test_generate_gives_picture_parameters_and_provenance():
    servicer = FakeOrchestrator(Generate=generation(EVENTS))
    steps = []
    with serving(servicer) as target, OrchestratorClient(target) as client:
        result = client.generate(
            "a red circle", CacheOptions(CacheMode.OFF), "ns", on_step=steps.append
        )
    assert result.artifact == ARTIFACT
    assert result.params == PARAMS
    assert result.provenance == PROVENANCE
    assert steps == [StepProgress(0, 1)]
    request = servicer.requests[0]
    assert (request.namespace, request.params.prompt) == ("ns", "a red circle")
    assert request.cache.mode == orchestrator_pb2.CACHE_MODE_OFF


def test_no_cache_options_leave_everything_to_the_orchestrator():
    servicer = FakeOrchestrator(Generate=generation(EVENTS))
    with serving(servicer) as target, OrchestratorClient(target) as client:
        client.generate(PARAMS)
    assert not servicer.requests[0].HasField("cache")


def test_a_stream_outlives_the_variable_that_held_its_client():
    with serving(FakeOrchestrator(Generate=generation(EVENTS))) as target:
        assert list(OrchestratorClient(target).generate_stream("a")) == list(EVENTS)


def test_a_generation_that_ends_early_is_no_result():
    with serving(FakeOrchestrator(Generate=generation(EVENTS[:2]))) as target:
        with OrchestratorClient(target) as client, pytest.raises(DataCorrupt):
            client.generate(PARAMS)


def test_a_callback_that_raises_stops_the_generation():
    servicer = FakeOrchestrator()

    def answer(request, context):
        yield from generation(EVENTS[:2])(request, context)
        servicer.gone.wait(WAIT_S)

    servicer._answers["Generate"] = answer

    def stop(step):
        raise KeyError("enough")

    with serving(servicer) as target, OrchestratorClient(target) as client:
        with pytest.raises(KeyError) as caught:
            client.generate(PARAMS, on_step=stop)
        assert servicer.gone.wait(WAIT_S)
    # Held until here on purpose: its traceback keeps the frames of the call alive.
    assert caught.value.args == ("enough",)


def test_importing_the_package_loads_no_client():
    """Someone who imports one name should not pay for grpc and all stubs."""
    import subprocess
    import sys

    code = "import sys, skipstone_client; print('grpc' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_every_client_has_an_asynchronous_twin_with_the_same_methods():
    import skipstone_client
    from skipstone_client import aio

    clients = [name for name in skipstone_client.__all__ if name.endswith("Client")]
    assert [n for n in async_names if n.endswith("Client")] == ["Async" + name for name in clients]
    for name in clients:
        sync = {m for m in dir(getattr(skipstone_client, name)) if not m.startswith("_")}
        twin = {m for m in dir(getattr(aio, "Async" + name)) if not m.startswith("_")}
        assert sync == twin
