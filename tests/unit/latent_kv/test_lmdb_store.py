"""What only a store on a disk can get wrong: restarts, kills, damage, growth, ownership."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from structlog.testing import capture_logs
from tests.contract.latent_store_cases import LATENT_BYTES, Clock, Write, latents, list_ids, save
from tests.full_disk import largest_file

from skipstone_latent_kv.data_check import verify
from skipstone_latent_kv.eviction import Quotas
from skipstone_latent_kv.lmdb_entries import LmdbEntries
from skipstone_latent_kv.lmdb_rows import CHUNK_BYTES
from skipstone_latent_kv.lmdb_store import LmdbStore
from skipstone_shared.errors import (
    EntryNotFound,
    FailedPrecondition,
    LatentNotFound,
    ResourceExhausted,
)
from skipstone_shared.latents import LatentRef
from skipstone_shared.stored_entries import EvictionKind


@pytest.fixture
def clock() -> Clock:
    return Clock()


def open_store(path: Path, clock: Clock | None = None, **options: Any) -> LmdbStore:
    options = {"initial_map_bytes": 1 << 20} | options
    return LmdbStore(path, clock=clock or Clock(), **options)


class TestRestart:
    def test_snapshots_pins_leases_uses_and_event_numbers_survive(
        self, tmp_path: Path, clock: Clock
    ) -> None:
        store = open_store(tmp_path, clock)
        write = Write.of("kept", latents(3, size_bytes=3 * CHUNK_BYTES))
        ref = write.to(store)
        store.commit_entry("", "kept")
        store.pin_entries("", ["kept"], True)
        Write.of("saving", lease_s=60.0).to(store)
        save(store, "deleted")
        watch = store.watch_evictions("")
        store.delete_entries("", ["deleted"])
        sequence = next(watch).sequence
        clock.advance(5.0)
        store.read_latent("", ref)
        before = store.get_entry("", "kept")
        stats = dataclasses.replace(store.get_stats(""), disk_bytes=0)
        store.close()

        store = open_store(tmp_path, clock)
        assert bytes(store.read_latent("", ref).data) == write.all_bytes
        after = store.get_entry("", "kept")
        assert after == dataclasses.replace(before, read_count=2)
        assert (after.pinned, after.committed, after.access_time) == (True, True, clock.now)
        assert dataclasses.replace(store.get_stats(""), disk_bytes=0) == stats
        watch = store.watch_evictions("", sequence)
        clock.advance(55.0)
        assert store.sweep() == 1
        event = next(watch)
        assert (event.sequence, event.kind) == (sequence + 1, EvictionKind.LEASE_ENDED)
        store.close()

    def test_the_order_of_eviction_survives(self, tmp_path: Path, clock: Clock) -> None:
        store = open_store(tmp_path, clock)
        refs = {}
        for entry_id in "abc":
            clock.advance(1.0)
            refs[entry_id] = save(store, entry_id)
        clock.advance(1.0)
        store.read_latent("", refs["a"])
        store.close()
        store = open_store(tmp_path, clock, quotas=Quotas(total_bytes=3 * LATENT_BYTES))
        save(store, "d")
        assert list_ids(store) == ["a", "c", "d"]
        store.close()

    def test_reads_write_nothing_until_the_next_sweep(self, tmp_path: Path, clock: Clock) -> None:
        """A synced write per read would cost a hit more than the steps that it saves."""
        store = open_store(tmp_path, clock)
        ref = save(store, "entry")
        before = (tmp_path / "data.mdb").stat().st_mtime_ns
        for _ in range(10):
            store.read_latent("", ref)
        assert (tmp_path / "data.mdb").stat().st_mtime_ns == before
        assert store.get_entry("", "entry").read_count == 10
        store.close()

    def test_data_of_a_newer_layout_are_refused(self, tmp_path: Path) -> None:
        open_store(tmp_path).close()
        with lmdb.open(str(tmp_path), max_dbs=16) as env, env.begin(write=True) as txn:
            txn.put(b"format", b"3", db=env.open_db(b"meta", txn=txn))
        for _ in range(2):  # The second time shows that the first one let go of the directory.
            with pytest.raises(FailedPrecondition, match="layout 3"):
                open_store(tmp_path)

    def test_data_of_the_first_layout_are_read_and_then_of_this_one(self, tmp_path: Path) -> None:
        """So that a program that knows only the first refuses them, instead of removing them."""
        store = open_store(tmp_path)
        save(store, "entry")
        store.close()

        def layout(new: bytes | None = None) -> bytes:
            with lmdb.open(str(tmp_path), max_dbs=16) as env, env.begin(write=True) as txn:
                meta = env.open_db(b"meta", txn=txn)
                if new is not None:
                    txn.put(b"format", new, db=meta)
                return bytes(txn.get(b"format", db=meta))

        layout(b"1")
        assert verify(tmp_path).problems == ()
        assert layout() == b"1", "who only looks changes nothing"
        store = open_store(tmp_path)
        assert list_ids(store) == ["entry"]
        store.close()
        assert layout() == b"2"


class TestOwnership:
    def test_a_second_store_on_the_same_directory_is_refused_until_the_first_closes(
        self, tmp_path: Path
    ) -> None:
        store = open_store(tmp_path)
        with pytest.raises(FailedPrecondition, match="in use by process"):
            open_store(tmp_path)
        store.close()
        open_store(tmp_path).close()

    def test_a_directory_that_cannot_be_created_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        for path in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/skipstone")):
            with pytest.raises(FailedPrecondition, match="cannot write to data_dir"):
                open_store(path)

    def test_a_file_that_is_no_lmdb_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "data.mdb").write_bytes(b"not lmdb" * 10_000)
        for _ in range(2):
            with pytest.raises(FailedPrecondition, match="no data file of LMDB"):
                open_store(tmp_path)


# Only what the store needs: importing the clients too would double the time of the test.
KILLED = """
import sys
from pathlib import Path
import numpy as np
from skipstone_latent_kv.lmdb_store import LmdbStore
from skipstone_shared.latents import DType, SnapshotMetadata, TensorPart, TensorSpec, checksum
from skipstone_shared.structured_logging import configure_logging
configure_logging("killed", "error")
store = LmdbStore(Path(sys.argv[1]), durability=sys.argv[2], initial_map_bytes=1 << 20)
parts = (TensorPart("latents", TensorSpec(DType.FLOAT32, (75_000,))),)
number = 0
while True:
    number += 1
    data = np.full(75_000, number, np.float32).tobytes()
    entry_id = f"entry-{number}"
    metadata = SnapshotMetadata(entry_id, 5, 20, 0.5, "0" * 32, parts)
    store.write_latent("", metadata, [data], size_bytes=300_000, xxh3_64=checksum(data))
    store.commit_entry("", entry_id)
    print(number, flush=True)
