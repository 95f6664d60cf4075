"""Requests of a namespace are let in at its rate, and nobody pays for another."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from tests.unit.orchestrator.site import Site, in_loop

from skipstone_client.aio import AsyncOrchestratorClient
from skipstone_orchestrator import rate_limits
from skipstone_orchestrator.config import OrchestratorSettings
from skipstone_orchestrator.rate_limits import RateLimits
from skipstone_orchestrator.server import mounted
from skipstone_shared.errors import RateLimited
from skipstone_shared.generation import GenerationParams
from skipstone_shared.grpc_aio_server import in_process_async_server


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def let_in(limits: RateLimits, namespace: str, times: int) -> int:
    """How many of so many requests at once are let in."""
    count = 0
    for _ in range(times):
        try:
            limits.take(namespace)
        except RateLimited:
            continue
        count += 1
    return count


def test_a_burst_is_let_in_and_then_the_rate() -> None:
    clock = Clock()
    limits = RateLimits({"a": 5.0}, 2.0, clock)
    assert let_in(limits, "a", 100) == 10
    clock.now += 1.0
    assert let_in(limits, "a", 100) == 5
    clock.now += 1000.0
    assert let_in(limits, "a", 100) == 10, "a quiet time saves no more than the burst"


def test_who_comes_again_when_told_is_let_in() -> None:
    clock = Clock()
    limits = RateLimits({"a": 4.0}, 0.0, clock)
    limits.take("a")
    with pytest.raises(RateLimited, match="the namespace a may make 4 requests") as caught:
        limits.take("a")
    assert caught.value.retry_after_s == pytest.approx(0.25)
    clock.now += 0.25
    limits.take("a")


def test_a_slow_rate_lets_one_in_at_once() -> None:
    clock = Clock()
    limits = RateLimits({"a": 0.1}, 2.0, clock)
    assert let_in(limits, "a", 5) == 1
    clock.now += 10.0
    assert let_in(limits, "a", 5) == 1


def test_each_namespace_has_its_own_bucket_and_those_without_a_rate_none() -> None:
    limits = RateLimits({"a": 1.0, "default": 2.0}, 1.0, Clock())
    assert [let_in(limits, name, 9) for name in ("a", "", "b")] == [1, 2, 9]
    limits = RateLimits({"a": 1.0, "*": 3.0}, 1.0, Clock())
    assert [let_in(limits, name, 9) for name in ("a", "b", "c", "b")] == [1, 3, 3, 0]


def test_the_memory_for_namespaces_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limits, "MAX_BUCKETS", 3)
    limits = RateLimits({"*": 1.0}, 1.0, Clock())
    for number in range(10):
        limits.take(f"n{number}")
    assert len(limits._buckets) == 3


@pytest.mark.parametrize("rates", [{"a": 0}, {"a": -1}, {"a b": 1}, {"": 1}, {"a": "inf"}])
def test_rates_that_cannot_be_are_refused(rates: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        OrchestratorSettings(rate_limits=rates)


@in_loop
async def test_a_caller_is_told_over_the_wire_when_to_come_again() -> None:
    site = Site(rate_limits={"slow": 0.001}, pools={"slow": "both"})
    async with in_process_async_server(mounted(site.orchestrator)) as target:
        async with AsyncOrchestratorClient(target) as client:
            params = GenerationParams("a red circle", seed=1)
            await client.generate(params, namespace="slow")
            for call in (
                client.generate(params, namespace="slow"),
                client.explain(params, namespace="slow"),
            ):
                with pytest.raises(RateLimited) as caught:
                    await call
                assert caught.value.retry_after_s == pytest.approx(1000.0, rel=0.1)
            for _ in range(3):
                await client.generate(params, namespace="both")
            await client.list_entries("slow")
