"""A disk or a map that is full, and one that cannot be written: it is said, and nothing is lost."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from tests.contract.latent_store_cases import Write, latents, list_ids, save
from tests.e2e.faults.disks import mounted, small_disk
from tests.e2e.processes import running_service, service_environment
from tests.e2e.test_start_failures import STORES, refusal

from skipstone_client import LatentKVClient, VectorIndexClient
from skipstone_shared.errors import ResourceExhausted
from skipstone_shared.index_entries import IndexEntry, VectorEntry
from skipstone_shared.latents import LatentRef, checksum

pytestmark = pytest.mark.e2e

MIB = 1 << 20
DISK = 12 * MIB
SIZE = 500_000
KEY = "a1" * 16
KINDS = ["disk", "file"]


def fill_store(store: LatentKVClient) -> tuple[list[LatentRef], ResourceExhausted]:
    """Saves until there is no room; what was acknowledged, and what was said then."""
    saved: list[LatentRef] = []
    while True:
        try:
            saved.append(save(store, f"e{len(saved):03}", latents(len(saved), SIZE)))
        except ResourceExhausted as error:
            return saved, error


def check_store(store: LatentKVClient, refs: list[LatentRef]) -> None:
    assert list_ids(store) == [ref.entry_id for ref in refs]
    for ref in refs:
        assert checksum(store.read_latent("", ref).data) == ref.xxh3_64


@pytest.mark.parametrize("kind", KINDS)
def test_latent_kv_on_a_full_disk_keeps_what_it_has_and_goes_on_when_there_is_room(
    tmp_path: Path, kind: str
) -> None:
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(kind, tmp_path / "disk", DISK))
        flags = ("--data-dir", str(disk / "data"))
        with running_service("latent_kv", *flags) as target, LatentKVClient(target) as store:
            saved, error = fill_store(store)
            assert len(saved) > 10
            assert "its disk is full or failing; free space or lower quota_bytes" in error.message
            check_store(store, saved)
            gone, kept = saved[:4], saved[4:]
            assert all(store.delete_entries("", [ref.entry_id for ref in gone]))
            again = [save(store, f"f{number}", latents(900 + number, SIZE)) for number in range(3)]
            check_store(store, kept + again)
        # Killed on the full disk: it comes up with all of it.
        with running_service("latent_kv", *flags) as target, LatentKVClient(target) as store:
            check_store(store, kept + again)


@pytest.mark.parametrize("kind", KINDS)
def test_vector_index_on_a_full_disk_keeps_what_it_has_and_goes_on_when_there_is_room(
    tmp_path: Path, kind: str
) -> None:
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(kind, tmp_path / "disk", DISK))
        flags = ("--data-dir", str(disk / "data"), "--exact-search-limit", "200")
        with running_service("vector_index", *flags) as target:
            with VectorIndexClient(target) as index:
                count, error = fill_index(index)
                assert "its disk is full or failing; free space" in error.message
                check_index(index, range(count))
                for start in range(0, count // 3, 20):
                    gone = range(start, min(start + 20, count // 3))
                    assert all(index.delete_entries("", [f"e{seed}" for seed in gone]))
                upsert(index, *range(count, count + 50))
                check_index(index, range(count // 3, count + 50))
        with running_service("vector_index", *flags) as target:
            with VectorIndexClient(target) as index:
                check_index(index, range(count // 3, count + 50))


def upsert(index: VectorIndexClient, *seeds: int) -> None:
    entries = [VectorEntry(IndexEntry(f"e{seed}", seed=seed), vector(seed)) for seed in seeds]
    assert index.upsert_entries("", KEY, entries) == [None] * len(entries)


def vector(seed: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.random.default_rng(seed).standard_normal(384).astype(np.float32)


def fill_index(index: VectorIndexClient) -> tuple[int, ResourceExhausted]:
    """Upserts until there is no room; how many were acknowledged, and what was said then."""
    for start in itertools.count(0, 50):
        try:
            upsert(index, *range(start, start + 50))
        except ResourceExhausted as error:
            return start, error
    raise AssertionError("there is always room")


def check_index(index: VectorIndexClient, seeds: range) -> None:
    page = index.list_entries("", KEY, 1000)
    listed = list(page.entries)
    while page.next_page_token:
        page = index.list_entries("", KEY, 1000, page.next_page_token)
        listed += page.entries
    assert sorted(entry.seed for entry in listed) == list(seeds)
    for seed in (seeds[0], seeds[-1]):
        (hits,) = index.search_entries("", KEY, [vector(seed)], 1)
        assert hits[0].entry.seed == seed


def test_a_map_that_is_full_grows_while_the_store_serves(tmp_path: Path) -> None:
    flags = ("--data-dir", str(tmp_path), "--initial-map-bytes", str(MIB))
    with running_service("latent_kv", *flags) as target, LatentKVClient(target) as store:
        refs = [save(store, f"e{number}", latents(number, MIB)) for number in range(8)]
        check_store(store, refs)


def test_an_index_above_its_bound_refuses_answers_deletes_and_goes_on(tmp_path: Path) -> None:
    flags = ("--data-dir", str(tmp_path), "--max-disk-bytes", str(2 * MIB))
    with running_service("vector_index", *flags) as target, VectorIndexClient(target) as index:
        count, error = fill_index(index)
        assert "the index is full: max_disk_bytes" in error.message
        check_index(index, range(count))
        assert all(index.delete_entries("", [f"e{seed}" for seed in range(100)]))
        upsert(index, *range(count, count + 50))
        check_index(index, range(100, count + 50))


@pytest.mark.parametrize("kind", KINDS)
def test_a_compaction_without_room_leaves_the_store_as_it_was(tmp_path: Path, kind: str) -> None:
    data = tmp_path / "disk"
    with ExitStack() as stack:
        if kind == "disk":
            stack.enter_context(mounted(data, f"size={DISK}"))
        flags = ("--data-dir", str(data))
        with running_service("latent_kv", *flags) as target, LatentKVClient(target) as store:
            refs = [save(store, f"e{number:02}", latents(number, SIZE)) for number in range(14)]
        with small_disk("file", data, MIB) if kind == "file" else ExitStack():
            ended = compact(data)
        assert ended.returncode == 2, ended.stderr
        assert "no room beside" in ended.stderr
        assert "free space on its disk" in ended.stderr
        assert not (data / "compacting").exists()
        with running_service("latent_kv", *flags) as target, LatentKVClient(target) as store:
            check_store(store, refs)
            assert all(store.delete_entries("", [ref.entry_id for ref in refs[:10]]))
        done = compact(data)
        assert done.returncode == 0, done.stderr
        sizes = json.loads(done.stdout)
        assert sizes["file_bytes"] < sizes["file_bytes_before"] // 2


def compact(data: Path) -> subprocess.CompletedProcess[str]:
    """What `skipstone kv compact` runs."""
    return subprocess.run(
        [sys.executable, "-m", "skipstone_latent_kv.offline", "compact", str(data)],
        env=service_environment(),
        capture_output=True,
        text=True,
        timeout=60.0,
        check=False,
    )


@pytest.mark.parametrize("name", STORES)
def test_a_directory_that_is_read_only_is_named(name: str, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "ro") as disk:
        said = refusal(name, "--port", "0", "--data-dir", str(disk))
    assert f"cannot write to data_dir {disk}" in said
    assert "give a directory that this user can create and write" in said


def test_damage_to_latents_that_cannot_be_repaired_for_lack_of_room_stops_the_start(
    tmp_path: Path,
) -> None:
    """To start empty instead would lose what is still there."""
    with running_service("latent_kv", "--data-dir", str(tmp_path)) as target:
        with LatentKVClient(target) as store:
            refs = [save(store, f"e{number:02}", latents(number, SIZE)) for number in range(6)]
    first = Write.of("e00", latents(0, SIZE)).all_bytes
    damage_header_before(tmp_path / "data.mdb", first[:64])
    check_refused_for_lack_of_room("latent_kv", tmp_path)
    with running_service("latent_kv", "--data-dir", str(tmp_path)) as target:
        with LatentKVClient(target) as store:
            check_store(store, refs)


def test_damage_to_vectors_that_cannot_be_repaired_for_lack_of_room_stops_the_start(
    tmp_path: Path,
) -> None:
    with running_service("vector_index", "--data-dir", str(tmp_path)) as target:
        with VectorIndexClient(target) as index:
            upsert(index, *range(900))
            # Larger than a page, so that it has pages of its own.
            large = VectorEntry(IndexEntry("e900", "x" * 5000, 900), vector(900))
            assert index.upsert_entries("", KEY, [large]) == [None]
    damage_header_before(tmp_path / "records.mdb", b"x" * 64)
    check_refused_for_lack_of_room("vector_index", tmp_path)
    with running_service("vector_index", "--data-dir", str(tmp_path)) as target:
        with VectorIndexClient(target) as index:
            check_index(index, range(901))


def damage_header_before(file: Path, value: bytes) -> None:
    """Zeroes the header of the page that a value is in, not the value: all of it can be saved."""
    sound = file.read_bytes()
    page = sound.index(value) // 4096 * 4096
    file.write_bytes(sound[:page] + bytes(16) + sound[page + 16 :])


def check_refused_for_lack_of_room(name: str, data: Path) -> None:
    with small_disk("file", data, MIB):
        said = refusal(name, "--port", "0", "--data-dir", str(data))
    assert "is damaged" in said
    assert "free space on its disk, restore the file, or start with an empty data_dir" in said
