"""A file of a stopped store is damaged at random: never a wrong byte, and the service stays up."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.contract.latent_store_cases import Write, latents, list_all, list_ids, save
from tests.e2e.faults.test_kill_vector_index import Saved
from tests.e2e.processes import running_service, service_command, service_environment, wait_until

from skipstone_client import LatentKVClient, VectorIndexClient
from skipstone_shared.errors import LatentNotFound
from skipstone_shared.index_entries import IndexEntry, VectorEntry
from skipstone_shared.latents import checksum

pytestmark = pytest.mark.e2e

ROUNDS = [
    pytest.param(6, marks=pytest.mark.timeout(300)),
    pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
]
KEY = "a1" * 16
STEPS = (0, 5, 11)
PAGE = 4096
LOCKS = ("owner.lock", "lock.mdb", "records.mdb-lock")
"""Files without data: a start makes them anew."""


def damage(data: bytearray, rng: random.Random) -> None:
    """Flips bits, garbles or zeroes a page, hits the start of one, or cuts the file off."""
    place = rng.randrange(len(data))
    page = place - place % PAGE
    length = len(data[page : page + PAGE])
    match rng.randrange(6):
        case 0 | 1:
            for _ in range(rng.choice((1, 1, 8))):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        case 2:
            data[page + rng.randrange(min(24, length))] ^= 1 << rng.randrange(8)
        case 3:
            data[page : page + length] = rng.randbytes(length)
        case 4:
            data[page : page + length] = bytes(length)
        case _:
            del data[place:]


@contextmanager
def started_on_damage(
    name: str, sound: Path, data: Path, rng: random.Random, *flags: str
) -> Iterator[str | None]:
    """Starts a service on a damaged copy of its data; None when it refuses and says what to do."""
    shutil.rmtree(data, ignore_errors=True)
    shutil.copytree(sound, data, ignore=shutil.ignore_patterns(*LOCKS))
    files = sorted(path for path in data.rglob("*") if path.is_file())
    # Equally often every file, not the largest one always.
    file = rng.choice(files)
    content = bytearray(file.read_bytes())
    damage(content, rng)
    file.write_bytes(content)
    if file.suffix == ".mdb" and _is_refused(name, data, *flags):
        assert file.read_bytes() == content
        yield None
        return
    with running_service(name, "--data-dir", str(data), *flags) as target:
        yield target


def _is_refused(name: str, data: Path, *flags: str) -> bool:
    """Whether a start ends at once. A bus error or an abort would be no refusal."""
    command = service_command(name, "--port", "0", "--data-dir", str(data), *flags)
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=service_environment()
    )
    assert process.stderr is not None
    said: list[str] = []
    for line in process.stderr:
        said.append(line)
        if '"serving"' in line:
            break
    process.kill()
    code = process.wait()
    if '"serving"' in said[-1]:
        return False
    assert code == 2, said
    assert "start with an empty data_dir" in said[-1]
    return True


def rounds_of(
    name: str,
    rounds: int,
    sound: Path,
    data: Path,
    check: Callable[[str], None],
    *flags: str,
) -> int:
    """Runs rounds of damage; returns in how many the service came up."""
    came_up = 0
    for number in range(rounds):
        rng = random.Random(f"{name} {number}")
        with started_on_damage(name, sound, data, rng, *flags) as target:
            if target is not None:
                check(target)
                came_up += 1
    return came_up


@pytest.mark.parametrize("rounds", ROUNDS)
def test_latent_kv_serves_what_was_written_or_a_miss(tmp_path: Path, rounds: int) -> None:
    written: dict[str, dict[int, int]] = {}
    with running_service("latent_kv", "--data-dir", str(tmp_path / "sound")) as target:
        with LatentKVClient(target) as store:
            for number in range(20):
                for step in STEPS:
                    array = latents(10 * number + step, 2000 * (1 + number % 20))
                    ref = Write.of(f"e{number}", array, step).to(store)
                    written.setdefault(f"e{number}", {})[step] = ref.xxh3_64
                store.commit_entry("", f"e{number}")
            for number in range(0, 20, 6):
                store.delete_entries("", [f"e{number}"])
                del written[f"e{number}"]

    def check(target: str) -> None:
        with LatentKVClient(target) as store:
            for entry in list_all(store):
                try:
                    found = {
                        snapshot.ref.step_index: checksum(store.read_latent("", snapshot.ref).data)
                        for snapshot in entry.snapshots
                    }
                except LatentNotFound:
                    assert entry.entry_id not in list_ids(store)
                else:
                    assert found == written[entry.entry_id]
            save(store, "new", latents(99, 50_000))
            store.delete_entries("", list(written))
            assert list_ids(store) == ["new"]

    came_up = rounds_of("latent_kv", rounds, tmp_path / "sound", tmp_path / "data", check)
    assert came_up >= rounds // 2


@pytest.mark.parametrize("rounds", ROUNDS)
def test_vector_index_finds_what_was_stored_or_nothing(tmp_path: Path, rounds: int) -> None:
    flags = ("--exact-search-limit", "40")
    entries = [
        VectorEntry(IndexEntry(f"e{seed}", seed=seed), Saved(seed).vector) for seed in range(200)
    ]
    sound = tmp_path / "sound"
    with running_service("vector_index", "--data-dir", str(sound), *flags) as target:
        with VectorIndexClient(target) as index:
            assert index.upsert_entries("", KEY, entries) == [None] * len(entries)
            gone = [f"e{seed}" for seed in range(0, 200, 9)]
            assert all(index.delete_entries("", gone))
        wait_until(lambda: any(sound.glob("graphs/*.graph")), "its graph is saved")
    stored = {entry.entry.entry_id for entry in entries} - set(gone)

    def check(target: str) -> None:
        with VectorIndexClient(target) as index:
            listed = index.list_entries("", KEY, 1000).entries
            assert {entry.entry_id for entry in listed} <= stored
            queries = [Saved(seed).vector for seed in range(0, 200, 20)]
            for query, hits in zip(queries, index.search_entries("", KEY, queries, 5), strict=True):
                for hit in hits:
                    assert hit.entry.entry_id == f"e{hit.entry.seed}"
                    assert hit.entry.entry_id in stored
                    vector = Saved(hit.entry.seed).vector
                    cosine = vector @ query / (vector @ vector * (query @ query)) ** 0.5
                    assert hit.similarity == pytest.approx(float(cosine), abs=1e-4)
            new = VectorEntry(IndexEntry("e1000", seed=1000), Saved(1000).vector)
            assert index.upsert_entries("", KEY, [new]) == [None]
            (hits,) = index.search_entries("", KEY, [Saved(1000).vector], 1)
            assert hits[0].entry.entry_id == "e1000"

    came_up = rounds_of("vector_index", rounds, sound, tmp_path / "data", check, *flags)
    assert came_up >= rounds // 2
