"""Reading an LMDB file without LMDB finds in a sound one what LMDB finds."""

from __future__ import annotations

import random
from pathlib import Path

import lmdb
import pytest
from structlog.testing import capture_logs

from skipstone_shared import lmdb_file
from skipstone_shared.errors import DataCorrupt
from skipstone_shared.lmdb_file import DamagedFile, check_pages

TABLES = (b"small", b"large", b"empty")
MAP_BYTES = 1 << 26


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Trees of several levels, values within and beyond a page, and pages that were freed."""
    rng = random.Random(3)
    path = tmp_path / "data.mdb"
    with lmdb.open(str(path), subdir=False, max_dbs=3, map_size=MAP_BYTES) as env:
        small, large, _ = (env.open_db(name) for name in TABLES)
        with env.begin(write=True) as txn:
            for number in range(3000):
                txn.put(f"key {number:06}".encode(), rng.randbytes(rng.randrange(200)), db=small)
            for number in range(60):
                txn.put(number.to_bytes(8, "big"), rng.randbytes(rng.randrange(30_000)), db=large)
        with env.begin(write=True) as txn:
            for number in range(0, 3000, 3):
                txn.delete(f"key {number:06}".encode(), db=small)
            for number in range(0, 60, 3):
                txn.delete(number.to_bytes(8, "big"), db=large)
    return path


def test_all_rows_are_read_in_order(file: Path) -> None:
    check_pages(file)
    damaged = DamagedFile(file)
    with lmdb.open(str(file), subdir=False, max_dbs=3, map_size=MAP_BYTES) as env:
        for name in TABLES:
            table = env.open_db(name)
            with env.begin(db=table) as txn:
                expected = list(txn.cursor())
            assert [(key, bytes(value)) for key, value in damaged.rows(name.decode())] == expected
    assert list(damaged.rows("unknown")) == []


def test_a_check_that_may_take_minutes_is_told_of(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a start on a terabyte looks like a service that hangs."""
    with capture_logs() as logs:
        check_pages(file)
    assert logs == []
    monkeypatch.setattr(lmdb_file, "_TOLD_FROM_BYTES", file.stat().st_size)
    with capture_logs() as logs:
        check_pages(file)
    assert [line["size_bytes"] for line in logs] == [file.stat().st_size]


def test_whatever_is_damaged_rows_are_read_or_passed_over(file: Path) -> None:
    """Never an error, never an endless loop."""
    sound = file.read_bytes()
    for seed in range(60):
        rng = random.Random(seed)
        content = bytearray(sound)
        for _ in range(20):
            content[rng.randrange(len(content))] = rng.randrange(256)
        del content[rng.randrange(len(content) // 2, len(content)) :]
        file.write_bytes(content)
        with pytest.raises(DataCorrupt):
            check_pages(file)
        try:
            damaged = DamagedFile(file)
        except DataCorrupt:
            continue
        for name in TABLES:
            for key, value in damaged.rows(name.decode()):
                assert len(key) + len(value) < len(sound)
