"""When the pages of an LMDB file are looked at before LMDB opens it.

A file that its process has closed in order, and that nobody has touched since, may be opened
without: the note beside it tells its size and time of change.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Literal

from skipstone_shared.data_directory import sync_directory

PageCheck = Literal["always", "after_crash"]
"""Before every start, or only where the file was not closed in order."""


def page_check_due(file: Path, when: PageCheck) -> bool:
    """Whether to look at the pages of a file that is about to be opened for writing.

    The note of its last close is gone afterwards, so that it is due once more after a crash.

    Args:
        file: A data file that no process uses.
        when: What its operator has chosen.

    Raises:
        OSError: The directory cannot be read or written.
    """
    note = _note(file)
    told = ""
    with suppress(FileNotFoundError, UnicodeDecodeError):
        told = note.read_text(encoding="ascii")
        note.unlink()
        sync_directory(file.parent)
    return when == "always" or told != _state(file)


def note_orderly_close(file: Path) -> None:
    """Notes that a file is on the disk as a whole and closed."""
    with suppress(OSError):  # Without the note, the next start looks at the pages.
        _note(file).write_text(_state(file), encoding="ascii")


def _note(file: Path) -> Path:
    return file.with_name(f"{file.name}.closed")


def _state(file: Path) -> str:
    if not file.exists():
        return "missing"
    found = file.stat()
    return f"{found.st_size} {found.st_mtime_ns}"
