"""Looks at the pages of an LMDB file before LMDB does, and reads what is left of a damaged one.

LMDB trusts its pages: behind one that is damaged it may end the process (a bus error where the file
was cut off, a wild pointer where a page is garbage) or change the wrong thing. Records and latents
have checksums of ours; this is for what holds them together.
"""

from __future__ import annotations

import itertools
import mmap
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import lmdb
from lmdb import verify

from skipstone_shared.data_directory import sync_directory
from skipstone_shared.errors import DataCorrupt, FailedPrecondition
from skipstone_shared.structured_logging import get_logger

_META_PAGES = 2
_META = struct.Struct("<II16xI84xQ8xQ")
"""Of a meta page: magic, version, page size, root page of the tables, number of the commit."""

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
        FailedPrecondition: another version of LMDB has written it.
    """
    if not file.is_file() or not file.stat().st_size:
        return
    _tell_if_long(file, "pages of a large file are checked")
    try:
        problems = verify.verify(str(file), subdir=False)
        with file.open("rb") as opened:
            if not _is_sure(_meta_pages(opened.read(2 * _PAGE_SIZES[-1]))):
                problems = [*problems, "a page that says where its tables are is damaged"]
    except verify.VerifyError as error:
        problems = [str(error)]
    if problems:
        more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise DataCorrupt(f"{file} is damaged: {problems[0]}{more}")


class DamagedFile:
    """The rows of a damaged LMDB file (format 0.9) that can still be reached.

    Nothing in it is trusted: pages out of range, visited twice or inconsistent are passed over with
    what lies below them. Rows may be garbage all the same, so their reader needs checksums.

    LMDB keeps the last two commits and never touches the pages of either. Where the file does not
    tell which one is the last, only rows that both have are read: what one of them deleted does not
    come back, what one of them added is lost.
    """

    def __init__(self, file: Path) -> None:
        """Maps the file and finds its tables, if any.

        Raises:
            FailedPrecondition: another version of LMDB has written it, or another program.
        """
        with file.open("rb") as opened:
            # Unmapped when the last view of it is gone.
            self._data = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
        metas = _meta_pages(self._data)
        if not metas and len(self._data) >= _PAGE_SIZES[0]:
            raise FailedPrecondition(f"{file} cannot be opened: it is no data file of LMDB")
        sizes = [meta.page_size for meta in metas if meta.is_whole]
        self._page_size = sizes[0] if sizes else _PAGE_SIZES[0]
        if _is_sure(metas):
            metas = [max(metas, key=lambda meta: meta.commit)]
        self._commits = [self._roots(meta.root) for meta in metas]

    def rows(self, table: str) -> Iterator[tuple[bytes, memoryview]]:
        """Keys and values of a table that was found; none otherwise. Values are views."""
        found = [self._below(roots.get(table.encode())) for roots in self._commits]
        if len(found) < 2:
            yield from itertools.chain(*found)
            return
        others = dict(found[1])
        for key, value in found[0]:
            if (other := others.get(key)) is not None and bytes(value) == bytes(other):
                yield key, value

    def _below(self, root: int | None) -> Iterator[tuple[bytes, memoryview]]:
        if root is not None:
            for key, value, _ in self._nodes(root):
                yield bytes(key), value

    def _roots(self, root: int) -> dict[bytes, int]:
        """Root pages of the tables of a commit."""
        return {
            bytes(name): _NUMBER.unpack_from(value, _TABLE_BYTES - _NUMBER.size)[0]
            for name, value, flags in self._nodes(root)
            if flags & _IS_TABLE and len(value) == _TABLE_BYTES
        }

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


def rescue(
    file: Path, damage: str, fresh: Path, copy: Callable[[DamagedFile], tuple[int, int]]
) -> None:
    """Puts a sound file in the place of a damaged one, which is kept beside it.

    A kill leaves either of them in the place. One that was kept there before is gone afterwards.

    Args:
        file: The damaged file; no process uses it.
        damage: What is wrong with it.
        fresh: Where the sound one is made, on the same disk.
        copy: Copies what can be read to `fresh` and forces it onto the disk; returns how many
            entries were kept and lost.

    Raises:
        FailedPrecondition: the disk has no room for the new file, or another version of LMDB or
            another program has written the damaged one; it is as it was.
    """
    _tell_if_long(file, "what can be read of a large damaged file is copied")
    aside = file.with_name(f"{file.name}.damaged")
    try:
        kept, lost = copy(DamagedFile(file))
        aside.unlink(missing_ok=True)
        aside.hardlink_to(file)
        fresh.replace(file)
        sync_directory(file.parent)
    except (lmdb.Error, OSError) as error:
        raise FailedPrecondition(
            f"{damage}; what can be read of it cannot be saved ({error}): free space on its disk, "
            "restore the file, or start with an empty data_dir"
        ) from error
    get_logger().error(
        "data file was damaged; what could be read is kept",
        damage=damage,
        entries_kept=kept,
        entries_lost=lost,
        damaged_file=str(aside),
    )


def _tell_if_long(file: Path, event: str) -> None:
    """Logs what is done to a file that is so large that it takes minutes on a slow disk."""
    size_bytes = file.stat().st_size
    if size_bytes >= _TOLD_FROM_BYTES:
        get_logger().info(event, file=str(file), size_bytes=size_bytes)


class _Meta(NamedTuple):
    """What a meta page says of a commit."""

    magic: int
    version: int
    page_size: int
    root: int
    commit: int

    @property
    def is_whole(self) -> bool:
        """Whether what is the same in all files is so."""
        written_by = (self.magic, self.version)
        return written_by == (_MAGIC, _VERSION) and self.page_size in _PAGE_SIZES


def _meta_pages(data: bytes | memoryview) -> list[_Meta]:
    """Both meta pages; none where neither tells the page size, by which the second is found.

    Raises:
        FailedPrecondition: another version of LMDB has written the file.
    """
    first = _meta_page(data, 0)
    if first is None:
        return []
    for size in [first.page_size] if first.is_whole else _PAGE_SIZES:
        second = _meta_page(data, size)
        if second is None:
            return [first] if first.is_whole else []
        if first.magic == second.magic == _MAGIC and first.version == second.version != _VERSION:
            raise FailedPrecondition(
                f"the file has format {first.version} of LMDB; this version reads {_VERSION}"
            )
        if first.is_whole or (second.is_whole and second.page_size == size):
            return [first, second]
    return []


def _meta_page(data: bytes | memoryview, start: int) -> _Meta | None:
    if start + _PAGE.size + _META.size > len(data):
        return None
    return _Meta(*_META.unpack_from(data, start + _PAGE.size))


def _is_sure(metas: Sequence[_Meta]) -> bool:
    """Whether the meta pages tell which commit is the last: LMDB takes the higher number.

    Numbers that follow each other show that both are sound (but for one bit, whose loss makes the
    last number that of two commits before).
    """
    commits = sorted(meta.commit for meta in metas if meta.is_whole)
    return commits == [0, 0] or (len(commits) == 2 and commits[1] == commits[0] + 1)
