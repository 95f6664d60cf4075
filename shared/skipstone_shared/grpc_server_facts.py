"""What every server tells of itself beside the answer to `GetCapabilities`: version and clock.

As trailing metadata, so that it is the same for all services and in none of their messages. Unlike
a health check, `GetCapabilities` asks for a token where a service has tokens.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Any

VERSION_KEY = "x-skipstone-version"
"""Metadata key of the version of Skipstone that a service runs."""

CLOCK_KEY = "x-skipstone-clock"
"""Metadata key of a service's clock: seconds since the epoch, with fractions."""

TOLD_WITH = "/GetCapabilities"
"""How the rpcs end that tell both."""


def telling(behavior: Callable[..., Any]) -> Callable[..., Any]:
    """A synchronous unary behaviour that tells them."""

    def call(request: Any, context: Any) -> Any:
        context.set_trailing_metadata(server_facts())
        return behavior(request, context)

    return call


def telling_async(behavior: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """An asynchronous unary behaviour that tells them."""

    async def call(request: Any, context: Any) -> Any:
        context.set_trailing_metadata(server_facts())
        return await behavior(request, context)

    return call


def server_facts() -> tuple[tuple[str, str], ...]:
    """The metadata."""
    return ((VERSION_KEY, _version()), (CLOCK_KEY, f"{time.time():.6f}"))


def read_server_facts(metadata: Mapping[str, str]) -> tuple[str, float | None]:
    """Version and clock of a server; empty and None when it does not tell."""
    clock = metadata.get(CLOCK_KEY, "")
    try:
        seconds = float(clock)
    except ValueError:
        return metadata.get(VERSION_KEY, ""), None
    return metadata.get(VERSION_KEY, ""), seconds


@functools.cache
def _version() -> str:
    return version("skipstone")
