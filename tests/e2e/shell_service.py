"""A real but empty service for the tests of the server shell's process.

Usage: python shell_service.py sync|aio ok|fail [flags]
"""

from __future__ import annotations

import asyncio
import sys
import threading

import grpc

from skipstone_shared.config import ServiceSettings, load_settings
from skipstone_shared.grpc_aio_server import AsyncMounted, serve_async
from skipstone_shared.grpc_server import Mounted, serve
from skipstone_shared.structured_logging import get_logger

WAIT_S = 0.3


class ShellSettings(ServiceSettings):
    """Answers late, and shuts down as every service does."""

    service_name = "shell"


def main() -> int:
    kind, behaviour = sys.argv[1:3]
    settings = load_settings(ShellSettings, sys.argv[3:])
    if kind == "sync":
        return serve(settings, lambda: build(behaviour))
    return serve_async(settings, lambda: build_async(behaviour))


def build(behaviour: str) -> Mounted:
    if behaviour == "fail":
        raise FileNotFoundError("no model at\n/models/none")

    def wait(request: bytes, context: grpc.ServicerContext) -> bytes:
        context.send_initial_metadata(())
        threading.Event().wait(WAIT_S)
        return b"done"

    generic = grpc.method_handlers_generic_handler(
        "test.Shell", {"Wait": grpc.unary_unary_rpc_method_handler(wait)}
    )
    return Mounted(
        register=lambda server: server.add_generic_rpc_handlers((generic,)),
        service_names=["test.Shell"],
        on_stop=[lambda: get_logger().info("closed")],
    )


async def build_async(behaviour: str) -> AsyncMounted:
    if behaviour == "fail":
        raise FileNotFoundError("no model at\n/models/none")

    async def wait(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        await context.send_initial_metadata(())
        await asyncio.sleep(WAIT_S)
        return b"done"

    async def close() -> None:
        get_logger().info("closed")

    generic = grpc.method_handlers_generic_handler(
        "test.Shell", {"Wait": grpc.unary_unary_rpc_method_handler(wait)}
    )
    return AsyncMounted(
        register=lambda server: server.add_generic_rpc_handlers((generic,)),
        service_names=["test.Shell"],
        on_stop=[close],
    )


if __name__ == "__main__":
    sys.exit(main())
