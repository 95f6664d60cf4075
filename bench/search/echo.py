"""A bare gRPC server that answers bytes: the limit of what an rpc of a search can cost."""

from __future__ import annotations

import functools
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc

SERVICE, METHOD = "bench.Echo", "Answer"


class EchoProcess:
    """Such a server as a process of its own."""

    def __init__(self, answer_bytes: int) -> None:
        """Starts it.

        Args:
            answer_bytes: Bytes of each answer.
        """
        program = [sys.executable, __file__, str(answer_bytes)]
        self._process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._channel = grpc.insecure_channel(self._process.stdout.readline().strip())
        self._call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(
            f"/{SERVICE}/{METHOD}"
        )

    def ask(self, request: bytes) -> bytes:
        """One rpc, with a deadline as every call of a client has one."""
        return self._call(request, timeout=10.0)

    def close(self) -> None:
        """Ends it."""
        self._channel.close()
        self._process.kill()
        self._process.communicate()


def _answer(answer: bytes, request: bytes, context: grpc.ServicerContext) -> bytes:
    return answer


def main() -> None:
    """Serves until it is ended."""
    server = grpc.server(ThreadPoolExecutor(4))
    behavior = functools.partial(_answer, bytes(int(sys.argv[1])))
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(behavior)
    handlers = grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler})
    server.add_generic_rpc_handlers((handlers,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"127.0.0.1:{port}", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
