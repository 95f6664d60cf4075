"""How many requests a namespace may make: token buckets.

Every replica counts its own requests: with three, a namespace gets up to three times as many.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping

from skipstone_orchestrator.breaker import Clock
from skipstone_shared.errors import RateLimited
from skipstone_shared.latents import checked_namespace

OTHERS = "*"
"""Stands for each namespace without a rate of its own."""

MAX_BUCKETS = 10_000
"""Namespaces whose requests are remembered. Of more, those not heard of longest are forgotten, and
have a full bucket again: only callers who may name any namespace get so far."""


class RateLimits:
    """Lets requests in at a rate per namespace. For one event loop."""

    def __init__(self, rates: Mapping[str, float], burst_s: float, clock: Clock) -> None:
        """Starts with full buckets.

        Args:
            rates: Requests per second by namespace, above 0; OTHERS for all without their own, each
                by itself. A namespace without any rate is not limited.
            burst_s: Seconds of its rate that a quiet namespace may use at once, or one request.
            clock: Seconds on a clock that never goes back.
        """
        self._rates = dict(rates)
        self._burst_s = burst_s
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, namespace: str) -> None:
        """Counts one request.

        Raises:
            InvalidArgument: A bad namespace.
            RateLimited: It came too early; says when it may come again.
        """
        namespace = checked_namespace(namespace)
        rate = self._rates.get(namespace, self._rates.get(OTHERS))
        if rate is None:
            return
        capacity = max(1.0, rate * self._burst_s)
        now = self._clock()
        left, since = self._buckets.get(namespace, (capacity, now))
        left = min(capacity, left + (now - since) * rate)
        if left < 1.0:
            self._keep(namespace, left, now)
            raise RateLimited(
                f"the namespace {namespace} may make {rate:g} requests per second",
                retry_after_s=(1.0 - left) / rate,
            )
        self._keep(namespace, left - 1.0, now)

    def _keep(self, namespace: str, left: float, now: float) -> None:
        self._buckets[namespace] = (left, now)
        self._buckets.move_to_end(namespace)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)


def check_rates(rates: Mapping[str, float]) -> None:
    """Checks names and rates.

    Raises:
        ValueError: One is not right.
    """
    for namespace, rate in rates.items():
        if namespace != OTHERS and (not namespace or checked_namespace(namespace) != namespace):
            raise ValueError(f"{namespace!r} is no namespace")
        if not (math.isfinite(rate) and rate > 0.0):
            raise ValueError(f"{namespace}: {rate:g} requests per second, must be above 0")
