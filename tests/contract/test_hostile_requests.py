"""No request makes a service fail: whatever it holds, the answer is good or says what is bad.

Services are real servers; what they keep is in memory. `INTERNAL` and `UNKNOWN` are what gRPC gives
for an exception that nobody thought of.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc
import numpy as np
import pytest
import structlog
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.message_strategies import messages
from tests.unit.embedding.test_batching import LengthEncoder
from tests.unit.orchestrator.fakes import BagOfWords, Executor
from tests.unit.orchestrator.fakes import MemoryStore as FakeStore
from tests.unit.orchestrator.site import QUIET

from skipstone.denoise.v1 import denoise_pb2
from skipstone.embedding.v1 import embedding_pb2
from skipstone.latent_kv.v1 import latent_kv_pb2
from skipstone.migration.v1 import migration_pb2
from skipstone.orchestrator.v1 import orchestrator_pb2
from skipstone.vector_index.v1 import vector_index_pb2
from skipstone_client.aio import AsyncLatentKVClient, AsyncVectorIndexClient
from skipstone_embedding.config import EmbeddingSettings
from skipstone_embedding.loading import load_reranker
from skipstone_embedding.server import mount as mount_encoder
from skipstone_latent_kv.memory_store import MemoryStore
from skipstone_latent_kv.server import mount as mount_store
from skipstone_orchestrator.config import OrchestratorSettings
from skipstone_orchestrator.gate import SimilarityGate
from skipstone_orchestrator.server import mounted
from skipstone_orchestrator.wiring import Backends, Orchestrator
from skipstone_shared.embeddings import Embedding
from skipstone_shared.grpc_aio_server import AsyncMounted, AsyncServer
from skipstone_shared.grpc_server import InProcessSettings, Mounted, in_process_server
from skipstone_shared.migration_server import with_migration
from skipstone_vector_index.flat_index import FlatIndex
from skipstone_vector_index.index_mover import IndexMover
from skipstone_vector_index.mirrored_index import MirroredIndex
from skipstone_vector_index.server import mount as mount_index

WAIT_S = 20.0
WATCH_S = 0.05
MAX_ANSWERS = 60
BUGS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
SERVICES: list[ServiceDescriptor] = [
    embedding_pb2.DESCRIPTOR.services_by_name["Embedding"],
    latent_kv_pb2.DESCRIPTOR.services_by_name["LatentKV"],
    vector_index_pb2.DESCRIPTOR.services_by_name["VectorIndex"],
    migration_pb2.DESCRIPTOR.services_by_name["Migration"],
    orchestrator_pb2.DESCRIPTOR.services_by_name["Orchestrator"],
]
DENOISE: list[MethodDescriptor] = list(denoise_pb2.DESCRIPTOR.services_by_name["Denoise"].methods)
RPCS: list[MethodDescriptor] = [method for service in SERVICES for method in service.methods]


def moving_index() -> Mounted:
    """An index whose entries move to another one."""
    mirrored = MirroredIndex(FlatIndex(), FlatIndex())
    return with_migration(mount_index(mirrored), IndexMover(mirrored))


class AnyWords(BagOfWords):
    """Vectors of any text."""

    async def embed_text(self, text: str, *, namespace: str = "") -> Embedding:
        vector = np.bincount([sum(word.encode("utf-8")) % 64 for word in text.split()], None, 64)
        return Embedding(vector.astype(np.float32), model_id=self.model_id)


def small_orchestrator(index_target: str, store_target: str) -> AsyncMounted:
    """An orchestrator over real stores, with a small encoder and executor."""
    index, store = AsyncVectorIndexClient(index_target), AsyncLatentKVClient(store_target)
    made = Orchestrator(
        OrchestratorSettings(**QUIET),
        Backends(AnyWords(), index, store, Executor(FakeStore())),
        SimilarityGate(),
        version="1",
        clock=time.monotonic,
        draw_seed=itertools.count().__next__,
        draw_index=lambda count: 0,
        knock=lambda target: _nobody,
    )
    return mounted(made, [index.close, store.close])


async def _nobody() -> bool:
    return False


@contextmanager
def orchestrator(index_target: str, store_target: str) -> Iterator[str]:
    """An orchestrator in a loop of its own thread."""
    started: Future[tuple[str, asyncio.Event, asyncio.AbstractEventLoop]] = Future()

    async def run() -> None:
        server = AsyncServer(InProcessSettings(), small_orchestrator(index_target, store_target))
        over = asyncio.Event()
        started.set_result((await server.start(), over, asyncio.get_running_loop()))
        await over.wait()
        await server.drain(0.0)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    target, over, loop = started.result(WAIT_S)
    try:
        yield target
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(WAIT_S)


@pytest.fixture(scope="module")
def channels() -> Iterator[dict[str, grpc.Channel]]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    kept = MemoryStore(max_snapshot_bytes=1 << 20)
    with ExitStack() as stack:
        targets = {
            "LatentKV": stack.enter_context(
                in_process_server(mount_store(kept, on_stop=[kept.close]))
            ),
            "Embedding": stack.enter_context(
                in_process_server(
                    mount_encoder(LengthEncoder(), load_reranker(EmbeddingSettings()))
                )
            ),
            "VectorIndex": stack.enter_context(in_process_server(mount_index(FlatIndex()))),
            "Migration": stack.enter_context(in_process_server(moving_index())),
        }
        targets["Orchestrator"] = stack.enter_context(
            orchestrator(targets["VectorIndex"], targets["LatentKV"])
        )
        yield {
            name: stack.enter_context(grpc.insecure_channel(target))
            for name, target in targets.items()
        }
    structlog.reset_defaults()


def ask(channel: grpc.Channel, method: MethodDescriptor, requests: list[Any]) -> grpc.StatusCode:
    """Calls an rpc with serialized or other requests; the code of its answer."""
    kind = (
        ("stream" if method.client_streaming else "unary")
        + "_"
        + ("stream" if method.server_streaming else "unary")
    )
    call = getattr(channel, kind)(f"/{method.containing_service.full_name}/{method.name}")
    given_requests = iter(requests) if method.client_streaming else requests[0]
    limit = WATCH_S if method.name == "WatchEvictions" else WAIT_S
    try:
        answer = call(given_requests, timeout=limit)
        if method.server_streaming:
            for _ in itertools.islice(answer, MAX_ANSWERS):
                pass
            answer.cancel()
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return grpc.StatusCode.OK


def check(channels: dict[str, grpc.Channel], method: MethodDescriptor, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 3)) if method.client_streaming else 1
    drawn = [data.draw(messages(method.input_type)) for _ in range(count)]
    code = ask(
        channels[method.containing_service.name], method, [m.SerializeToString() for m in drawn]
    )
    assert code not in BUGS, "\n".join(str(message) for message in drawn)
    if method.name != "WatchEvictions":
        assert code is not grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize("method", RPCS, ids=lambda method: method.full_name.split(".", 3)[3])
@settings(
    max_examples=15,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_every_answer_is_good_or_says_what_is_bad(
    channels: dict[str, grpc.Channel], method: MethodDescriptor, data: st.DataObject
) -> None:
    check(channels, method, data)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("method", RPCS, ids=lambda method: method.full_name.split(".", 3)[3])
@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_answer_is_good_or_says_what_is_bad_at_length(
    channels: dict[str, grpc.Channel], method: MethodDescriptor, data: st.DataObject
) -> None:
    check(channels, method, data)


@pytest.fixture(scope="module")
def executor() -> Iterator[dict[str, grpc.Channel]]:
    """An executor with a tiny model."""
    # torch takes seconds to import, and the short tests do without it.
    from tests.unit.denoise.engine_rig import open_rig
    from tests.unit.denoise.tiny_pipelines import cogview4_pipeline

    from skipstone_denoise.server import mount as mount_engine

    with (
        open_rig(cogview4_pipeline(), max_steps=12, default_steps=10, max_size=64) as rig,
        in_process_server(mount_engine(rig.engine)) as target,
        grpc.insecure_channel(target) as channel,
    ):
        yield {"Denoise": channel}


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("method", DENOISE, ids=lambda method: method.name)
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_answer_of_an_executor_is_good_or_says_what_is_bad(
    executor: dict[str, grpc.Channel], method: MethodDescriptor, data: st.DataObject
) -> None:
    check(executor, method, data)


@pytest.mark.parametrize("method", RPCS, ids=lambda method: method.full_name.split(".", 3)[3])
def test_bytes_that_are_no_message_are_refused_without_a_trace(
    channels: dict[str, grpc.Channel], method: MethodDescriptor
) -> None:
    channel = channels[method.containing_service.name]
    for damaged in (b"\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x00" * 64, b"\x0a\x02\xc3\x28"):
        try:
            GetMessageClass(method.input_type).FromString(damaged)
        except Exception:  # noqa: BLE001 - whichever way protobuf puts it
            assert ask(channel, method, [damaged]) is not grpc.StatusCode.OK
    healthy = GetMessageClass(method.input_type)()
    assert ask(channel, method, [healthy.SerializeToString()]) not in BUGS
