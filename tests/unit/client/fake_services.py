"""Small real servers for tests of the clients: the real interceptor, scripted answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from skipstone.denoise.v1 import denoise_pb2_grpc
from skipstone.latent_kv.v1 import latent_kv_pb2, latent_kv_pb2_grpc
from skipstone.orchestrator.v1 import orchestrator_pb2_grpc
from skipstone.vector_index.v1 import vector_index_pb2_grpc
from skipstone_shared.grpc_server import Mounted, in_process_server


class Scripted:
    """A servicer whose rpcs are functions set by the test; remembers what it was called with."""

    def __init__(self, **answers: Callable[..., Any]) -> None:
        self.requests: list[Any] = []
        self.metadata: list[dict[str, Any]] = []
        self.time_remaining: list[float | None] = []
        self.called = threading.Event()
        self.gone = threading.Event()
        self._answers = answers

    def __getattribute__(self, name: str) -> Any:
        if not name[0].isupper():
            return super().__getattribute__(name)
        answer = self._answers.get(name)
        if answer is None:
            return super().__getattribute__(name)

        def call(request: Any, context: Any) -> Any:
            self.requests.append(request)
            self.metadata.append(dict(context.invocation_metadata()))
            self.time_remaining.append(context.time_remaining())
            context.add_callback(self.gone.set)
            self.called.set()
            return answer(request, context)

        return call


class FakeLatentKV(Scripted, latent_kv_pb2_grpc.LatentKVServicer):  # type: ignore[misc]
    """latent_kv."""


class FakeVectorIndex(Scripted, vector_index_pb2_grpc.VectorIndexServicer):  # type: ignore[misc]
    """vector_index."""


class FakeDenoise(Scripted, denoise_pb2_grpc.DenoiseServicer):  # type: ignore[misc]
    """denoise."""


class FakeOrchestrator(Scripted, orchestrator_pb2_grpc.OrchestratorServicer):  # type: ignore[misc]
    """orchestrator."""


_REGISTER: dict[type, Callable[[Any, Any], None]] = {
    FakeLatentKV: latent_kv_pb2_grpc.add_LatentKVServicer_to_server,
    FakeVectorIndex: vector_index_pb2_grpc.add_VectorIndexServicer_to_server,
    FakeDenoise: denoise_pb2_grpc.add_DenoiseServicer_to_server,
    FakeOrchestrator: orchestrator_pb2_grpc.add_OrchestratorServicer_to_server,
}


@contextmanager
def serving(servicer: Scripted) -> Iterator[str]:
    """Serves and yields the target."""
    register = _REGISTER[type(servicer)]
    with in_process_server(Mounted(lambda server: register(servicer, server), ())) as target:
        yield target


def deletion(*existed: bool) -> latent_kv_pb2.DeleteEntriesResponse:
    """An answer of DeleteEntries."""
    return latent_kv_pb2.DeleteEntriesResponse(existed=existed)
