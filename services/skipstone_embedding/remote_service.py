"""An HTTP service that embeds or reranks for us: bounded in time and size, its errors ours.

All that is asked of it is computed from the request alone, so that every request may be repeated.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx
import tenacity

from skipstone_embedding.remote_errors import (
    RemoteRefused,
    error_of_response,
    is_worth_a_retry,
    nothing_at,
)
from skipstone_shared.credentials import BEARER
from skipstone_shared.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    SkipstoneError,
    Unavailable,
)
from skipstone_shared.request_context import call_timeout_s

MAX_ANSWER_BYTES = 64 << 20
"""Bytes of an answer: 128 vectors of 16,384 elements, each of 30 characters."""

MAX_REQUESTS_AT_ONCE = 4
"""Requests of one call that run side by side; the others of it wait for them."""

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Ask:
    """One request.

    Attributes:
        path: Appended to the URL.
        body: What is posted, as JSON; None reads a document.
    """

    path: str
    body: Any = None

    @property
    def method(self) -> str:
        """Of HTTP."""
        return "GET" if self.body is None else "POST"


@dataclasses.dataclass(frozen=True, slots=True)
class RemoteOptions:
    """How a remote service is reached.

    Attributes:
        url: What paths are appended to: ``http://host:8080``, ``https://host/v1``.
        api_key: Gives the bearer token, asked before every request; None sends none.
        timeout_s: Seconds that one call may take with all its requests and retries.
        attempts: Times that a request is tried at most.
        ca_file: PEM file of the authorities that the service has its certificate from; None: those
            that the HTTP library comes with.
    """

    url: str
    api_key: Callable[[], str] | None = None
    timeout_s: float = 2.0
    attempts: int = 3
    ca_file: Path | None = None


class RemoteService:
    """Sends JSON to an HTTP service. Threads may share it.

    The requests run in an event loop on a thread of its own: only there can a request be ended at
    its deadline whatever the other side does, also when it sends a byte now and then.
    """

    def __init__(self, options: RemoteOptions) -> None:
        """Starts the thread; connects to nothing.

        Raises:
            FailedPrecondition: The authorities' certificates cannot be used.
        """
        self.url = options.url.rstrip("/")
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._client = httpx.AsyncClient(
            verify=_verification(options.ca_file),
            # Compressed, a small answer could become a huge one.
            headers={"accept": "application/json", "accept-encoding": "identity"},
            timeout=options.timeout_s,
            # Settings have one source: neither proxies nor a netrc file come from elsewhere.
            trust_env=False,
        )
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="embedding-remote", daemon=True
        )
        self._thread.start()

    def deadline(self) -> float:
        """When a call that starts now must be over, on the monotonic clock.

        The current request's own deadline counts where that is sooner.
        """
        return time.monotonic() + (call_timeout_s(self._options.timeout_s) or 0.0)

    def ask(self, what: Ask) -> Any:
        """Sends one request, which has all the time of a call; see `ask_all`."""
        (answer,) = self.ask_all([what], self.deadline())
        if isinstance(answer, RemoteRefused):
            raise answer
        return answer

    def ask_all(self, asks: Sequence[Ask], deadline: float) -> list[Any | RemoteRefused]:
        """Sends requests, some of them side by side.

        Args:
            asks: What is asked.
            deadline: When all must be answered, on the monotonic clock.

        Returns:
            One answer per request, in order, or that this one is not taken.

        Raises:
            FailedPrecondition: There is no such path, or the API key is refused.
            Unavailable: It cannot be reached, or is broken.
            ResourceExhausted: It has too much to do.
            DeadlineExceeded: It takes too long.
            Internal: What it answers is no JSON.
        """
        return self._run(self._ask_all(asks, deadline))

    def close(self) -> None:
        """Ends the connections and the thread. May be called twice."""
        if self._loop.is_closed():
            return
        self._run(self._client.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            work.close()
            raise Unavailable("the connection to the remote service is closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _ask_all(self, asks: Sequence[Ask], deadline: float) -> list[Any | RemoteRefused]:
        room = asyncio.Semaphore(MAX_REQUESTS_AT_ONCE)

        async def answer(what: Ask) -> Any | RemoteRefused:
            async with room:
                try:
                    return await self._request(what, deadline)
                except RemoteRefused as refused:
                    return refused

        tasks = [asyncio.ensure_future(answer(what)) for what in asks]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:  # after the first failure the others' answers are of no use
                task.cancel()

    async def _request(self, what: Ask, deadline: float) -> Any:
        """One request with its retries, until the deadline."""
        where = f"{what.method} {self.url}{what.path}"
        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(self._options.attempts),
            retry=tenacity.retry_if_exception(lambda error: is_worth_a_retry(error, deadline)),
            wait=_pause,
            reraise=True,
        )
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                return await retrying(self._attempt, what, where)
        except TimeoutError:
            raise DeadlineExceeded(
                f"{where} did not answer in time: remote_timeout_s is {self._options.timeout_s:g}, "
                "and the caller may have less"
            ) from None

    async def _attempt(self, what: Ask, where: str) -> Any:
        headers = {}
        if self._options.api_key is not None:
            headers["authorization"] = BEARER + self._options.api_key()
        request = self._client.build_request(
            what.method, self.url + what.path, json=what.body, headers=headers
        )
        try:
            response = await self._client.send(request, stream=True)
            try:
                content = await _limited(response, where)
            finally:
                await response.aclose()
        except httpx.TimeoutException:
            raise DeadlineExceeded(f"{where} took too long") from None
        except httpx.TransportError as error:
            raise nothing_at(where, error) from None
        if response.status_code != httpx.codes.OK:
            raise error_of_response(where, response, content)
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise Internal(f"{where} answered what is no JSON") from None


async def _limited(response: httpx.Response, where: str) -> bytes:
    """The body as it came, if it is not too large."""
    content = bytearray()
    async for chunk in response.aiter_raw():
        content += chunk
        if len(content) > MAX_ANSWER_BYTES:
            raise Internal(f"{where} answered more than {MAX_ANSWER_BYTES} bytes")
    return bytes(content)


def _pause(state: tenacity.RetryCallState) -> float:
    """Seconds before the next attempt: what the service wished, or twice as long as before."""
    error = state.outcome.exception() if state.outcome is not None else None
    if isinstance(error, SkipstoneError) and error.retry_after_s is not None:
        return error.retry_after_s
    jittered = tenacity.wait_random_exponential(_FIRST_PAUSE_S, max=_LONGEST_PAUSE_S)
    return float(jittered(state))


def _verification(ca_file: Path | None) -> ssl.SSLContext | bool:
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise FailedPrecondition(f"remote_ca_file {ca_file} cannot be used: {error}") from None
