"""One service behind the orchestrator: its breaker, its deadline, and the probe that watches it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from skipstone_orchestrator.breaker import CircuitBreaker, is_trouble
from skipstone_shared.errors import DeadlineExceeded, Internal, SkipstoneError
from skipstone_shared.orchestration import BreakerState, ServiceState
from skipstone_shared.structured_logging import get_logger

T = TypeVar("T")


class Guard:
    """Makes calls to one service so that its trouble costs no more than a stated time."""

    def __init__(self, service: str, target: str, breaker: CircuitBreaker) -> None:
        """Creates the guard.

        Args:
            service: embedding, vector_index, latent_kv or denoise.
            target: gRPC target, for reports.
            breaker: Its breaker.
        """
        self.service = service
        self.breaker = breaker
        self._target = target
        self._in_doubt = asyncio.Event()

    @property
    def state(self) -> ServiceState:
        """What the replica knows of the service."""
        return ServiceState(self.service, self._target, self.breaker.state, self.breaker.last_error)

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

    def _record(self, error: SkipstoneError) -> None:
        if not is_trouble(error):
            self.breaker.record_success()
            return
        self.breaker.record_failure(error)
        self._in_doubt.set()

    async def watch(
        self,
        ping: Callable[[], Awaitable[object]],
        *,
        timeout_s: float,
        healthy_interval_s: float,
        sick_interval_s: float,
    ) -> None:
        """Probes the service for ever: often while it is sick, at once after a failed call.

        Args:
            ping: A cheap call that needs a worker of the service, such as GetCapabilities.
            timeout_s: Seconds after which a probe counts as failed.
            healthy_interval_s: Seconds between probes while the breaker is closed.
            sick_interval_s: Seconds between probes otherwise.
        """
        while True:
            await self._probe(ping, timeout_s)
            if self.breaker.state is BreakerState.CLOSED:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(healthy_interval_s):
                        await self._in_doubt.wait()
            else:
                await asyncio.sleep(sick_interval_s)

    async def _probe(self, ping: Callable[[], Awaitable[object]], timeout_s: float) -> None:
        self._in_doubt.clear()
        try:
            await within(ping, timeout_s, self.service)
        except SkipstoneError as error:
            failure = error if is_trouble(error) else None
        else:
            failure = None
        with self._logged():
            self.breaker.record_probe(failure)

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
