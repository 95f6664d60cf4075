"""An S3 that is killed, or hangs: errors that say so, in time, and nothing acknowledged is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from structlog.testing import capture_logs
from tests.contract.latent_store_cases import Write, latents, list_ids, save
from tests.servers.seaweedfs import running_seaweedfs, shared_seaweedfs
from tests.unit.latent_kv.s3_under_test import Place

from skipstone_latent_kv.s3_store import S3Store
from skipstone_shared.errors import DeadlineExceeded, Unavailable
from skipstone_shared.latents import LatentRef
from skipstone_shared.request_context import request_scope


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with capture_logs(), ExitStack() as stack:
        yield stack


def calls_of(store: S3Store, ref: LatentRef) -> list[Callable[[], object]]:
    """Every call that asks S3."""
    return [
        lambda: Write.of("entry").to(store),
        lambda: store.read_latent("", ref),
        lambda: store.touch_latent("", ref),
        lambda: store.commit_entry("", "entry"),
        lambda: store.get_entry("", "entry"),
        lambda: store.list_entries(""),
        lambda: store.pin_entries("", ["entry"], True),
        lambda: store.delete_entries("", ["entry"]),
        lambda: store.get_stats(""),
        lambda: store.watch_evictions(""),
        store.sweep,
    ]


def test_one_that_hangs_is_unavailable_after_the_timeout(stack: ExitStack) -> None:
    place = Place(shared_seaweedfs(), stack)
    store = place.open(address={"timeout_s": 0.2, "attempts": 1})
    patient = place.open(address={"timeout_s": 1.0, "attempts": 1})
    ref = save(store, "entry")
    place.server.hang()
    try:
        # A caller that has less time than that is told when it is over.
        with request_scope(timeout_s=0.1), pytest.raises(DeadlineExceeded):
            patient.get_entry("", "entry")
        for call in calls_of(store, ref)[:4]:
            with pytest.raises(Unavailable):
                call()
        assert store.totals().entry_count == 1
    finally:
        place.server.go_on()
    later = place.open()
    assert list_ids(later) == ["entry"]
    save(later, "new")
    assert list_ids(store) == list_ids(later)


@pytest.mark.long
def test_what_was_acknowledged_survives_a_kill_of_the_server(stack: ExitStack) -> None:
    """It takes SeaweedFS some 20 seconds until it serves again."""
    server = stack.enter_context(running_seaweedfs())
    place = Place(server, stack)
    store = place.open(address={"timeout_s": 1.0, "attempts": 1})
    writes = {f"e{i}": Write.of(f"e{i}", latents(i, 100_000)) for i in range(10)}
    refs = {}
    for entry_id, write in writes.items():
        refs[entry_id] = write.to(store)
        store.commit_entry("", entry_id)
    server.kill()
    for call in calls_of(store, refs["e0"]):
        with pytest.raises(Unavailable):
            call()
    server.start()
    for opened in (store, place.open()):
        assert list_ids(opened) == sorted(writes)
        for entry_id, ref in refs.items():
            assert bytes(opened.read_latent("", ref).data) == writes[entry_id].all_bytes
    save(store, "new")
    place.audit(place.open())
