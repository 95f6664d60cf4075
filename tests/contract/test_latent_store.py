"""The promises of `LatentStore`, kept by every store and by the client of a remote one."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from structlog.testing import capture_logs
from tests.contract.latent_store_cases import (
    IMPLEMENTATIONS,
    LATENT_BYTES,
    LONG_IMPLEMENTATIONS,
    MAX_SNAPSHOT_BYTES,
    Clock,
    Open,
    Opened,
    Options,
    Write,
    latents,
    list_all,
    list_ids,
    save,
)

from skipstone_latent_kv.eviction import Quotas
from skipstone_latent_kv.eviction_policies import (
    AgedLeastBenefit,
    EvictionPolicy,
    FirstInFirstOut,
    LeastBenefit,
    LeastRecentlyUsed,
)
from skipstone_latent_kv.store import LatentStore
from skipstone_shared.errors import (
    DataCorrupt,
    EntryNotFound,
    FingerprintMismatch,
    InvalidArgument,
    LatentNotFound,
    QuotaExceeded,
    SkipstoneError,
    Unavailable,
)
from skipstone_shared.latents import DType, LatentRef, TensorSpec
from skipstone_shared.stored_entries import DEFAULT_LEASE_S, MAX_CHUNK_BYTES, EvictionKind
from skipstone_shared.tensor_messages import arrays_from_parts, parts_of

MakeStore = Callable[..., Opened]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(
    params=[
        *IMPLEMENTATIONS,
        *(pytest.param(make, marks=pytest.mark.long) for make in LONG_IMPLEMENTATIONS),
    ],
    ids=lambda make: make.__name__.removeprefix("open_"),
)
def make_store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[MakeStore]:
    open_store: Open = request.param
    with capture_logs(), ExitStack() as stack:

        def make(**options: Any) -> Opened:
            return open_store(tmp_path, stack, clock, Options(**options))

        yield make


@pytest.fixture
def store(make_store: MakeStore) -> LatentStore:
    return make_store().store


class TestWritingAndReading:
    def test_what_was_written_is_read_back_bit_for_bit_with_its_metadata(
        self, store: LatentStore
    ) -> None:
        write = Write.of("entry")
        ref = write.to(store)
        snapshot = store.read_latent("", ref)
        assert bytes(snapshot.data) == write.all_bytes
        assert snapshot.metadata == write.metadata
        assert snapshot.ref == ref
        assert ref == LatentRef(
            namespace="default",
            entry_id="entry",
            step_index=5,
            spec=TensorSpec(DType.FLOAT16, (1, 512)),
            xxh3_64=write.xxh3_64,
            size_bytes=LATENT_BYTES,
            sigma=write.metadata.sigma,
            compatibility_key=write.metadata.compatibility_key,
        )

    def test_every_floating_element_type_keeps_all_its_bits(self, store: LatentStore) -> None:
        """Negative zero, subnormal and largest numbers included; bfloat16 has no numpy type."""
        for dtype in (np.float32, np.float16, np.float64, ml_dtypes.bfloat16):
            limits = ml_dtypes.finfo(dtype)
            extremes = [0.0, -0.0, limits.smallest_subnormal, limits.max, limits.min, 1 / 3]
            written = np.array(extremes, dtype).reshape(1, 2, 3)
            snapshot = store.read_latent("", Write.of("entry", written).to(store))
            read = arrays_from_parts(snapshot.data, snapshot.metadata.parts)["latents"]
            assert read.dtype == written.dtype
            assert read.shape == (1, 2, 3)
            assert read.tobytes() == written.tobytes()

    def test_latents_and_solver_history_come_back_as_one_snapshot(self, store: LatentStore) -> None:
        arrays = {
            "latents": latents(),
            "scheduler.model_outputs.0": latents(1).astype(np.float32),
            "scheduler.timestep_list": np.array([999, 750], np.int64),
            "scheduler.scalar": np.array(0.5, np.float64),
        }
        write = Write.of("entry", arrays)
        write = write.but(
            metadata=dataclasses.replace(
                write.metadata, scheduler_state_json='{"lower_order_nums":2}', depth=1
            )
        )
        snapshot = store.read_latent("", write.to(store))
        read = arrays_from_parts(snapshot.data, snapshot.metadata.parts)
        assert snapshot.metadata == write.metadata
        assert list(read) == list(arrays)
        for name, array in arrays.items():
            assert read[name].tobytes() == array.tobytes()

    def test_a_snapshot_of_many_chunks_survives_any_cut_of_its_bytes(
        self, store: LatentStore
    ) -> None:
        write = Write.of("entry", latents(size_bytes=3 * MAX_CHUNK_BYTES + 4))
        whole = write.all_bytes
        pieces = [b"", whole[:1], whole[1 : MAX_CHUNK_BYTES + 3], whole[MAX_CHUNK_BYTES + 3 :]]
        ref = write.but(data=iter(pieces)).to(store)
        assert bytes(store.read_latent("", ref).data) == whole

    def test_a_snapshot_that_was_never_written_is_not_found(self, store: LatentStore) -> None:
        ref = save(store, "entry")
        for other in (
            dataclasses.replace(ref, entry_id="other"),
            dataclasses.replace(ref, step_index=6),
            dataclasses.replace(ref, namespace=""),
        ):
            with pytest.raises(LatentNotFound):
                store.read_latent(other.namespace or "elsewhere", other)

    def test_a_reference_needs_neither_spec_nor_checksum_nor_namespace(
        self, store: LatentStore
    ) -> None:
        ref = save(store, "entry")
        bare = LatentRef(namespace="", entry_id="entry", step_index=5)
        assert store.read_latent("", bare).ref == ref

    def test_a_reference_to_other_bytes_than_are_stored_is_a_mismatch(
        self, store: LatentStore
    ) -> None:
        ref = save(store, "entry")
        for other in (
            dataclasses.replace(ref, spec=TensorSpec(DType.FLOAT16, (512, 1))),
            dataclasses.replace(ref, spec=TensorSpec(DType.BFLOAT16, (1, 512))),
            dataclasses.replace(ref, xxh3_64=1),
        ):
            with pytest.raises(FingerprintMismatch):
                store.read_latent("", other)
        assert store.read_latent("", ref).ref == ref

    def test_a_touch_tells_what_is_stored_without_its_bytes(self, store: LatentStore) -> None:
        write = Write.of("entry")
        ref = write.to(store)
        bare = LatentRef(namespace="", entry_id="entry", step_index=5)
        head = store.touch_latent("", bare)
        assert (head.ref, head.metadata) == (ref, write.metadata)
        assert store.get_entry("", "entry").read_count == 1

    def test_a_touch_fails_as_a_read_would(self, store: LatentStore) -> None:
        ref = save(store, "entry")
        with pytest.raises(FingerprintMismatch):
            store.touch_latent("", dataclasses.replace(ref, xxh3_64=1))
        with pytest.raises(InvalidArgument):
            store.touch_latent("", dataclasses.replace(ref, namespace="other"))
        store.delete_entries("", ["entry"])
        with pytest.raises(LatentNotFound):
            store.touch_latent("", ref)

    def test_overwriting_replaces_the_snapshot_and_voids_old_references(
        self, store: LatentStore
    ) -> None:
        old = Write.of("entry", latents(1)).to(store)
        write = Write.of("entry", latents(2, size_bytes=2048))
        new = write.to(store)
        assert bytes(store.read_latent("", new).data) == write.all_bytes
        with pytest.raises(FingerprintMismatch):
            store.read_latent("", old)
        stats = store.get_stats("")
        assert (stats.snapshot_count, stats.size_bytes) == (1, 2048)

    def test_writing_the_same_snapshot_again_changes_nothing(self, store: LatentStore) -> None:
        assert Write.of("entry").to(store) == Write.of("entry").to(store)
        assert store.get_stats("").size_bytes == LATENT_BYTES

    def test_data_that_was_read_stays_as_it_was_when_the_entry_goes(
        self, store: LatentStore
    ) -> None:
        write = Write.of("entry", latents(size_bytes=1 << 20))
        snapshot = store.read_latent("", write.to(store))
        store.delete_entries("", ["entry"])
        save(store, "another", latents(9, size_bytes=1 << 20))
        assert bytes(snapshot.data) == write.all_bytes


class TestRefusedWrites:
    """A write that fails leaves what was there before."""

    @pytest.fixture
    def before(self, store: LatentStore) -> LatentRef:
        return save(store, "entry")

    def refuses(
        self, store: LatentStore, write: Write, error: type[SkipstoneError], before: LatentRef
    ) -> SkipstoneError:
        with pytest.raises(error) as raised:
            write.to(store)
        assert store.read_latent("", before).ref == before
        assert store.get_stats("").snapshot_count == 1
        return raised.value

    def test_bytes_that_do_not_match_their_checksum_are_corrupt(
        self, store: LatentStore, before: LatentRef
    ) -> None:
        write = Write.of("entry", latents(1))
        self.refuses(store, write.but(xxh3_64=write.xxh3_64 ^ 1), DataCorrupt, before)
        self.refuses(store, Write.of("new").but(xxh3_64=1), DataCorrupt, before)
        with pytest.raises(EntryNotFound):
            store.get_entry("", "new")

    def test_a_truncated_stream_is_refused(self, store: LatentStore, before: LatentRef) -> None:
        write = Write.of("entry", latents(1))
        cut = write.but(data=[write.all_bytes[:-1]])
        assert self.refuses(store, cut, InvalidArgument, before).allowed
        self.refuses(store, write.but(data=[]), InvalidArgument, before)

    def test_more_bytes_than_declared_are_refused(
        self, store: LatentStore, before: LatentRef
    ) -> None:
        write = Write.of("entry", latents(1))
        self.refuses(store, write.but(data=[write.all_bytes, b"\0"]), InvalidArgument, before)

    def test_a_size_that_is_not_that_of_the_parts_is_refused(
        self, store: LatentStore, before: LatentRef
    ) -> None:
        write = Write.of("entry", latents(1))
        for size_bytes in (0, 1000):
            error = self.refuses(store, write.but(size_bytes=size_bytes), InvalidArgument, before)
            assert error.field == "size_bytes"

    def test_a_number_that_is_not_finite_is_refused_in_every_part(
        self, store: LatentStore, before: LatentRef
    ) -> None:
        """One NaN in a donor would spread over the whole picture of every request it serves."""
        history = "scheduler.model_outputs.0"
        cases = itertools.product(
            (np.nan, np.inf, -np.inf),
            (np.float32, np.float16, np.float64, ml_dtypes.bfloat16),
            ("latents", history),
        )
        for value, dtype, part in cases:
            arrays = {"latents": latents(1), history: latents(2)}
            arrays[part] = arrays[part].astype(dtype)
            arrays[part][0, -1] = value
            error = self.refuses(store, Write.of("entry", arrays), InvalidArgument, before)
            assert part in error.message

    def test_an_error_of_the_data_passes_through_and_nothing_is_stored(
        self, store: LatentStore, before: LatentRef
    ) -> None:
        def broken() -> Iterator[bytes]:
            yield write.all_bytes[:100]
            raise ZeroDivisionError

        write = Write.of("entry", latents(1))
        with pytest.raises(ZeroDivisionError):
            write.but(data=broken()).to(store)
        assert store.read_latent("", before).ref == before

    def test_bad_metadata_are_refused_and_the_field_is_named(
        self, store: LatentStore, before: LatentRef
    ) -> None:
        write = Write.of("entry", latents(1))
        integers = parts_of({"latents": np.zeros((1, 128), np.int64)})
        for field, value in [
            ("step_index", 21),
            ("step_index", -1),
            ("entry_id", "no/slash"),
            ("entry_id", ""),
            ("num_inference_steps", 0),
            ("sigma", -0.5),
            ("sigma", np.nan),
            ("sigma", np.inf),
            ("depth", -1),
            ("compatibility_key", "wan-720p"),
            ("compatibility_key", ""),
            ("scheduler_state_json", "[1]"),
            ("scheduler_state_json", "{"),
            ("scheduler_state_json", '{"a":' * 3000),
            ("scheduler_state_json", f'{{"a":"{"x" * 20_000}"}}'),
            ("parts", ()),
            ("parts", integers),
            ("parts", write.metadata.parts * 2),
            ("parts", parts_of({"noise": latents()})),
            ("parts", parts_of({"latents": latents(), "Scheduler/x": latents()})),
            ("parts", parts_of({"latents": latents()} | {f"p{i}": latents() for i in range(64)})),
        ]:
            bad = write.but(metadata=dataclasses.replace(write.metadata, **{field: value}))
            error = self.refuses(store, bad, InvalidArgument, before)
            assert field in str(error.field)
            assert error.allowed

    def test_a_snapshot_above_the_limit_told_by_the_capabilities_is_refused(
        self, store: LatentStore, before: LatentRef
    ) -> None:
        limit = store.get_capabilities().max_snapshot_bytes
        assert limit == MAX_SNAPSHOT_BYTES
        too_large = np.zeros((1, limit // 2 + 1), np.float16)
        self.refuses(store, Write.of("entry", too_large), InvalidArgument, before)

    def test_a_lease_out_of_range_is_refused(self, store: LatentStore, before: LatentRef) -> None:
        for lease_s in (0.0, -1.0, 86_401.0):
            write = Write.of("new").but(lease_s=lease_s)
            assert self.refuses(store, write, InvalidArgument, before).allowed
            with pytest.raises(InvalidArgument):
                store.renew_lease("", "entry", lease_s)

    def test_a_bad_namespace_is_refused_everywhere(
        self, store: LatentStore, before: LatentRef
    ) -> None:
        calls: list[Callable[[str], object]] = [
            lambda namespace: Write.of("entry", namespace=namespace).to(store),
            lambda namespace: store.read_latent(namespace, before),
            lambda namespace: store.commit_entry(namespace, "entry"),
            lambda namespace: store.renew_lease(namespace, "entry", 60.0),
            lambda namespace: store.get_entry(namespace, "entry"),
            lambda namespace: store.list_entries(namespace),
            lambda namespace: store.pin_entries(namespace, ["entry"], True),
            lambda namespace: store.delete_entries(namespace, ["entry"]),
            lambda namespace: store.delete_namespace(namespace),
            lambda namespace: store.get_stats(namespace),
            lambda namespace: next(store.watch_evictions(namespace)),
        ]
        for call in calls:
            for namespace in ("a b", "x" * 65, "ä"):
                with pytest.raises(InvalidArgument):
                    call(namespace)

    def test_a_reference_of_another_namespace_is_refused(
        self, store: LatentStore, before: LatentRef
    ) -> None:
        with pytest.raises(InvalidArgument):
            store.read_latent("other", before)


class TestLeases:
    def test_an_uncommitted_entry_is_read_by_id_but_not_listed(
        self, store: LatentStore, clock: Clock
    ) -> None:
        ref = Write.of("entry").to(store)
        assert store.read_latent("", ref).ref == ref
        entry = store.get_entry("", "entry")
        assert not entry.committed
        assert entry.lease_expire_time == clock.now + DEFAULT_LEASE_S
        assert list_ids(store) == []
        assert len(store.list_entries("", include_uncommitted=True).entries) == 1
        stats = store.get_stats("")
        assert (stats.entry_count, stats.uncommitted_count) == (0, 1)

    def test_an_entry_whose_lease_ended_is_gone_before_any_sweep(
        self, store: LatentStore, clock: Clock
    ) -> None:
        ref = Write.of("entry", lease_s=60.0).to(store)
        clock.advance(59.0)
        assert store.read_latent("", ref).ref == ref
        clock.advance(1.0)
        with pytest.raises(LatentNotFound):
            store.read_latent("", ref)
        for call in (store.get_entry, store.commit_entry):
            with pytest.raises(EntryNotFound):
                call("", "entry")
        with pytest.raises(EntryNotFound):
            store.renew_lease("", "entry", 60.0)
        assert store.pin_entries("", ["entry"], True) == [False]
        assert store.list_entries("", include_uncommitted=True).entries == ()
        assert store.get_stats("").uncommitted_count == 0
        assert store.delete_entries("", ["entry"]) == [False]

    def test_a_sweep_frees_what_ended_and_says_so_in_an_event(
        self, make_store: MakeStore, clock: Clock
    ) -> None:
        opened = make_store()
        store = opened.store
        kept = save(store, "kept")
        watch = store.watch_evictions("")
        Write.of("lost", lease_s=60.0).to(store)
        clock.advance(60.0)
        assert opened.sweep() == 1
        assert opened.sweep() == 0
        event = next(watch)
        watch.close()
        assert (event.kind, event.entry_id) == (EvictionKind.LEASE_ENDED, "lost")
        assert store.get_stats("").size_bytes == LATENT_BYTES
        assert store.read_latent("", kept).ref == kept

    def test_committing_ends_the_lease_for_good(self, store: LatentStore, clock: Clock) -> None:
        ref = Write.of("entry", lease_s=60.0).to(store)
        committed = store.commit_entry("", "entry")
        assert committed.committed
        assert committed.lease_expire_time is None
        assert store.commit_entry("", "entry") == committed
        assert store.renew_lease("", "entry", 60.0) is None
        clock.advance(1e6)
        assert store.read_latent("", ref).ref == ref
        Write.of("entry", step_index=6, lease_s=60.0).to(store)
        clock.advance(1e6)
        assert len(store.get_entry("", "entry").snapshots) == 2

    def test_a_renewed_lease_counts_from_now(self, store: LatentStore, clock: Clock) -> None:
        ref = Write.of("entry", lease_s=60.0).to(store)
        clock.advance(50.0)
        assert store.renew_lease("", "entry", 60.0) == pytest.approx(clock.now + 60.0)
        clock.advance(59.0)
        assert store.read_latent("", ref).ref == ref

    def test_the_next_snapshot_of_an_entry_renews_its_lease(
        self, store: LatentStore, clock: Clock
    ) -> None:
        first = Write.of("entry", lease_s=60.0).to(store)
        clock.advance(50.0)
        Write.of("entry", step_index=6, lease_s=60.0).to(store)
        clock.advance(50.0)
        assert store.read_latent("", first).ref == first

    def test_writing_after_the_lease_ended_starts_a_new_entry(
        self, store: LatentStore, clock: Clock
    ) -> None:
        """Else half of an abandoned save could be committed with half of another."""
        Write.of("entry", step_index=5, lease_s=60.0).to(store)
        clock.advance(60.0)
        Write.of("entry", step_index=6, lease_s=60.0).to(store)
        entry = store.commit_entry("", "entry")
        assert [s.ref.step_index for s in entry.snapshots] == [6]
        assert entry.create_time == clock.now


class TestEntries:
    def test_an_entry_tells_its_snapshots_by_step_and_its_times(
        self, store: LatentStore, clock: Clock
    ) -> None:
        created = clock.now
        refs = {step: Write.of("entry", step_index=step).to(store) for step in (10, 2, 20, 0)}
        store.commit_entry("", "entry")
        clock.advance(5.0)
        store.read_latent("", refs[2])
        store.read_latent("", refs[10])
        entry = store.get_entry("", "entry")
        assert [s.ref for s in entry.snapshots] == [refs[step] for step in (0, 2, 10, 20)]
        assert [s.metadata.step_index for s in entry.snapshots] == [0, 2, 10, 20]
        assert entry.create_time == created
        assert entry.access_time == clock.now
        assert entry.read_count == 2
        assert entry.size_bytes == 4 * LATENT_BYTES
        assert not entry.pinned

    def test_an_unknown_entry_is_not_found(self, store: LatentStore) -> None:
        for call in (store.get_entry, store.commit_entry):
            with pytest.raises(EntryNotFound):
                call("", "nothing")

    def test_a_listing_returns_every_entry_once_by_ascending_id(self, store: LatentStore) -> None:
        ids = ["a", "a-", "a.b", "a0", "aa", "b", "c"]
        for entry_id in reversed(ids):
            save(store, entry_id)
        save(store, "b1", namespace="other")
        for page_size in (1, 3, 7, 8, 1000):
            assert [e.entry_id for e in list_all(store, "", page_size)] == ids

    def test_a_listing_goes_on_where_it_was_although_its_last_entry_was_deleted(
        self, store: LatentStore
    ) -> None:
        for entry_id in "abcd":
            save(store, entry_id)
        page = store.list_entries("", 2)
        store.delete_entries("", ["b"])
        rest = store.list_entries("", 2, page.next_page_token)
        assert [e.entry_id for e in rest.entries] == ["c", "d"]
        assert rest.next_page_token == ""

    def test_an_empty_namespace_lists_nothing(self, store: LatentStore) -> None:
        assert list_all(store, "nobody") == []

    def test_a_bad_page_is_refused(self, store: LatentStore) -> None:
        for page_size, token in ((-1, ""), (0, ""), (1001, ""), (10, "no token!")):
            with pytest.raises(InvalidArgument):
                store.list_entries("", page_size, token)

    def test_deleting_tells_per_id_whether_it_was_there(self, store: LatentStore) -> None:
        ref = save(store, "entry")
        store.pin_entries("", ["entry"], True)
        assert store.delete_entries("", ["nothing", "entry", "entry"]) == [False, True, False]
        with pytest.raises(LatentNotFound):
            store.read_latent("", ref)
        assert store.get_stats("").size_bytes == 0

    def test_an_empty_or_too_large_batch_is_refused(self, store: LatentStore) -> None:
        too_many = [f"e{i}" for i in range(store.get_capabilities().max_batch_size + 1)]
        for ids in ([], too_many, ["no/slash"]):
            with pytest.raises(InvalidArgument):
                store.delete_entries("", ids)
            with pytest.raises(InvalidArgument):
                store.pin_entries("", ids, True)

    def test_namespaces_do_not_see_each_other(self, store: LatentStore) -> None:
        """Namespaces are tenants; one is a prefix of the other to catch sloppy keys."""
        write = Write.of("entry", latents(1), namespace="tenant")
        ours = write.to(store)
        theirs = save(store, "entry", latents(2), namespace="tenant2")
        store.commit_entry("tenant", "entry")
        assert store.delete_namespace("tenant2") == 1
        assert store.delete_namespace("tenant2") == 0
        assert bytes(store.read_latent("tenant", ours).data) == write.all_bytes
        with pytest.raises(LatentNotFound):
            store.read_latent("tenant2", theirs)
        assert store.get_stats("tenant").entry_count == 1
        assert store.get_stats("tenant2").size_bytes == 0


class TestRoom:
    def test_what_was_unused_longest_is_evicted(self, make_store: MakeStore) -> None:
        store = make_store(quotas=Quotas(total_bytes=3 * LATENT_BYTES)).store
        refs = {entry_id: save(store, entry_id) for entry_id in "abc"}
        store.read_latent("", refs["a"])
        save(store, "d")
        assert list_ids(store) == ["a", "c", "d"]
        save(store, "e", latents(size_bytes=2 * LATENT_BYTES))
        assert list_ids(store) == ["d", "e"]
        assert store.get_stats("").evicted_count == 3

    @pytest.mark.parametrize(
        ("policy", "evicted"),
        [
            (FirstInFirstOut(), "early"),
            (LeastRecentlyUsed(), "deep"),
            (LeastBenefit(), "loved"),
            (AgedLeastBenefit(half_life=1), "deep"),
        ],
        ids=lambda value: value if isinstance(value, str) else type(value).__name__,
    )
    def test_the_policy_says_who_is_evicted(
        self, make_store: MakeStore, policy: EvictionPolicy, evicted: str
    ) -> None:
        """Uses x steps: early 2 x 9, loved 3 x 5, deep 2 x 8."""
        store = make_store(quotas=Quotas(total_bytes=3 * LATENT_BYTES), policy=policy).store
        refs = {}
        for entry_id, step in (("early", 9), ("loved", 5), ("deep", 8)):
            refs[entry_id] = Write.of(entry_id, step_index=step).to(store)
            store.commit_entry("", entry_id)
        for entry_id in ("deep", "loved", "loved", "early"):
            store.read_latent("", refs[entry_id])
        save(store, "new")
        assert set(list_ids(store)) == {*refs, "new"} - {evicted}

    def test_a_write_over_the_high_mark_evicts_down_to_the_low_mark(
        self, make_store: MakeStore
    ) -> None:
        """So that the writes that follow evict nothing."""
        quotas = Quotas(10 * LATENT_BYTES, high_water=0.8, low_water=0.5)
        store = make_store(quotas=quotas).store
        for entry_id in "abcdefgh":
            save(store, entry_id)
        assert list_ids(store) == list("abcdefgh")
        save(store, "i")
        assert list_ids(store) == list("efghi")
        for entry_id in "jkl":
            save(store, entry_id)
        assert list_ids(store) == list("efghijkl")

    def test_what_cannot_be_evicted_may_fill_the_quota_above_the_high_mark(
        self, make_store: MakeStore
    ) -> None:
        quotas = Quotas(4 * LATENT_BYTES, high_water=0.5, low_water=0.25)
        store = make_store(quotas=quotas).store
        for entry_id in "abcd":
            Write.of(entry_id).to(store)
        with pytest.raises(QuotaExceeded):
            Write.of("e").to(store)
        assert store.get_stats("").uncommitted_count == 4

    def test_an_entry_is_evicted_with_all_its_snapshots(self, make_store: MakeStore) -> None:
        store = make_store(quotas=Quotas(total_bytes=3 * LATENT_BYTES)).store
        refs = [Write.of("old", step_index=step).to(store) for step in (1, 2, 3)]
        store.commit_entry("", "old")
        save(store, "new")
        for ref in refs:
            with pytest.raises(LatentNotFound):
                store.read_latent("", ref)
        assert store.get_stats("").size_bytes == LATENT_BYTES

    def test_a_namespace_over_its_quota_evicts_only_its_own(self, make_store: MakeStore) -> None:
        store = make_store(quotas=Quotas(namespace_bytes=2 * LATENT_BYTES)).store
        save(store, "oldest", namespace="other")
        for entry_id in "abc":
            save(store, entry_id, namespace="full")
        assert list_ids(store, "other") == ["oldest"]
        assert list_ids(store, "full") == ["b", "c"]
        assert store.get_stats("full").quota_bytes == 2 * LATENT_BYTES

    def test_the_total_quota_evicts_across_namespaces(self, make_store: MakeStore) -> None:
        store = make_store(quotas=Quotas(2 * LATENT_BYTES, 2 * LATENT_BYTES)).store
        save(store, "oldest", namespace="other")
        save(store, "a", namespace="busy")
        save(store, "b", namespace="busy")
        assert list_ids(store, "other") == []
        assert list_ids(store, "busy") == ["a", "b"]

    def test_pinned_and_uncommitted_entries_are_never_evicted(self, make_store: MakeStore) -> None:
        store = make_store(quotas=Quotas(total_bytes=3 * LATENT_BYTES)).store
        save(store, "pinned")
        assert store.pin_entries("", ["pinned", "nothing"], True) == [True, False]
        Write.of("saving").to(store)
        for entry_id in "abc":
            save(store, entry_id)
        assert list_ids(store) == ["c", "pinned"]
        assert store.get_entry("", "pinned").pinned
        store.pin_entries("", ["pinned"], False)
        save(store, "d")
        assert list_ids(store) == ["c", "d"]

    def test_a_write_is_refused_only_when_nothing_may_go(self, make_store: MakeStore) -> None:
        store = make_store(quotas=Quotas(total_bytes=2 * LATENT_BYTES)).store
        save(store, "pinned")
        store.pin_entries("", ["pinned"], True)
        save(store, "loose")
        with pytest.raises(QuotaExceeded):
            Write.of("large", latents(size_bytes=2 * LATENT_BYTES)).to(store)
        assert list_ids(store) == ["loose", "pinned"]
        save(store, "fits")
        assert list_ids(store) == ["fits", "pinned"]

    def test_a_snapshot_above_the_quota_is_refused_and_evicts_nothing(
        self, make_store: MakeStore
    ) -> None:
        store = make_store(quotas=Quotas(namespace_bytes=2 * LATENT_BYTES)).store
        save(store, "entry")
        with pytest.raises(QuotaExceeded):
            Write.of("large", latents(size_bytes=3 * LATENT_BYTES)).to(store)
        assert list_ids(store) == ["entry"]

    def test_a_growing_entry_does_not_evict_itself(self, make_store: MakeStore) -> None:
        store = make_store(quotas=Quotas(total_bytes=2 * LATENT_BYTES)).store
        save(store, "entry")
        Write.of("entry", step_index=6).to(store)
        with pytest.raises(QuotaExceeded):
            Write.of("entry", step_index=7).to(store)
        assert len(store.get_entry("", "entry").snapshots) == 2

    def test_overwriting_needs_room_only_for_the_growth(self, make_store: MakeStore) -> None:
        store = make_store(quotas=Quotas(total_bytes=2 * LATENT_BYTES)).store
        save(store, "a")
        save(store, "b")
        save(store, "b", latents(7))
        assert list_ids(store) == ["a", "b"]

    def test_an_ended_lease_makes_room_before_anything_is_evicted(
        self, make_store: MakeStore, clock: Clock
    ) -> None:
        store = make_store(quotas=Quotas(total_bytes=2 * LATENT_BYTES)).store
        save(store, "old")
        Write.of("abandoned", lease_s=60.0).to(store)
        clock.advance(60.0)
        save(store, "new")
        assert list_ids(store) == ["new", "old"]

    def test_the_time_to_live_ends_entries_unless_pinned(
        self, make_store: MakeStore, clock: Clock
    ) -> None:
        opened = make_store(ttl_s=100.0)
        store = opened.store
        watch = store.watch_evictions("")
        ref = save(store, "entry")
        save(store, "pinned")
        store.pin_entries("", ["pinned"], True)
        clock.advance(99.0)
        store.read_latent("", ref)
        save(store, "young")
        clock.advance(1.0)
        with pytest.raises(LatentNotFound):
            store.read_latent("", ref)
        assert list_ids(store) == ["pinned", "young"]
        assert opened.sweep() == 1
        event = next(watch)
        watch.close()
        assert (event.kind, event.entry_id) == (EvictionKind.EXPIRED, "entry")

    def test_an_expired_entry_can_be_written_anew(
        self, make_store: MakeStore, clock: Clock
    ) -> None:
        store = make_store(ttl_s=100.0).store
        save(store, "entry")
        clock.advance(100.0)
        save(store, "entry")
        assert store.get_entry("", "entry").create_time == clock.now


class TestEvents:
    def test_every_removal_is_one_event_in_order(self, make_store: MakeStore) -> None:
        store = make_store(quotas=Quotas(total_bytes=2 * LATENT_BYTES)).store
        watch = store.watch_evictions("")
        for entry_id in "abc":
            save(store, entry_id, namespace="x")
        store.delete_entries("x", ["b", "b"])
        store.delete_namespace("x")
        events = [next(watch) for _ in range(3)]
        watch.close()
        assert [(e.kind, e.namespace, e.entry_id) for e in events] == [
            (EvictionKind.CAPACITY, "x", "a"),
            (EvictionKind.DELETED, "x", "b"),
            (EvictionKind.DELETED, "x", "c"),
        ]
        first = events[0].sequence
        assert [e.sequence for e in events] == [first, first + 1, first + 2]

    def test_a_watcher_goes_on_after_the_last_event_it_saw(self, store: LatentStore) -> None:
        watch = store.watch_evictions("")
        for entry_id in "abc":
            save(store, entry_id)
        store.delete_namespace("")
        seen = next(watch)
        watch.close()
        again = store.watch_evictions("", seen.sequence)
        assert next(again).sequence == seen.sequence + 1
        again.close()

    def test_a_watcher_sees_only_its_namespace(self, store: LatentStore) -> None:
        watch = store.watch_evictions("mine")
        save(store, "entry", namespace="other")
        save(store, "entry", namespace="mine")
        store.delete_namespace("other")
        store.delete_namespace("mine")
        assert next(watch).namespace == "mine"
        watch.close()

    def test_a_watcher_that_fell_behind_gets_a_gap_and_then_the_rest(
        self, make_store: MakeStore
    ) -> None:
        store = make_store(event_history=3).store
        for entry_id in "abcdef":
            save(store, entry_id)
        store.delete_entries("", ["a"])
        first = 1
        store.delete_entries("", list("bcdef"))
        watch = store.watch_evictions("nobody", first)
        gap = next(watch)
        watch.close()
        assert (gap.kind, gap.namespace, gap.entry_id) == (EvictionKind.GAP, "", "")
        rest = store.watch_evictions("", gap.sequence)
        assert [next(rest).entry_id for _ in range(3)] == ["d", "e", "f"]
        rest.close()

    def test_a_sequence_number_that_no_event_has_is_refused(self, store: LatentStore) -> None:
        for sequence in (1, -1):
            with pytest.raises(InvalidArgument):
                next(store.watch_evictions("", sequence))

    def test_closing_a_watch_ends_it_while_another_thread_waits(self, store: LatentStore) -> None:
        watch = store.watch_evictions("")
        ended = threading.Event()

        def wait() -> None:
            assert list(watch) == []
            ended.set()

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        watch.close()
        assert ended.wait(20)
        thread.join()


class TestThreads:
    def test_readers_see_whole_snapshots_while_writers_replace_them(
        self, store: LatentStore
    ) -> None:
        writes = [Write.of("entry", latents(seed, size_bytes=200_000)) for seed in range(4)]
        whole = {write.xxh3_64: write.all_bytes for write in writes}
        ref = dataclasses.replace(writes[0].to(store), spec=None, xxh3_64=0)
        stop = threading.Event()

        def read() -> int:
            reads = 0
            while not stop.is_set() or reads == 0:
                snapshot = store.read_latent("", ref)
                assert bytes(snapshot.data) == whole[snapshot.ref.xxh3_64]
                reads += 1
                # Two loops that hand CPython's lock to each other every few microseconds keep all
                # other threads from it for minutes; no server's worker threads do that.
                stop.wait(0.001)
            return reads

        def write(mine: Write) -> None:
            for _ in range(5):
                mine.to(store)

        with ThreadPoolExecutor(6) as pool:
            readers = [pool.submit(read) for _ in range(2)]
            writers = [pool.submit(write, w) for w in writes]
            try:
                for writer in writers:
                    writer.result()
            finally:
                stop.set()
            assert all(reader.result() for reader in readers)
        assert store.get_stats("").size_bytes == 200_000

    def test_concurrent_writers_keep_all_entries_and_exact_totals(self, store: LatentStore) -> None:
        def write(worker: int) -> list[LatentRef]:
            return [save(store, f"w{worker}-{i}", latents(worker)) for i in range(5)]

        with ThreadPoolExecutor(8) as pool:
            refs = [ref for found in pool.map(write, range(8)) for ref in found]
        for ref in refs:
            assert store.read_latent("", ref).ref == ref
        stats = store.get_stats("")
        assert (stats.entry_count, stats.size_bytes) == (40, 40 * LATENT_BYTES)

    def test_concurrent_writers_stay_within_the_quota(self, make_store: MakeStore) -> None:
        quota = 5 * LATENT_BYTES
        store = make_store(quotas=Quotas(total_bytes=quota)).store

        def write(worker: int) -> None:
            for i in range(6):
                entry_id = f"w{worker}-{i}"
                Write.of(entry_id, latents(worker)).to(store)
                store.commit_entry("", entry_id)
                assert store.get_stats("").size_bytes <= quota

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(4)))
        assert store.get_stats("").entry_count == 5


class TestTheStoreItself:
    def test_capabilities_name_the_engine_and_limits(self, store: LatentStore) -> None:
        capabilities = store.get_capabilities()
        assert capabilities.engine in ("memory", "lmdb", "redis", "redis-cluster", "s3")
        assert capabilities.max_chunk_bytes == MAX_CHUNK_BYTES
        assert 0 < capabilities.min_lease_s < capabilities.max_lease_s

    def test_a_closed_store_is_unavailable(self, store: LatentStore) -> None:
        ref = save(store, "entry")
        watch = store.watch_evictions("")
        store.close()
        store.close()
        calls: list[Callable[[], object]] = [
            lambda: Write.of("entry").to(store),
            lambda: store.read_latent("", ref),
            lambda: store.get_entry("", "entry"),
            lambda: store.list_entries(""),
            lambda: store.delete_entries("", ["entry"]),
            lambda: store.get_stats(""),
            lambda: next(store.watch_evictions("")),
        ]
        for call in calls:
            with pytest.raises(Unavailable):
                call()
        watch.close()