"""


class TestKill:
    @pytest.mark.parametrize("durability", ["group", "none"])
    def test_every_acknowledged_write_survives_kill_minus_9(
        self, tmp_path: Path, durability: str
    ) -> None:
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path), durability],
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"},
        )
        assert process.stdout is not None
        acknowledged = [int(process.stdout.readline()) for _ in range(8)]
        process.kill()
        acknowledged += [int(line) for line in process.stdout.read().split()]
        process.wait()
        process.stdout.close()

        store = open_store(tmp_path)
        for number in acknowledged:
            snapshot = store.read_latent("", LatentRef("", f"entry-{number}", 5))
            assert bytes(snapshot.data) == np.full(75_000, number, np.float32).tobytes()
            assert store.get_entry("", f"entry-{number}").committed
        known = set(list_ids(store))
        assert {f"entry-{number}" for number in acknowledged} <= known
        assert len(known) <= len(acknowledged) + 1
        store.close()


def damage(path: Path, found: bytes, put: bytes) -> None:
    """Changes bytes in the data file of a closed store, in old copies of their page too."""
    data = (path / "data.mdb").read_bytes()
    assert found in data
    (path / "data.mdb").write_bytes(data.replace(found, put))


def flipped(data: bytes, place: int = 100) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


class TestDamage:
    """Never a wrong byte: what is damaged reads as not there and is removed."""

    def damaged_store(
        self, path: Path, clock: Clock, spoil: Callable[[Path, Write], None]
    ) -> tuple[LmdbStore, LatentRef, LatentRef]:
        store = open_store(path, clock)
        write = Write.of("damaged", latents(1))
        ref = write.to(store)
        store.commit_entry("", "damaged")
        sound = save(store, "sound", latents(2))
        store.close()
        spoil(path, write)
        return open_store(path, clock), ref, sound

    def spoil_data(self, path: Path, write: Write) -> None:
        damage(path, write.all_bytes, flipped(write.all_bytes))

    def test_a_flipped_bit_in_the_latents_reads_as_a_miss_and_the_entry_is_removed(
        self, tmp_path: Path, clock: Clock
    ) -> None:
        store, ref, sound = self.damaged_store(tmp_path, clock, self.spoil_data)
        watch = store.watch_evictions("")
        for _ in range(2):
            with pytest.raises(LatentNotFound):
                store.read_latent("", ref)
        event = next(watch)
        assert (event.kind, event.entry_id) == (EvictionKind.CORRUPT, "damaged")
        assert list_ids(store) == ["sound"]
        assert store.get_stats("").size_bytes == LATENT_BYTES
        assert store.get_stats("").evicted_count == 1
        assert store.read_latent("", sound).ref == sound
        store.close()

    def spoil_snapshot_record(self, path: Path, write: Write) -> None:
        record = b'"entry_id":"damaged"'
        damage(path, record, record.replace(b"mag", b"gam"))

    def test_a_damaged_snapshot_record_takes_its_entry_with_it(
        self, tmp_path: Path, clock: Clock
    ) -> None:
        def read(store: LmdbStore, ref: LatentRef) -> None:
            with pytest.raises(LatentNotFound):
                store.read_latent("", ref)

        def get(store: LmdbStore, _: LatentRef) -> None:
            with pytest.raises(EntryNotFound):
                store.get_entry("", "damaged")

        def commit(store: LmdbStore, _: LatentRef) -> None:
            with pytest.raises(EntryNotFound):
                store.commit_entry("", "damaged")

        def list_all(store: LmdbStore, _: LatentRef) -> None:
            assert list_ids(store) == ["sound"]

        for number, call in enumerate((read, get, commit, list_all)):
            path = tmp_path / str(number)
            store, ref, _ = self.damaged_store(path, clock, self.spoil_snapshot_record)
            watch = store.watch_evictions("")
            call(store, ref)
            assert next(watch).kind is EvictionKind.CORRUPT
            assert list_ids(store) == ["sound"]
            assert store.get_stats("").size_bytes == LATENT_BYTES
            store.close()

    def test_an_entry_with_a_damaged_snapshot_record_can_be_written_anew(
        self, tmp_path: Path, clock: Clock
    ) -> None:
        store, _, _ = self.damaged_store(tmp_path, clock, self.spoil_snapshot_record)
        ref = save(store, "damaged", latents(3))
        assert store.read_latent("", ref).ref == ref
        assert store.get_stats("").size_bytes == 2 * LATENT_BYTES
        assert store.get_stats("").evicted_count == 1
        store.close()

    def test_a_damaged_event_is_a_gap_and_the_numbers_go_on(self, tmp_path: Path) -> None:
        store = open_store(tmp_path)
        for entry_id in ("first", "second"):
            save(store, entry_id)
            store.delete_entries("", [entry_id])
        store.close()
        damage(tmp_path, b"deleted\0default\0second", b"deleted default second")
        store = open_store(tmp_path)
        watch = store.watch_evictions("default", 1)
        save(store, "third")
        store.delete_entries("", ["third"])
        events = [next(watch) for _ in range(2)]
        assert [(e.sequence, e.kind) for e in events] == [
            (2, EvictionKind.GAP),
            (3, EvictionKind.DELETED),
        ]
        store.close()

    def spoil_entry_record(self, path: Path, write: Write) -> None:
        with lmdb.open(str(path), max_dbs=16) as env, env.begin(write=True) as txn:
            entries = env.open_db(b"entries", txn=txn)
            row = b"default\0damaged"
            record = txn.get(row, db=entries)
            txn.put(row, flipped(record, 20), db=entries)

    def test_a_damaged_entry_record_is_removed_at_the_start(
        self, tmp_path: Path, clock: Clock
    ) -> None:
        store, ref, _ = self.damaged_store(tmp_path, clock, self.spoil_entry_record)
        assert list_ids(store) == ["sound"]
        with pytest.raises(LatentNotFound):
            store.read_latent("", ref)
        save(store, "damaged", latents(3))
        assert store.get_stats("").size_bytes == 2 * LATENT_BYTES
        store.close()


class TestSpace:
    def test_the_map_grows_while_readers_read(self, tmp_path: Path) -> None:
        """Resizing the map under a reader would unmap what it reads."""
        store = open_store(tmp_path, durability="none")
        write = Write.of("first", latents(1, size_bytes=200_000))
        ref = write.to(store)
        expected = write.all_bytes
        stop = threading.Event()

        def read() -> int:
            reads = 0
            while not stop.is_set():
                assert bytes(store.read_latent("", ref).data) == expected
                reads += 1
            return reads

        with ThreadPoolExecutor(2) as pool:
            readers = [pool.submit(read) for _ in range(2)]
            try:
                for number in range(8):
                    Write.of(f"e{number}", latents(number, size_bytes=500_000)).to(store)
            finally:
                stop.set()
            assert all(reader.result() for reader in readers)
        assert store.get_stats("").size_bytes == 200_000 + 8 * 500_000
        store.close()

    def test_one_snapshot_larger_than_the_map_is_stored(self, tmp_path: Path) -> None:
        store = open_store(tmp_path, durability="none")
        write = Write.of("large", latents(size_bytes=3 << 20))
        assert bytes(store.read_latent("", write.to(store)).data) == write.all_bytes
        store.close()

    def test_deleted_and_evicted_entries_give_their_pages_back(self, tmp_path: Path) -> None:
        store = open_store(tmp_path, quotas=Quotas(total_bytes=300_000), durability="none")
        for number in range(10):
            save(store, f"e{number}", latents(number, size_bytes=100_000))
        size = store.get_stats("").disk_bytes
        for number in range(10, 40):
            save(store, f"e{number}", latents(number, size_bytes=90_000 + 200 * number))
        assert store.get_stats("").disk_bytes <= 1.5 * size
        store.close()

    def test_a_full_disk_refuses_writes_and_keeps_the_rest(self, tmp_path: Path) -> None:
        """LMDB reports a disk that fills up in the middle of a write like a broken one."""
        store = open_store(tmp_path, durability="none")
        ref = save(store, "entry")
        large = Write.of("large", latents(size_bytes=3 << 20))
        with largest_file(2 << 20):
            with pytest.raises(ResourceExhausted, match="disk is full"):
                large.to(store)
        assert store.read_latent("", ref).ref == ref
        assert list_ids(store) == ["entry"]
        assert store.get_stats("").size_bytes == LATENT_BYTES
        large.to(store)
        store.close()

    def test_a_corrupt_entry_on_a_full_disk_is_a_miss(self, tmp_path: Path) -> None:
        """Removing it needs pages that are not there; the reader must not notice."""
        store = open_store(tmp_path)
        write = Write.of("entry", latents(1))
        ref = write.to(store)
        store.close()
        damage(tmp_path, write.all_bytes, flipped(write.all_bytes))
        store = open_store(tmp_path)
        with capture_logs(), largest_file(4096):
            with pytest.raises(LatentNotFound):
                store.read_latent("", ref)
        store.close()


def test_a_commit_succeeds_although_the_entry_is_evicted_right_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer must not take a save that was done for one that is lost."""
    store = open_store(tmp_path, quotas=Quotas(total_bytes=LATENT_BYTES), durability="none")
    Write.of("entry").to(store)
    change = LmdbEntries.change

    def change_and_write_another(entries: LmdbEntries, *arguments: Any) -> Any:
        result = change(entries, *arguments)
        monkeypatch.setattr(LmdbEntries, "change", change)
        Write.of("another").to(store)
        return result

    monkeypatch.setattr(LmdbEntries, "change", change_and_write_another)
    assert store.commit_entry("", "entry").committed
    assert store.delete_entries("", ["entry", "another"]) == [False, True]
    store.close()


def test_with_durability_always_no_two_writes_share_a_commit(tmp_path: Path) -> None:
    store = open_store(tmp_path, durability="always")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: save(store, f"e{number}"), range(8)))
    assert len(list_ids(store)) == 8
    store.close()
    with lmdb.open(str(tmp_path), max_dbs=16) as env:
        # At least one for each write and each commit of an entry.
        assert env.info()["last_txnid"] >= 16
