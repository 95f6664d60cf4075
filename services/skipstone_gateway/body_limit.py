"""Refuses bodies that are too large before they fill the memory."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException


class LimitBodies:
    """ASGI middleware that ends a request whose body is larger than a limit."""

    def __init__(self, app: Any, max_bytes: int) -> None:
        """Wraps an app."""
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serves one connection."""
        taken = 0

        async def counted() -> Any:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._max_bytes:
                # Raised where the app reads, which answers with it.
                raise HTTPException(413, f"the body has more than {self._max_bytes} bytes")
            return message

        await self._app(scope, counted if scope["type"] == "http" else receive, send)
