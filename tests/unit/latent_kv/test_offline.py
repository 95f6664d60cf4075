"""Verifying and compacting a data directory while no service uses it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest
from structlog.testing import capture_logs
from tests.contract.latent_store_cases import LATENT_BYTES, Write, latents, list_ids, save

from skipstone_latent_kv import offline
from skipstone_latent_kv.data_check import compact, verify
from skipstone_latent_kv.lmdb_store import LmdbStore
from skipstone_shared.errors import FailedPrecondition


def filled(path: Path) -> None:
    store = LmdbStore(path, initial_map_bytes=1 << 20)
    save(store, "a")
    save(store, "b", latents(2))
    Write.of("b", latents(3), step_index=9).to(store)
    store.close()


def change(path: Path, table: str, alter: Callable[[Any, Any, Any], None]) -> None:
    """Alters the first row of a table behind everybody's back."""
    env = lmdb.open(str(path), max_dbs=16)
    db = env.open_db(table.encode())
    with env.begin(write=True, db=db) as txn:
        cursor = txn.cursor()
        cursor.first()
        alter(txn, cursor.key(), cursor.value())
    env.close()


def flip(txn: Any, key: Any, value: Any) -> None:
    damaged = bytearray(value)
    damaged[-1] ^= 1
    txn.put(bytes(key), bytes(damaged))


def delete(txn: Any, key: Any, value: Any) -> None:
    txn.delete(bytes(key))


def test_sound_data_are_counted_and_left_as_they_are(tmp_path: Path) -> None:
    filled(tmp_path)
    before = (tmp_path / "data.mdb").read_bytes()
    report = verify(tmp_path)
    assert (report.entries, report.snapshots, report.size_bytes) == (2, 3, 3 * LATENT_BYTES)
    assert (report.problems, report.unused_values) == ((), 0)
    assert report.file_bytes == len(before)
    assert verify(tmp_path) == report


@pytest.mark.parametrize(
    ("table", "alter", "problem"),
    [
        ("chunks", flip, "entry default/a: the bytes of step 5 do not match their checksum"),
        ("chunks", delete, "entry default/a: the bytes of step 5 do not match their checksum"),
        ("snapshots", flip, "entry default/a: a snapshot record is damaged"),
        ("snapshots", delete, "entry default/a: 1 snapshots of 1024 bytes are noted, 0 of 0 are"),
        ("entries", flip, "entry default/a: its record is damaged"),
        ("entries", delete, "entry default/a: a snapshot without an entry"),
    ],
)
def test_damage_is_named(
    tmp_path: Path, table: str, alter: Callable[[Any, Any, Any], None], problem: str
) -> None:
    filled(tmp_path)
    change(tmp_path, table, alter)
    report = verify(tmp_path)
    assert any(found.startswith(problem) for found in report.problems), report.problems
    assert not any("default/b" in found for found in report.problems)


def test_compacting_gives_the_space_of_what_went_back(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, initial_map_bytes=1 << 20)
    for entry_id in "abcdefgh":
        save(store, entry_id, latents(size_bytes=500_000))
    keep = Write.of("keep", latents(1, size_bytes=100_000))
    ref = keep.to(store)
    store.commit_entry("", "keep")
    store.delete_entries("", list("abcdefgh"))
    store.close()
    before, after = compact(tmp_path)
    assert before > 4_000_000
    assert after < 300_000
    assert after == (tmp_path / "data.mdb").stat().st_size
    store = LmdbStore(tmp_path, initial_map_bytes=1 << 20)
    assert bytes(store.read_latent("", ref).data) == keep.all_bytes
    save(store, "more", latents(size_bytes=3_000_000))
    assert list_ids(store) == ["keep", "more"]
    store.close()
    assert verify(tmp_path).problems == ()


def test_compacting_removes_bytes_that_no_record_names(tmp_path: Path) -> None:
    """A snapshot record that is damaged no longer says where its bytes are."""
    filled(tmp_path)
    change(tmp_path, "snapshots", flip)
    with capture_logs():
        store = LmdbStore(tmp_path)
        assert list_ids(store) == ["b"]
        store.close()
    assert verify(tmp_path).unused_values == 1
    compact(tmp_path)
    report = verify(tmp_path)
    assert (report.unused_values, report.snapshots, report.problems) == (0, 2, ())


@pytest.mark.parametrize("command", [verify, compact])
def test_a_directory_in_use_is_left_alone(
    tmp_path: Path, command: Callable[[Path], object]
) -> None:
    store = LmdbStore(tmp_path)
    with pytest.raises(FailedPrecondition, match="is in use by process"):
        command(tmp_path)
    save(store, "entry")
    assert list_ids(store) == ["entry"]
    store.close()


@pytest.mark.parametrize("command", [verify, compact])
def test_a_directory_without_data_is_refused_and_not_filled(
    tmp_path: Path, command: Callable[[Path], object]
) -> None:
    with pytest.raises(FailedPrecondition, match=r"no data\.mdb"):
        command(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_compaction_left_is_no_trouble(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "compacting").mkdir()
    (tmp_path / "compacting" / "data.mdb").write_bytes(b"half")
    compact(tmp_path)
    assert not (tmp_path / "compacting").exists()
    assert verify(tmp_path).snapshots == 3


def test_the_program_answers_in_json_and_exit_codes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(tmp_path)
    assert offline.main(["verify", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["snapshots"] == 3
    assert offline.main(["compact", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["file_bytes"] > 0
    change(tmp_path, "chunks", flip)
    assert offline.main(["verify", str(tmp_path)]) == 1
    assert len(json.loads(capsys.readouterr().out)["problems"]) == 2
    assert offline.main(["verify", str(tmp_path / "nothing")]) == 2
    assert "no data.mdb" in capsys.readouterr().err
