"""Several processes with different policies on one store in Redis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from structlog.testing import capture_logs
from tests.contract.latent_store_cases import LATENT_BYTES, list_ids, save
from tests.servers.redis_server import shared_redis
from tests.unit.latent_kv.redis_under_test import Place

from skipstone_latent_kv.eviction import Quotas
from skipstone_latent_kv.eviction_policies import FirstInFirstOut


@pytest.fixture
def place() -> Iterator[Place]:
    with capture_logs(), ExitStack() as stack:
        yield Place(shared_redis(), stack)


def test_a_policy_of_a_later_process_orders_what_is_there(place: Place) -> None:
    """And from then on all processes evict by it."""
    quotas = Quotas(total_bytes=2 * LATENT_BYTES)
    early = place.open(quotas=quotas)
    ref = save(early, "first")
    save(early, "second")
    early.read_latent("", ref)
    place.open(quotas=quotas, policy=FirstInFirstOut())
    save(early, "third")
    assert list_ids(early) == ["second", "third"]


def test_a_start_that_died_while_it_ordered_is_made_good_by_the_next(place: Place) -> None:
    quotas = Quotas(total_bytes=2 * LATENT_BYTES)
    early = place.open(quotas=quotas)
    ref = save(early, "first")
    save(early, "second")
    early.read_latent("", ref)
    header = early._catalog._header
    fifo = (*header[:2], "fifo", "1")
    early._catalog._header = fifo
    early._catalog._call("setup", "1", *fifo[2:])  # It dies here.
    later = place.open(quotas=quotas, policy=FirstInFirstOut())
    save(later, "third")
    assert list_ids(later) == ["second", "third"]
