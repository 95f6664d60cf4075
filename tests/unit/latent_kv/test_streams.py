"""Callers that stop in the middle of a stream, over the wire: all others are served on."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs
from tests.contract.latent_store_cases import Clock, Write, latents, list_ids, save

from skipstone.latent_kv.v1 import latent_kv_pb2 as pb
from skipstone.latent_kv.v1.latent_kv_pb2_grpc import LatentKVStub
from skipstone_client.latent_kv import LatentKVClient
from skipstone_latent_kv.memory_store import MemoryStore
from skipstone_latent_kv.server import mount
from skipstone_latent_kv.stream_budget import StreamBudget, StreamLimits
from skipstone_shared.errors import FingerprintMismatch, ResourceExhausted
from skipstone_shared.grpc_server import InProcessSettings, in_process_server
from skipstone_shared.latent_messages import ref_to_message
from skipstone_shared.latents import LatentRef
from skipstone_shared.snapshot_streams import write_to_stream

WAIT_S = 60.0
MIB = 1 << 20
SIZE = 4 * MIB
"""More than these connections take ahead, so that a stream whose caller stops stands still."""

HELD = SIZE + 2 * MIB


@dataclasses.dataclass(frozen=True)
class Served:
    store: MemoryStore
    clock: Clock
    budget: StreamBudget
    target: str
    stack: ExitStack

    def stub(self) -> LatentKVStub:
        """Over a connection of its own, which takes little ahead of its reader."""
        options = [
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.http2.bdp_probe", 0),
            ("grpc.http2.lookahead_bytes", 1 << 16),
        ]
        channel = self.stack.enter_context(grpc.insecure_channel(self.target, options))
        return LatentKVStub(channel)

    def ends_a_stalled_one(self) -> bool:
        """Whether a stream is ended for what it did not send or take within 30 more seconds.

        What its caller had sent before may still be on its way, and counts as progress.
        """
        self.clock.advance(30.0)
        return self.budget.sweep() == 1

    def client(self) -> LatentKVClient:
        return self.stack.enter_context(LatentKVClient(self.target, timeout_s=WAIT_S))


MakeServed = Callable[..., Served]


@pytest.fixture
def serve() -> Iterator[MakeServed]:
    """Two threads for all calls that are no streams."""
    with capture_logs(), ExitStack() as stack:

        def make(**limits: Any) -> Served:
            clock, store = Clock(), MemoryStore()
            budget = StreamBudget(StreamLimits(**limits), clock)
            mounted = mount(store, max_watchers=1, budget=budget)
            settings = InProcessSettings(max_workers=2)
            target = stack.enter_context(in_process_server(mounted, settings))
            return Served(store, clock, budget, target, stack)

        yield make


def until(condition: Callable[[], bool]) -> None:
    """Waits for a state that the server reaches by itself."""
    pause = threading.Event()
    for _ in range(int(WAIT_S / 0.005)):
        if condition():
            return
        pause.wait(0.005)
    raise AssertionError("the state was not reached")


def stalled_read(stub: LatentKVStub, ref: LatentRef) -> Any:
    """A read whose caller takes nothing."""
    return stub.ReadLatent(pb.ReadLatentRequest(ref=ref_to_message(ref)), timeout=2 * WAIT_S)


def stalled_write(served: Served, count: int) -> Any:
    """A write whose caller stops after so many messages."""
    write = Write.of("stalled", latents(size_bytes=SIZE))
    serialized = write_to_stream(
        "", write.metadata, write.data, size_bytes=SIZE, xxh3_64=write.xxh3_64
    )
    gone = threading.Event()
    served.stack.callback(gone.set)

    def requests() -> Iterator[pb.WriteLatentRequest]:
        for _ in range(count):
            yield pb.WriteLatentRequest.FromString(next(serialized))
        gone.wait(2 * WAIT_S)

    return served.stub().WriteLatent.future(requests(), timeout=2 * WAIT_S)


def code_of(call: Any) -> grpc.StatusCode:
    code: grpc.StatusCode = call.code()
    return code


@pytest.mark.parametrize(("messages", "held"), [(0, 0), (1, HELD), (3, HELD)])
def test_a_write_whose_caller_stops_is_ended_and_leaves_nothing(
    serve: MakeServed, messages: int, held: int
) -> None:
    served = serve()
    call = stalled_write(served, messages)
    until(lambda: (served.budget.running, served.budget.held_bytes) == (1, held))
    until(served.ends_a_stalled_one)
    assert code_of(call) is grpc.StatusCode.CANCELLED
    until(lambda: (served.budget.running, served.budget.held_bytes) == (0, 0))
    assert list_ids(served.store) == []


def test_a_read_whose_caller_stops_is_ended(serve: MakeServed) -> None:
    served = serve()
    ref = save(served.store, "entry", latents(size_bytes=SIZE))
    call = stalled_read(served.stub(), ref)
    until(lambda: served.budget.held_bytes == HELD)
    until(served.ends_a_stalled_one)
    until(lambda: served.budget.running == 0)
    with pytest.raises(grpc.RpcError):
        list(call)
    assert code_of(call) is grpc.StatusCode.CANCELLED


def test_two_hundred_stalled_reads_stay_within_the_bound_and_others_are_served(
    serve: MakeServed,
) -> None:
    served = serve(max_bytes=20 * HELD, wait_s=1e9)
    ref = save(served.store, "entry", latents(size_bytes=SIZE))
    # Four connections, since gRPC lets one carry a hundred streams.
    calls = [stalled_read(stub, ref) for stub in [served.stub() for _ in range(4)] * 50]
    until(lambda: (served.budget.running, served.budget.waiting) == (200, 180))
    assert served.budget.held_bytes == 20 * HELD
    client = served.client()
    assert client.get_entry("", "entry").entry_id == "entry"
    assert client.touch_latent("", ref).ref.entry_id == "entry"

    read = threading.Event()

    def read_and_write() -> None:
        assert len(client.read_latent("", ref).data) == SIZE
        save(client, "another", latents(size_bytes=SIZE))
        read.set()

    worker = threading.Thread(target=read_and_write, daemon=True)
    worker.start()
    # Whoever stalls gives way after a second; all in front of the reader are gone in ten.
    for _ in range(40):
        if read.wait(0.25):
            break
        assert served.budget.held_bytes <= 20 * HELD
        served.clock.advance(1.0)
    assert read.wait(WAIT_S)
    worker.join()
    for call in calls:
        call.cancel()
    until(lambda: (served.budget.running, served.budget.held_bytes) == (0, 0))


def test_more_streams_than_are_allowed_are_refused(serve: MakeServed) -> None:
    served = serve(max_streams=1, wait_s=0.0)
    ref = save(served.store, "entry", latents(size_bytes=SIZE))
    first = stalled_read(served.stub(), ref)
    until(lambda: served.budget.held_bytes == HELD)
    with pytest.raises(ResourceExhausted, match="max_streams"):
        served.client().read_latent("", ref)
    first.cancel()
    until(lambda: served.budget.running == 0)
    assert len(served.client().read_latent("", ref).data) == SIZE


def test_a_read_counts_what_is_stored_whatever_its_reference_says(serve: MakeServed) -> None:
    served = serve()
    ref = save(served.store, "entry", latents(size_bytes=SIZE))
    call = stalled_read(served.stub(), LatentRef("", "entry", ref.step_index))
    until(lambda: served.budget.held_bytes == HELD)
    call.cancel()
    with pytest.raises(FingerprintMismatch):
        served.client().read_latent("", dataclasses.replace(ref, size_bytes=1))
