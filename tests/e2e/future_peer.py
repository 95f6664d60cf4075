"""The next minor version on the wire: a proxy that adds a field to every message of Skipstone.

The messages are those of the contracts with two more fields each, made from their descriptors, so
that what a peer of this version gets is what one of the next would send: unknown fields at every
level, in both directions.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

from skipstone.denoise.v1 import denoise_pb2
from skipstone.embedding.v1 import embedding_pb2
from skipstone.latent_kv.v1 import latent_kv_pb2
from skipstone.orchestrator.v1 import orchestrator_pb2
from skipstone.vector_index.v1 import vector_index_pb2

CONTRACTS = (denoise_pb2, embedding_pb2, latent_kv_pb2, orchestrator_pb2, vector_index_pb2)
_TEXT, _COUNT = "future_text", "future_count"
_FIRST_NUMBER = 9000
_PACKAGE = "skipstone."


def future_pool() -> Any:
    """The contracts with more fields, and what they import."""
    pool = descriptor_pool.DescriptorPool()  # type: ignore[no-untyped-call]
    seen: set[str] = set()

    def add(file: Any) -> None:
        if file.name in seen:
            return
        seen.add(file.name)
        for imported in file.dependencies:
            add(imported)
        proto = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(proto)
        if file.package.startswith(_PACKAGE):
            for message in proto.message_type:
                _extend(message)
        pool.Add(proto)

    for contract in CONTRACTS:
        add(contract.DESCRIPTOR)
    return pool


def _extend(message: descriptor_pb2.DescriptorProto) -> None:
    if message.options.map_entry:
        return
    kinds = {_TEXT: "TYPE_STRING", _COUNT: "TYPE_INT64"}
    for number, (name, kind) in enumerate(kinds.items(), _FIRST_NUMBER):
        message.field.add(name=name, number=number, type=kind, label="LABEL_OPTIONAL")
    for nested in message.nested_type:
        _extend(nested)


class FuturePeer:
    """Proxies one service; `carried` counts the messages that had more than the contract says."""

    def __init__(self, target: str, address: str = "127.0.0.1:0") -> None:
        """Connects to nothing yet.

        Args:
            target: The service of this version.
            address: Where to serve; port 0 takes a free one.
        """
        self.carried = 0
        # A service that starts slowly is found soon after it serves.
        soon = [("grpc.max_reconnect_backoff_ms", 500)]
        self._channel = grpc.insecure_channel(target, soon)
        self._methods = {
            f"/{service.full_name}/{method.name}": method
            for contract in CONTRACTS
            for service in (self._service(s) for s in contract.DESCRIPTOR.services_by_name.values())
            for method in service.methods
        }
        self._server = grpc.server(ThreadPoolExecutor(32), handlers=[_Handler(self)])
        host = address.rpartition(":")[0]
        self.target = f"{host}:{self._server.add_insecure_port(address)}"

    def start(self) -> None:
        """Serves."""
        self._server.start()

    def drain(self, grace_s: float) -> None:
        """Takes nothing new, as a service does after SIGTERM, and goes on with what runs."""
        self._server.stop(grace_s)

    def close(self) -> None:
        """Ends."""
        self._server.stop(None).wait()
        self._channel.close()

    def carry(self, method: str, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """One rpc, whatever it streams."""
        known = self._methods.get(method)
        call = self._channel.stream_stream(method)(
            (self._extended(known and known.input_type, request) for request in requests),
            timeout=context.time_remaining(),
            metadata=[
                (key, value)
                for key, value in context.invocation_metadata()
                if not key.startswith(("grpc-", "user-agent", ":"))
            ],
        )
        context.add_callback(call.cancel)
        try:
            for answer in call:
                yield self._extended(known and known.output_type, answer)
            context.set_trailing_metadata(call.trailing_metadata())
        except grpc.RpcError as error:
            told: Any = error
            context.set_trailing_metadata(told.trailing_metadata() or ())
            context.abort(told.code(), told.details())

    def _service(self, service: Any) -> Any:
        return _POOL.FindServiceByName(service.full_name)

    def _extended(self, kind: Any, data: bytes) -> bytes:
        if kind is None:  # health, reflection
            return data
        message = message_factory.GetMessageClass(kind)()
        message.ParseFromString(data)
        _fill(message)
        self.carried += 1
        return message.SerializeToString()


_POOL = future_pool()


def _fill(message: Message) -> None:
    for field, value in message.ListFields():
        if field.type != field.TYPE_MESSAGE:
            continue
        if field.message_type.GetOptions().map_entry:
            of_value = field.message_type.fields_by_name["value"]
            values = value.values() if of_value.type == of_value.TYPE_MESSAGE else ()
        else:
            values = value if field.is_repeated else (value,)
        for inner in values:
            _fill(inner)
    if _TEXT in message.DESCRIPTOR.fields_by_name:
        setattr(message, _TEXT, "from the future")
        setattr(message, _COUNT, -1)


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, peer: FuturePeer) -> None:
        self._peer = peer

    def service(self, handler_call_details: Any) -> Any:
        method = handler_call_details.method
        return grpc.stream_stream_rpc_method_handler(
            lambda requests, context: self._peer.carry(method, requests, context)
        )


@contextmanager
def future_peer(target: str) -> Iterator[FuturePeer]:
    """A peer of the next version in front of a service of this one."""
    peer = FuturePeer(target)
    peer.start()
    try:
        yield peer
    finally:
        peer.close()
