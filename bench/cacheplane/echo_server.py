"""A bare gRPC server that streams bytes: the limit of what a read through gRPC can cost.

No messages, no checks, no copies: it sends the same piece of memory again and again.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc

SERVICE, METHOD = "bench.Echo", "Send"


@functools.cache
def piece(size_bytes: int) -> bytes:
    """So many bytes, the same each time."""
    return bytes(size_bytes)


def send(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
    """Streams so many bytes in pieces of such a size; the request is both as JSON."""
    size_bytes, chunk_bytes = json.loads(request)
    for start in range(0, size_bytes, chunk_bytes):
        yield piece(min(chunk_bytes, size_bytes - start))


def main() -> None:
    """Serves until it is ended."""
    server = grpc.server(ThreadPoolExecutor(4))
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_stream_rpc_method_handler(send)
    handlers = grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler})
    server.add_generic_rpc_handlers((handlers,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(json.dumps({"event": "serving", "address": f"127.0.0.1:{port}"}), flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
