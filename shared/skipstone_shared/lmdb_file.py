"""Looks at the pages of an LMDB file before LMDB does, and reads what is left of a damaged one.

LMDB trusts its pages: behind one that is damaged it may end the process (a bus error where the file
was cut off, a wild pointer where a page is garbage) or change the wrong thing. Records and latents
have checksums of ours; this is for what holds them together.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

from lmdb import verify

from skipstone_shared.data_directory import sync_directory
from skipstone_shared.errors import DataCorrupt
from skipstone_shared.structured_logging import get_logger

_META_PAGES = 2
_META = struct.Struct("<II16xI84xQ8xQ")
"""Magic, version, page size, root page of the tables, number of the commit."""

_PAGE = struct.Struct("<QHHHH")
_NODE = struct.Struct("<HHHH")
_NUMBER = struct.Struct("<Q")
_PAGE_SIZES = tuple(1 << power for power in range(12, 17))
_MAGIC = 0xBEEFC0DE
_VERSION = 1
_BRANCH, _LEAF = 1, 2
_IN_OVERFLOW, _IS_TABLE = 1, 2
_TABLE_BYTES = 48
_TOLD_FROM_BYTES = 16 << 30
"""Takes a second or two of CPU, and minutes on a slow disk."""


def check_pages(file: Path) -> None:
    """Walks every page that can be reached, and says before that it does where that takes long.

    Takes 13 us of CPU per entry of latent_kv, and 80 s and 512 MiB of memory per TiB of latents. Of
    every MiB of latents one page is read, which is what takes longest on a slow disk.

    A file that is not there yet, or empty, is in order: LMDB makes it.

    Args:
        file: A data file that nobody writes to.

    Raises:
        DataCorrupt: a page is damaged or missing.
    """
    if not file.is_file() or not file.stat().st_size:
        return
    tell_if_long(file, "pages of a large file are checked")
    try:
        problems = verify.verify(str(file), subdir=False)
        with file.open("rb") as opened:
            _last_commit(opened.read(2 * _PAGE_SIZES[-1]))
    except (verify.VerifyError, DataCorrupt) as error:
        problems = [str(error)]
    if problems:
        more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise DataCorrupt(f"{file} is damaged: {problems[0]}{more}")


def tell_if_long(file: Path, event: str) -> None:
    """Logs what is done to a file that is so large that it takes minutes on a slow disk."""
    size_bytes = file.stat().st_size
    if size_bytes >= _TOLD_FROM_BYTES:
        get_logger().info(event, file=str(file), size_bytes=size_bytes)


def rescue_failed(damage: str, error: Exception) -> str:
    """What is wrong with a damaged file that could not be copied, and what to do about it.

    Args:
        damage: What is wrong with it.
        error: Why it could not be copied: `DataCorrupt` when nothing in it can be relied on, else
            an error of the disk.
    """
    if isinstance(error, DataCorrupt):
        return (
            f"{damage}; nothing in it can be relied on ({error.message}): restore the file, or "
            "start with an empty data_dir"
        )
    return (
        f"{damage}; what can be read of it cannot be saved ({error}): free space on its disk, "
        "restore the file, or start with an empty data_dir"
    )


def replace_damaged(file: Path, sound: Path) -> Path:
    """Puts a sound file in the place of a damaged one, in one step; a kill leaves either of them.

    Args:
        file: The damaged file.
        sound: The new one, on the same disk and forced onto it.

    Returns:
        Where the damaged file is now; one that was kept there before is gone.

    Raises:
        OSError: The directory cannot be written; nothing has changed.
    """
    aside = file.with_name(f"{file.name}.damaged")
    aside.unlink(missing_ok=True)
    aside.hardlink_to(file)
    sound.replace(file)
    sync_directory(file.parent)
    return aside


class DamagedFile:
    """The rows of a damaged LMDB file (format 0.9) that can still be reached.

    Nothing in it is trusted: pages out of range, visited twice or inconsistent are passed over with
    what lies below them. Rows may be garbage all the same, so their reader needs checksums.
    """

    def __init__(self, file: Path) -> None:
        """Maps the file and finds its tables.

        Raises:
            DataCorrupt: none can be read.
        """
        with file.open("rb") as opened:
            # Unmapped when the last view of it is gone.
            self._data = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
        self._page_size, root = _last_commit(self._data)
        self._tables = {
            bytes(name): _NUMBER.unpack_from(value, _TABLE_BYTES - _NUMBER.size)[0]
            for name, value, flags in self._nodes(root)
            if flags & _IS_TABLE and len(value) == _TABLE_BYTES
        }
        if not self._tables:
            raise DataCorrupt("none of its tables can be read")

    def rows(self, table: str) -> Iterator[tuple[bytes, memoryview]]:
        """Keys and values of a table that was found; none otherwise. Values are views."""
        root = self._tables.get(table.encode())
        if root is not None:
            for key, value, _ in self._nodes(root):
                yield bytes(key), value

    def _nodes(self, root: int) -> Iterator[tuple[memoryview, memoryview, int]]:
        """Key, value and flags of all rows below a page, in order."""
        waiting, seen = [root], set()
        while waiting:
            number = waiting.pop()
            start = number * self._page_size
            if number < _META_PAGES or number in seen or start + self._page_size > len(self._data):
                continue
            seen.add(number)
            page = self._data[start : start + self._page_size]
            own_number, _, flags, lower, _ = _PAGE.unpack_from(page)
            if own_number != number or not _PAGE.size <= lower <= len(page):
                continue
            nodes = [
                page[place:]
                for (place,) in struct.iter_unpack("<H", page[_PAGE.size : lower & ~1])
                if place + _NODE.size <= len(page)
            ]
            if flags == _BRANCH:
                waiting += [_child(node) for node in reversed(nodes)]
            elif flags == _LEAF:
                yield from filter(None, map(self._row, nodes))

    def _row(self, node: memoryview) -> tuple[memoryview, memoryview, int] | None:
        low, high, flags, key_size = _NODE.unpack_from(node)
        size = low | high << 16
        end = _NODE.size + key_size
        key, value = node[_NODE.size : end], node[end:]
        if flags & _IN_OVERFLOW:
            if len(value) < _NUMBER.size:
                return None
            start = _NUMBER.unpack_from(value)[0] * self._page_size
            value = self._data[start + _PAGE.size :]
        return (key, value[:size], flags) if len(value) >= size else None


def _child(node: memoryview) -> int:
    low, high, top, _ = _NODE.unpack_from(node)
    return int(low | high << 16 | top << 32)


def _last_commit(data: bytes | memoryview) -> tuple[int, int]:
    """Page size, and root page of the tables.

    LMDB keeps the last two commits, one per meta page, and takes the one with the higher number. Is
    one of them damaged, it may be the last: with the one before, what was deleted since would come
    back. Numbers that follow each other show that both are sound (but for one bit, whose loss makes
    the last number that of two commits before).

    Raises:
        DataCorrupt: one is damaged.
    """
    found = []
    # The second meta page lies at the page size, which the first one tells.
    for start in (0, *_PAGE_SIZES):
        if start + _PAGE.size + _META.size <= len(data):
            magic, version, size, root, commit = _META.unpack_from(data, start + _PAGE.size)
            if (magic, version) == (_MAGIC, _VERSION) and size in _PAGE_SIZES:
                found += [(commit, size, root)] if start in (0, size) else []
    commits = sorted(commit for commit, _, _ in found)
    if commits != [0, 0] and (len(commits) != 2 or commits[1] != commits[0] + 1):
        raise DataCorrupt("a page that says where its tables are is damaged")
    _, page_size, root = max(found)
    return page_size, root
