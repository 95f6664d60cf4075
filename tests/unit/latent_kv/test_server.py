"""The wire: streams that break the protocol, chunk sizes, watchers and the drain."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
from collections.abc import Iterator

import grpc
import pytest
from structlog.testing import capture_logs
from tests.contract.latent_store_cases import Write, latents, list_ids, save

from skipstone.latent_kv.v1 import latent_kv_pb2 as pb
from skipstone.latent_kv.v1.latent_kv_pb2_grpc import LatentKVStub
from skipstone_client.aio import AsyncLatentKVClient
from skipstone_latent_kv.memory_store import MemoryStore
from skipstone_latent_kv.metrics_store import MetricsStore
from skipstone_latent_kv.server import mount
from skipstone_shared.grpc_errors import from_rpc_error
from skipstone_shared.grpc_server import Mounted, in_process_server
from skipstone_shared.latent_messages import ref_to_message
from skipstone_shared.snapshot_streams import write_to_stream
from skipstone_shared.stored_entries import MAX_CHUNK_BYTES, StoredSnapshot

TIMEOUT_S = 30.0


@dataclasses.dataclass(frozen=True)
class Served:
    """A store behind a server, and a raw stub of it."""

    store: MemoryStore
    target: str
    stub: LatentKVStub
    mounted: Mounted


@pytest.fixture
def served() -> Iterator[Served]:
    store = MemoryStore()
    measured = MetricsStore(store)
    mounted = mount(measured, max_watchers=2, collectors=measured.collectors)
    with (
        capture_logs(),
        in_process_server(mounted) as target,
        grpc.insecure_channel(target) as channel,
    ):
        yield Served(store, target, LatentKVStub(channel), mounted)
    store.close()


def messages(write: Write) -> list[pb.WriteLatentRequest]:
    serialized = write_to_stream(
        write.namespace,
        write.metadata,
        write.data,
        size_bytes=write.size_bytes,
        xxh3_64=write.xxh3_64,
    )
    return [pb.WriteLatentRequest.FromString(message) for message in serialized]


def code_of(error: grpc.RpcError) -> grpc.StatusCode:
    code: grpc.StatusCode = error.code()  # type: ignore[attr-defined]
    return code


class TestWrites:
    def refuses(self, served: Served, requests: list[pb.WriteLatentRequest], field: str) -> None:
        with pytest.raises(grpc.RpcError) as raised:
            served.stub.WriteLatent(iter(requests), timeout=TIMEOUT_S)
        assert code_of(raised.value) is grpc.StatusCode.INVALID_ARGUMENT
        error = from_rpc_error(raised.value)
        assert (error.field, bool(error.allowed)) == (field, True)
        page = served.store.list_entries("", include_uncommitted=True)
        assert page.entries == ()

    def test_a_stream_without_header_is_refused(self, served: Served) -> None:
        self.refuses(served, messages(Write.of("entry"))[1:], "header")
        self.refuses(served, [], "header")

    def test_a_stream_that_ends_before_finish_write_stores_nothing(self, served: Served) -> None:
        """All bytes arrived, but the caller did not say so: it may have died in between."""
        self.refuses(served, messages(Write.of("entry"))[:-1], "finish_write")

    def test_a_second_header_is_refused(self, served: Served) -> None:
        requests = messages(Write.of("entry"))
        self.refuses(served, [requests[0], *requests], "header")

    def test_a_chunk_above_the_limit_is_refused(self, served: Served) -> None:
        requests = messages(Write.of("entry", latents(size_bytes=MAX_CHUNK_BYTES + 2)))
        joined = b"".join(request.data for request in requests)
        chunk = pb.WriteLatentRequest(data=joined, finish_write=True)
        self.refuses(served, [requests[0], chunk], "data")

    def test_finish_write_may_come_with_the_last_data(self, served: Served) -> None:
        requests = messages(Write.of("entry"))
        requests[1].finish_write = True
        ref = served.stub.WriteLatent(iter(requests[:2]), timeout=TIMEOUT_S).ref
        assert ref.entry_id == "entry"
        assert ref.store == ""

    def test_a_caller_that_goes_away_in_the_middle_leaves_nothing(self, served: Served) -> None:
        requests = messages(Write.of("entry", latents(size_bytes=3 * MAX_CHUNK_BYTES)))

        def broken() -> Iterator[pb.WriteLatentRequest]:
            yield from requests[:2]
            call.cancel()

        call = served.stub.WriteLatent.future(broken(), timeout=TIMEOUT_S)
        with pytest.raises((grpc.RpcError, grpc.FutureCancelledError)):
            call.result()
        assert list_ids(served.store) == []


class TestReads:
    @pytest.mark.parametrize("chunk_bytes", [0, 1000, MAX_CHUNK_BYTES])
    def test_the_reader_chooses_the_largest_message(self, served: Served, chunk_bytes: int) -> None:
        write = Write.of("entry", latents(size_bytes=MAX_CHUNK_BYTES + 10))
        request = pb.ReadLatentRequest(
            ref=ref_to_message(write.to(served.store)), chunk_bytes=chunk_bytes
        )
        first, *rest = served.stub.ReadLatent(request, timeout=TIMEOUT_S)
        assert first.snapshot.metadata.entry_id == "entry"
        assert b"".join(message.data for message in rest) == write.all_bytes
        assert max(len(message.data) for message in rest) == (chunk_bytes or MAX_CHUNK_BYTES)

    @pytest.mark.parametrize("chunk_bytes", [-1, MAX_CHUNK_BYTES + 1])
    def test_a_chunk_size_out_of_range_is_refused(self, served: Served, chunk_bytes: int) -> None:
        ref = ref_to_message(save(served.store, "entry"))
        request = pb.ReadLatentRequest(ref=ref, chunk_bytes=chunk_bytes)
        with pytest.raises(grpc.RpcError) as raised:
            list(served.stub.ReadLatent(request, timeout=TIMEOUT_S))
        assert from_rpc_error(raised.value).field == "chunk_bytes"

    def test_a_page_size_of_0_means_the_default(self, served: Served) -> None:
        save(served.store, "entry")
        page = served.stub.ListEntries(pb.ListEntriesRequest(), timeout=TIMEOUT_S)
        assert [entry.entry_id for entry in page.entries] == ["entry"]

    def test_a_page_is_shorter_where_its_snapshots_do_not_fit_into_one_message(
        self, served: Served
    ) -> None:
        """The client would drop an answer of more than 4 MiB, and the listing could never end."""
        state = json.dumps({"scalars": "x" * 16_000})
        ids = [f"e{number:02}" for number in range(14)]
        for entry_id, step in itertools.product(ids, range(20)):
            write = Write.of(entry_id, latents(size_bytes=2), step_index=step)
            noted = dataclasses.replace(write.metadata, scheduler_state_json=state)
            write.but(metadata=noted).to(served.store)
        found: list[str] = []
        token = ""
        while token or not found:
            request = pb.ListEntriesRequest(
                page_size=14, page_token=token, include_uncommitted=True
            )
            page = served.stub.ListEntries(request, timeout=TIMEOUT_S)
            found += [entry.entry_id for entry in page.entries]
            token = page.next_page_token
        assert found == ids

    def test_batches_answer_with_one_status_per_id(self, served: Served) -> None:
        save(served.store, "entry")
        ids = ["nothing", "entry"]
        pinned = served.stub.PinEntries(
            pb.PinEntriesRequest(entry_ids=ids, pinned=True), timeout=TIMEOUT_S
        )
        not_found = grpc.StatusCode.NOT_FOUND.value[0]
        assert [status.code for status in pinned.statuses] == [not_found, 0]
        deleted = served.stub.DeleteEntries(pb.DeleteEntriesRequest(entry_ids=ids), timeout=30)
        assert [status.code for status in deleted.statuses] == [0, 0]
        assert list(deleted.existed) == [False, True]
        assert deleted.deleted_count == 1

    def test_omitted_data_leave_one_message_and_count_as_a_read(self, served: Served) -> None:
        ref = ref_to_message(save(served.store, "entry"))
        request = pb.ReadLatentRequest(ref=ref, omit_data=True)
        (only,) = served.stub.ReadLatent(request, timeout=TIMEOUT_S)
        assert only.snapshot.ref == ref
        assert served.store.get_entry("", "entry").read_count == 1

    def test_the_asynchronous_client_touches_too(self, served: Served) -> None:
        ref = save(served.store, "entry")

        async def touch() -> StoredSnapshot:
            async with AsyncLatentKVClient(served.target) as client:
                return await client.touch_latent("", ref)

        assert asyncio.run(touch()).ref == ref


class TestWatchers:
    def watch(self, served: Served) -> Iterator[pb.WatchEvictionsResponse]:
        call = served.stub.WatchEvictions(pb.WatchEvictionsRequest(), timeout=TIMEOUT_S)
        assert dict(call.initial_metadata())["x-skipstone-watch"] == "ready"  # type: ignore[attr-defined]
        return call

    def test_too_many_watchers_are_refused_and_a_place_is_free_again_after_one_leaves(
        self, served: Served
    ) -> None:
        """Each watcher holds a thread; without a bound they would stop all other calls."""
        watches = [self.watch(served) for _ in range(2)]
        with pytest.raises(grpc.RpcError) as raised:
            next(served.stub.WatchEvictions(pb.WatchEvictionsRequest(), timeout=TIMEOUT_S))
        assert code_of(raised.value) is grpc.StatusCode.RESOURCE_EXHAUSTED
        watches[0].cancel()  # type: ignore[attr-defined]
        while True:
            call = served.stub.WatchEvictions(pb.WatchEvictionsRequest(), timeout=TIMEOUT_S)
            if call.initial_metadata():  # type: ignore[attr-defined]
                break
        save(served.store, "entry")
        served.store.delete_entries("", ["entry"])
        assert next(call).entry_id == next(watches[1]).entry_id == "entry"

    def test_a_drain_ends_watches_with_unavailable(self, served: Served) -> None:
        watch = self.watch(served)
        for callback in served.mounted.on_drain:
            callback()
        with pytest.raises(grpc.RpcError) as raised:
            next(watch)
        assert code_of(raised.value) is grpc.StatusCode.UNAVAILABLE
        with pytest.raises(grpc.RpcError) as raised:
            next(served.stub.WatchEvictions(pb.WatchEvictionsRequest(), timeout=TIMEOUT_S))
        assert code_of(raised.value) is grpc.StatusCode.UNAVAILABLE
