"""What only a store in Redis can get wrong: lost and damaged values, leftovers, its Lua."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.contract.latent_store_cases import LATENT_BYTES, Write, latents, list_ids, save
from tests.servers.redis_server import running_redis, shared_cluster, shared_redis
from tests.unit.latent_kv.random_calls import POLICIES, a_call, events_of, outcome
from tests.unit.latent_kv.redis_under_test import Place

from skipstone_latent_kv.eviction import Quotas
from skipstone_latent_kv.eviction_policies import (
    EvictionPolicy,
)
from skipstone_latent_kv.memory_store import MemoryStore
from skipstone_latent_kv.redis_store import RedisStore
from skipstone_shared.errors import (
    EntryNotFound,
    FailedPrecondition,
    LatentNotFound,
    ResourceExhausted,
    SkipstoneError,
    Unavailable,
)
from skipstone_shared.latents import LatentRef
from skipstone_shared.stored_entries import EvictionKind

MIB = 1 << 20


@pytest.fixture
def place() -> Iterator[Place]:
    with capture_logs(), ExitStack() as stack:
        yield Place(shared_redis(), stack)


@pytest.fixture
def store(place: Place) -> RedisStore:
    return place.open()


class TestLayout:
    def test_a_large_value_is_split_and_all_values_of_an_entry_share_a_slot(self) -> None:
        """So that no command keeps a server busy for long, and an entry is on one server."""
        with capture_logs(), ExitStack() as stack:
            place = Place(shared_cluster(), stack)
            store = place.open()
            for step in (1, 2, 3):
                Write.of("large", latents(step, 2 * MIB + 2), step_index=step).to(store)
            keys = place.value_keys()
            assert len(keys) == 3
            slots = {place.raw.execute("CLUSTER KEYSLOT", key) for key in keys}
            assert len(slots) == 1
            sizes = [place.raw.execute("HSTRLEN", keys[0], field) for field in "012"]
            assert sizes == [MIB, MIB, 2]
            save(store, "other")
            assert len({place.raw.execute("CLUSTER KEYSLOT", k) for k in place.value_keys()}) == 2

    def test_stores_of_different_prefixes_do_not_see_each_other(self, place: Place) -> None:
        ours, theirs = place.open(), place.open(prefix=f"{place.prefix}2")
        ref = save(ours, "entry")
        save(theirs, "entry", latents(1))
        assert theirs.delete_namespace("") == 1
        assert ours.read_latent("", ref).ref == ref
        theirs.sweep()
        place.audit(ours)

    def test_a_catalog_of_another_format_is_refused(self, place: Place) -> None:
        place.open().close()
        place.raw.execute("HSET", place.key("meta"), "format", "9")
        with pytest.raises(FailedPrecondition, match=r"format 9.*redis_prefix"):
            place.open()

    def test_a_codec_saves_bytes_in_redis_and_in_the_quota(self, place: Place) -> None:
        store = place.open(codec="fp16")
        written = latents(size_bytes=2 * MIB).astype("float32")
        ref = save(store, "entry", written)
        assert (ref.size_bytes, store.get_stats("").size_bytes) == (4 * MIB, 2 * MIB + 1)
        assert place.open().read_latent("", ref).ref == ref

    def test_times_are_those_of_redis_unless_a_clock_is_given(self, place: Place) -> None:
        """Processes whose clocks differ must agree on when a lease ends."""

        def now() -> float:
            seconds, microseconds = place.raw.execute("TIME")
            return float(seconds) + float(microseconds) / 1e6

        store = place.open(clock=None)
        before = now()
        save(store, "entry")
        assert before - 1e-5 <= store.get_entry("", "entry").create_time <= now() + 1e-5


class TestLostValues:
    """Redis drops keys by itself; what it dropped is not there, and nothing else breaks."""

    @pytest.fixture
    def lost(self, place: Place, store: RedisStore) -> LatentRef:
        Write.of("entry", step_index=1).to(store)
        ref = save(store, "entry", latents(1))
        save(store, "sound")
        (key,) = [
            place.values.key(name)
            for name in place.names()
            if name.entry_id == "entry"
            and place.values.heads([name])[0].metadata.step_index == ref.step_index  # type: ignore[union-attr]
        ]
        place.raw.execute("DEL", key)
        return ref

    @pytest.mark.parametrize(
        ("call", "error"),
        [
            (lambda store, ref: store.read_latent("", ref), LatentNotFound),
            (lambda store, ref: store.touch_latent("", ref), LatentNotFound),
            (lambda store, ref: store.get_entry("", "entry"), EntryNotFound),
            (lambda store, ref: store.commit_entry("", "entry"), EntryNotFound),
        ],
        ids=["read", "touch", "get", "commit"],
    )
    def test_an_entry_with_a_lost_value_is_not_there_and_is_removed(
        self,
        place: Place,
        store: RedisStore,
        lost: LatentRef,
        call: Callable[[RedisStore, LatentRef], object],
        error: type[SkipstoneError],
    ) -> None:
        watch = store.watch_evictions("")
        with pytest.raises(error):
            call(store, lost)
        event = next(watch)
        watch.close()
        assert (event.kind, event.entry_id) == (EvictionKind.CORRUPT, "entry")
        assert list_ids(store) == ["sound"]
        place.audit(store)

    def test_a_listing_leaves_it_out_and_removes_it(
        self, place: Place, store: RedisStore, lost: LatentRef
    ) -> None:
        assert list_ids(store) == ["sound"]
        place.audit(store)

    def test_a_sweep_finds_it_although_nobody_reads_it(
        self, place: Place, store: RedisStore, lost: LatentRef
    ) -> None:
        """The index learns of it by the event."""
        watch = store.watch_evictions("")
        store.sweep()
        assert next(watch).entry_id == "entry"
        watch.close()
        place.audit(store)

    def test_writing_the_step_again_heals_the_entry(
        self, place: Place, store: RedisStore, lost: LatentRef
    ) -> None:
        ref = save(store, "entry", latents(5))
        assert store.read_latent("", ref).ref == ref
        place.audit(store)

    @pytest.mark.parametrize("field", ["head", "0", "1"])
    def test_a_damaged_byte_reads_as_not_there(
        self, place: Place, store: RedisStore, field: str
    ) -> None:
        ref = save(store, "entry", latents(size_bytes=MIB + 2))
        (key,) = place.value_keys()
        value = bytearray(place.raw.execute("HGET", key, field))
        value[len(value) // 2] ^= 1
        place.raw.execute("HSET", key, field, bytes(value))
        with pytest.raises(LatentNotFound):
            store.read_latent("", ref)
        assert list_ids(store) == []
        place.audit(store)

    def test_after_the_catalog_is_lost_everything_is_a_miss_and_the_store_works_on(
        self, place: Place, store: RedisStore
    ) -> None:
        ref = save(store, "entry")
        store.delete_entries("", ["entry"])
        ref = save(store, "entry")
        watch = store.watch_evictions("", 1)
        for key in place.raw.masters()[""].scan_iter(match=f"{place.prefix}:{{{place.prefix}}}*"):
            place.raw.execute("DEL", key)
        with pytest.raises(LatentNotFound):
            store.read_latent("", ref)
        assert list_ids(store) == []
        assert next(watch).kind is EvictionKind.GAP
        save(store, "new")
        store.delete_entries("", ["new"])
        assert next(watch).entry_id == "new"
        watch.close()
        store.sweep()
        place.audit(store)

    def test_events_whose_number_was_lost_go_on_behind_a_gap(
        self, place: Place, store: RedisStore
    ) -> None:
        for entry_id in "abc":
            save(store, entry_id)
            store.delete_entries("", [entry_id])
        watch = store.watch_evictions("", 3)
        place.raw.execute("DEL", place.key("meta"))
        save(store, "d")
        store.delete_entries("", ["d"])
        assert next(watch).kind is EvictionKind.GAP
        assert next(watch).entry_id == "d"
        watch.close()

    @pytest.mark.parametrize(
        "name",
        [
            *("meta", "namespaces", "order", "order:x", "leases", "leases:x"),
            *("ids:x", "totals:x", "created", "rows:x"),
        ],
    )
    def test_whatever_key_of_the_catalog_is_lost_the_rest_comes_back(
        self, place: Place, store: RedisStore, name: str
    ) -> None:
        """Else entries would be there that nothing evicts, or a quota full of nothing."""
        kept = save(store, "kept", latents(7), namespace="y")
        for i in range(3):
            save(store, f"e{i}", latents(i), namespace="x")
        saving = Write.of("saving", namespace="x").to(store)
        store.delete_entries("x", ["e0"])
        watch = store.watch_evictions("", 1)
        assert place.raw.execute("DEL", place.key(name)) == 1
        for _ in range(4):
            store.sweep()
        place.audit(store)
        assert next(watch).kind is EvictionKind.GAP
        watch.close()
        assert store.read_latent("y", kept).ref == kept
        if name != "rows:x":
            assert list_ids(store, "x") == ["e1", "e2"]
            assert store.read_latent("x", saving).ref == saving
        small = place.open(quotas=Quotas(total_bytes=2 * LATENT_BYTES))
        small.delete_entries("x", ["saving"])
        save(small, "new", namespace="x")
        assert small.totals().size_bytes <= 2 * LATENT_BYTES


class TestLeftovers:
    """Whoever dies between two steps leaves bytes; they must not stay."""

    def test_a_value_whose_writer_died_is_deleted_once_it_is_overdue(
        self, place: Place, store: RedisStore
    ) -> None:
        name = store._catalog.begin(("default", "entry"))
        place.raw.execute("HSET", place.values.key(name), "0", b"half of it")
        store.sweep()
        assert place.names() == [name]
        place.clock.advance(901.0)
        store.sweep()
        place.audit(store)

    def test_a_write_that_comes_too_late_is_refused_and_leaves_nothing(
        self, place: Place, store: RedisStore
    ) -> None:
        """Its bytes may be on their way out already."""
        other = place.open()
        write = Write.of("entry")

        class SlowValues(type(store._values)):  # type: ignore[misc]
            def write(self, *arguments: Any) -> None:
                super().write(*arguments)
                place.clock.advance(901.0)
                other.sweep()

        store._values = SlowValues(place.raw, place.prefix)
        with pytest.raises(SkipstoneError, match="took more than"):
            write.to(store)
        assert list_ids(store) == []
        place.audit(store)

    def test_garbage_that_its_maker_could_not_delete_goes_with_the_next_sweep(
        self, place: Place, store: RedisStore
    ) -> None:
        save(store, "entry")
        store._catalog._discard = lambda names: None  # It dies here.
        store.delete_entries("", ["entry"])
        assert len(place.value_keys()) == 1
        place.open().sweep()
        place.audit(place.open())

    def test_values_of_no_entry_are_deleted_but_not_those_being_written(
        self, place: Place, store: RedisStore
    ) -> None:
        """A failover may lose the row and keep the value."""
        save(store, "sound")
        writing = store._catalog.begin(("default", "entry"))
        place.raw.execute("HSET", place.values.key(writing), "0", b"x")
        place.raw.execute("HSET", f"{place.prefix}:{{default/entry}}:0123456789abcdef", "0", b"x")
        for _ in range(1 + place.raw.execute("DBSIZE") // 500):
            store.sweep()  # looks at some keys of the server, which other tests use too
        assert {name.entry_id for name in place.names()} == {"sound", "entry"}
        assert writing in place.names()
        assert len(place.names()) == 2


class TestFullRedis:
    def test_a_full_redis_refuses_writes_and_serves_on(self) -> None:
        """Reads, commits and removals must go on, or nothing would ever make room."""
        with running_redis("--maxmemory", "24mb", "--maxmemory-policy", "noeviction") as server:
            with capture_logs(), ExitStack() as stack:
                place = Place(server, stack)
                store = place.open()
                refs: list[LatentRef] = []

                def fill() -> None:
                    for i in range(30):
                        write = Write.of(f"e{i}", latents(i, MIB))
                        refs.append(write.to(store))

                with pytest.raises(ResourceExhausted, match="maxmemory"):
                    fill()
                for ref in refs:
                    assert store.read_latent("", ref).ref == ref
                    store.commit_entry("", ref.entry_id)
                store.pin_entries("", ["e0"], True)
                assert store.delete_entries("", ["e1", "e2", "e3"]) == [True] * 3
                ref = save(store, "new", latents(99, MIB))
                assert store.read_latent("", ref).ref == ref
                place.clock.advance(901.0)
                store.sweep()
                place.audit(store)

    def test_what_redis_drops_when_it_is_full_is_a_miss_and_never_a_wrong_answer(self) -> None:
        with running_redis("--maxmemory", "24mb", "--maxmemory-policy", "allkeys-lru") as server:
            with capture_logs(), ExitStack() as stack:
                place = Place(server, stack)
                store = place.open()
                writes = {f"e{i}": Write.of(f"e{i}", latents(i, MIB)) for i in range(40)}
                found: list[str] = []
                for entry_id, write in writes.items():
                    # So small a Redis drops keys of the catalog too.
                    with suppress(Unavailable, EntryNotFound):
                        write.to(store)
                        store.commit_entry("", entry_id)
                for entry_id, write in writes.items():
                    try:
                        ref = LatentRef(namespace="", entry_id=entry_id, step_index=5)
                        read = store.read_latent("", ref)
                    except LatentNotFound:
                        continue
                    assert bytes(read.data) == write.all_bytes
                    found.append(entry_id)
                assert 0 < len(found) < 40
                assert int(server.info("stats")["evicted_keys"]) > 0
                server.client.config_set("maxmemory", "0")
                place.clock.advance(901.0)
                for _ in range(4):
                    store.sweep()
                place.audit(store)


class TestLikeTheStoreInMemory:
    """Quotas, order, leases and events are written twice, here in Lua: both must agree."""

    @pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
    @pytest.mark.parametrize("seed", range(3))
    def test_any_sequence_of_calls_has_the_same_outcome(
        self, place: Place, policy: EvictionPolicy, seed: int
    ) -> None:
        rng = random.Random(seed)
        quotas = Quotas(
            total_bytes=rng.choice([0, 12]) * LATENT_BYTES,
            namespace_bytes=rng.choice([0, 7]) * LATENT_BYTES,
            high_water=rng.choice([1.0, 0.8]),
            low_water=rng.choice([0.8, 0.5]),
        )
        ttl_s = rng.choice([0.0, 50.0])
        ours = place.open(quotas=quotas, policy=policy, ttl_s=ttl_s)
        reference = MemoryStore(quotas=quotas, policy=policy, ttl_s=ttl_s, clock=place.clock)
        for store in (ours, reference):  # Removed first: the event that watching begins behind.
            save(store, "the-start", namespace="z")
            store.delete_entries("z", ["the-start"])
        for _ in range(150):
            call = a_call(rng)
            assert outcome(call, ours) == outcome(call, reference)
            if rng.random() < 0.3:
                # What ended goes at once: when else it goes is up to each store.
                place.clock.advance(rng.choice([1.0, 20.0, 40.0]))
                assert ours.sweep() == reference.sweep()
        for namespace in ("x", "y"):
            pages = [s.list_entries(namespace, 1000, "", True) for s in (ours, reference)]
            assert pages[0] == pages[1]
        assert events_of(ours) == events_of(reference)
        assert ours.totals().removals == {
            kind: reference.totals().removals.get(kind, 0) for kind in ours.totals().removals
        }
        place.audit(ours)
