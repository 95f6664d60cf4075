"""Gives every HTTP request an id that follows it through all services."""

from __future__ import annotations

from typing import Any

from skipstone_shared.request_context import read_request_id, request_scope
from skipstone_shared.structured_logging import get_logger

HEADER = "x-skipstone-request-id"


class BindRequestId:
    """ASGI middleware: takes or makes the id, sends it back, and logs one line per request."""

    def __init__(self, app: Any) -> None:
        """Wraps an app."""
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serves one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in scope["headers"]]
        with request_scope(read_request_id(sent)) as request_id:

            async def answering(message: Any) -> None:
                if message["type"] == "http.response.start":
                    message["headers"] = [
                        *message.get("headers", ()),
                        (HEADER.encode(), request_id.encode("latin-1")),
                    ]
                    get_logger().info(
                        "http",
                        method=scope["method"],
                        path=scope["path"],
                        status=message["status"],
                        request_id=request_id,
                    )
                await send(message)

            await self._app(scope, receive, answering)
