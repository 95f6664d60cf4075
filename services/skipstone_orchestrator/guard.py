"""One service behind the orchestrator: its breaker, its deadline, and the probe that watches it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from skipstone_orchestrator.breaker import BreakerOpen, CircuitBreaker, is_trouble
from skipstone_shared.errors import DeadlineExceeded, EntryNotFound, Internal, SkipstoneError
from skipstone_shared.orchestration import BreakerState, ServiceState
from skipstone_shared.structured_logging import get_logger

T = TypeVar("T")

# The channel connects again by its own clock; between two looks at it others get to run.
_RETURN_POLL_S = 0.01
_KNOCK_PAUSE_S = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Watching:
    """How a service is watched, in seconds.

    Attributes:
        probe_timeout_s: After this a probe counts as failed.
        healthy_interval_s: Between probes while the breaker is closed.
        sick_interval_s: Between probes otherwise.
        return_wait_s: Most that a request waits for a service that has just come back.
    """

    probe_timeout_s: float
    healthy_interval_s: float
    sick_interval_s: float
    return_wait_s: float


class Guard:
    """Makes calls to one service so that its trouble costs no more than a stated time."""

    def __init__(
        self,
        service: str,
        target: str,
        breaker: CircuitBreaker,
        *,
        ping: Callable[[], Awaitable[object]],
        knock: Callable[[], Awaitable[bool]],
        watching: Watching,
    ) -> None:
        """Creates the guard; inside the event loop.

        Args:
            service: embedding, vector_index, latent_kv or denoise.
            target: gRPC target, for reports.
            breaker: Its breaker.
            ping: A cheap call that needs a worker of the service, such as GetCapabilities.
            knock: Tells within milliseconds whether anybody listens at the target.
            watching: How it is watched.
        """
        self.service = service
        self.breaker = breaker
        self._target = target
        self._ping = ping
        self._knock = knock
        self._watching = watching
        self._in_doubt = asyncio.Event()
        self._return: asyncio.Task[None] | None = None
        self._knock_again_at = 0.0

    @property
    def state(self) -> ServiceState:
        """What the replica knows of the service."""
        return ServiceState(self.service, self._target, self.breaker.state, self.breaker.last_error)

    async def check(self) -> None:
        """Asks whether a call would be made, without making one.

        Raises:
            BreakerOpen: It would not.
        """
        if self.breaker.is_gone:
            await self._see_whether_it_is_back()
        if self.breaker.state is BreakerState.OPEN:
            raise BreakerOpen(f"{self.service} is not asked: {self.breaker.last_error}")

    async def call(self, make: Callable[[], Awaitable[T]], timeout_s: float) -> T:
        """Makes one call.

        Args:
            make: Starts the call; not called when the breaker is open.
            timeout_s: Seconds after which the call is cancelled.

        Raises:
            BreakerOpen: The service was not asked.
            DeadlineExceeded: It did not answer in time.
            SkipstoneError: What the call raised; an unknown exception becomes `Internal`.
        """
        if self.breaker.is_gone:
            await self._see_whether_it_is_back()
        self.breaker.enter()
        told = False
        try:
            result = await within(make, timeout_s, self.service)
            told = True
            with self._logged():
                self.breaker.record_success()
            return result
        except SkipstoneError as error:
            told = True
            with self._logged():
                self._record(error)
            raise
        finally:
            if not told:
                self.breaker.leave()

    async def finds(self, make: Callable[[], Awaitable[object]], timeout_s: float) -> bool:
        """Makes one call that asks for an entry; whether it is there.

        Raises:
            SkipstoneError: As `call` does, but for an entry that is not there.
        """
        try:
            await self.call(make, timeout_s)
        except EntryNotFound:
            return False
        return True

    def _record(self, error: SkipstoneError) -> None:
        if not is_trouble(error):
            self.breaker.record_success()
            return
        self.breaker.record_failure(error)
        self._in_doubt.set()

    async def watch(self) -> None:
        """Probes the service for ever: often while it is sick, at once after a failed call."""
        while True:
            await self._probe()
            if self.breaker.state is BreakerState.CLOSED:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._watching.healthy_interval_s):
                        await self._in_doubt.wait()
            else:
                await asyncio.sleep(self._watching.sick_interval_s)

    async def _probe(self) -> None:
        self._in_doubt.clear()
        try:
            await within(self._ping, self._watching.probe_timeout_s, self.service)
        except SkipstoneError as error:
            failure = error if is_trouble(error) else None
        else:
            failure = None
        with self._logged():
            self.breaker.record_probe(failure)

    async def _see_whether_it_is_back(self) -> None:
        """Lets the first request after a restart use the service, not only one after a probe.

        Where nobody listens this takes microseconds. Where somebody does, all requests wait for one
        series of probes that tells whether the service works; one that listens long before it works
        costs that wait once in _KNOCK_PAUSE_S.
        """
        if self._return is None:
            now = asyncio.get_running_loop().time()
            if now < self._knock_again_at or not await self._knock():
                return
            self._return = self._return or asyncio.create_task(self._await_return())
        await asyncio.shield(self._return)

    async def _await_return(self) -> None:
        try:
            async with asyncio.timeout(self._watching.return_wait_s):
                while self.breaker.is_gone:
                    await self._probe()
                    await asyncio.sleep(_RETURN_POLL_S)
        except TimeoutError:
            self._knock_again_at = asyncio.get_running_loop().time() + _KNOCK_PAUSE_S
        finally:
            self._return = None

    @contextlib.contextmanager
    def _logged(self) -> Iterator[None]:
        """Logs a change of the breaker's state: once per outage, not once per request."""
        before = self.breaker.state
        yield
        if self.breaker.state is not before:
            get_logger().warning(
                "breaker",
                service_behind=self.service,
                state=self.breaker.state.value,
                last_error=self.breaker.last_error,
            )


async def within(make: Callable[[], Awaitable[T]], timeout_s: float, service: str) -> T:
    """Awaits a call for at most `timeout_s`; whatever it raises becomes a SkipstoneError.

    Raises:
        DeadlineExceeded: It did not answer in time.
        SkipstoneError: What the call raised; an unknown exception becomes `Internal`.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await make()
    except TimeoutError:
        raise DeadlineExceeded(f"{service} did not answer within {timeout_s:.3f} s") from None
    except SkipstoneError:
        raise
    except Exception as error:
        # A fault in one backend must not fail a generation, so nothing may pass untranslated.
        get_logger().error("unexpected error", service_behind=service, exc_info=error)
        raise Internal(f"{service}: {type(error).__name__}") from error
