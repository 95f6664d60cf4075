"""Two latent_kv processes in front of one Redis Cluster: replicas of one store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.contract.latent_store_cases import Write, latents, list_ids, save
from tests.e2e.processes import running_service
from tests.servers.redis_server import shared_cluster

from skipstone_client import LatentKVClient
from skipstone_shared.errors import EntryNotFound, SkipstoneError

pytestmark = pytest.mark.e2e

MIB = 1 << 20


def test_replicas_share_entries_and_events_and_one_may_die_in_the_middle_of_a_write() -> None:
    urls = ",".join(server.url for server in shared_cluster().servers)
    flags = ("--store", "redis", "--redis-urls", urls, "--redis-prefix", "test-replicas")
    with ExitStack() as stack, ExitStack() as first_process:
        one = LatentKVClient(first_process.enter_context(running_service("latent_kv", *flags)))
        other = LatentKVClient(stack.enter_context(running_service("latent_kv", *flags)))
        for client in (one, other):
            stack.callback(client.close)
        assert one.get_capabilities().engine == "redis-cluster"

        write = Write.of("kept", latents(1, 3 * MIB))
        ref = write.to(one)
        other.commit_entry("", "kept")
        assert bytes(other.read_latent("", ref).data) == write.all_bytes
        watch = other.watch_evictions("")
        save(one, "gone")
        one.delete_entries("", ["gone"])
        assert next(watch).entry_id == "gone"
        watch.close()

        half_sent = threading.Event()
        cut = Write.of("cut", latents(2, 4 * MIB))

        def slowly() -> Iterator[bytes]:
            yield cut.all_bytes[: 2 * MIB]
            half_sent.set()
            killed.wait()
            yield cut.all_bytes[2 * MIB :]

        killed = threading.Event()
        errors: list[SkipstoneError] = []

        def write_slowly() -> None:
            try:
                cut.but(data=slowly()).to(one)
            except SkipstoneError as error:
                errors.append(error)

        writer = threading.Thread(target=write_slowly)
        writer.start()
        assert half_sent.wait(60)
        first_process.close()
        killed.set()
        writer.join(60)
        assert errors
        with pytest.raises(EntryNotFound):
            other.get_entry("", "cut")
        save(other, "after", latents(3, MIB))
        assert list_ids(other) == ["after", "kept"]
        assert bytes(other.read_latent("", ref).data) == write.all_bytes
