"""The pages of a file are looked at unless it is known to be as its last process left it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skipstone_shared.page_check import note_orderly_close, page_check_due


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A data file that its process has closed in order."""
    path = tmp_path / "data.mdb"
    path.write_bytes(bytes(8192))
    note_orderly_close(path)
    return path


def test_after_an_orderly_close_no_check_is_due_once(file: Path) -> None:
    assert not page_check_due(file, "after_crash")
    assert page_check_due(file, "after_crash"), "this process has not closed it yet"


def test_always_is_always_and_takes_the_note_away_all_the_same(file: Path) -> None:
    assert page_check_due(file, "always")
    assert page_check_due(file, "after_crash")


@pytest.mark.parametrize("size", [4096, 8192, 12288])
def test_a_file_that_was_changed_since_is_looked_at(file: Path, size: int) -> None:
    """Copied back from elsewhere, cut off, written by another program."""
    before = file.stat()
    file.write_bytes(b"\1" * size)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert page_check_due(file, "after_crash")


def test_a_note_that_is_garbage_counts_for_nothing(file: Path) -> None:
    (file.parent / "data.mdb.closed").write_bytes(b"\xff\x00")
    assert page_check_due(file, "after_crash")


def test_a_note_that_cannot_be_written_is_no_trouble(tmp_path: Path) -> None:
    note_orderly_close(tmp_path / "gone" / "data.mdb")
    assert page_check_due(tmp_path / "data.mdb", "after_crash")
