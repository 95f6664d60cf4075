"""How what a reuse session does is run: by a thread that waits, or in an event loop.

The logic is written once, as generators that yield what has to be waited for: a call to a service,
or work on latents. One of the two functions below does it and gives the result back.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from skipstone_client.aio.latent_kv import AsyncLatentKVClient
    from skipstone_client.aio.orchestrator import AsyncOrchestratorClient
    from skipstone_client.latent_kv import LatentKVClient
    from skipstone_client.orchestrator import OrchestratorClient

T = TypeVar("T")

LARGE_BYTES = 1 << 20
"""Work on fewer bytes is done in the event loop: it takes a millisecond at most, and a thread costs
a tenth of that."""


@dataclasses.dataclass(frozen=True, slots=True)
class Services:
    """Whom the calls go to: the clients, or their asynchronous twins with the same methods."""

    orchestrator: OrchestratorClient | AsyncOrchestratorClient
    store: LatentKVClient | AsyncLatentKVClient


Call = Callable[[Services], Any]
"""Calls a service; with asynchronous clients its result has to be awaited."""


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """Work that holds the thread that does it.

    Attributes:
        do: Does it, in any thread.
        blocks: Whether it takes so long that an event loop must not do it.
    """

    do: Callable[[], Any]
    blocks: bool


Flow = Generator[Call | Work, Any, T]
"""Yields what has to be waited for, is sent its result or thrown its error, and returns its own."""


def run_flow(flow: Flow[T], services: Services) -> T:
    """Runs a flow in this thread.

    Raises:
        Exception: what the flow raises.
    """
    try:
        wanted = next(flow)
        while True:
            try:
                found = wanted.do() if isinstance(wanted, Work) else wanted(services)
            except Exception as error:  # noqa: BLE001 - it is the flow's to handle
                wanted = flow.throw(error)
            else:
                wanted = flow.send(found)
    except StopIteration as ended:
        result: T = ended.value
        return result
    finally:
        flow.close()


async def run_flow_in_loop(flow: Flow[T], services: Services) -> T:
    """Runs a flow in the event loop; long work in another thread.

    A task that is cancelled ends the call it waits for, and the flow.

    Raises:
        Exception: what the flow raises.
    """
    try:
        wanted = next(flow)
        while True:
            try:
                found = await _done(wanted, services)
            except Exception as error:  # noqa: BLE001 - it is the flow's to handle
                wanted = flow.throw(error)
            else:
                wanted = flow.send(found)
    except StopIteration as ended:
        result: T = ended.value
        return result
    finally:
        flow.close()


async def _done(wanted: Call | Work, services: Services) -> Any:
    if not isinstance(wanted, Work):
        return await wanted(services)
    return await asyncio.to_thread(wanted.do) if wanted.blocks else wanted.do()
