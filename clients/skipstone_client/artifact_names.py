"""How files are named that hold what was generated."""

from __future__ import annotations

import itertools
from pathlib import Path

UNFINISHED = ".part"
"""Behind the name of a file that is being written."""

_SUFFIXES = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/webp": ".webp",
    "image/gif": ".gif",
    "video/mp4": ".mp4",
}
_UNKNOWN = ".bin"
_NAME_BYTES = 255  # of ext4, XFS, btrfs, APFS and NTFS alike, or more

MAX_STEM_BYTES = (
    _NAME_BYTES - max(len(suffix) for suffix in (*_SUFFIXES.values(), _UNKNOWN)) - len(UNFINISHED)
)
"""Longest name without its ending, in bytes of UTF-8, that file systems take."""


def suffix_of(media_type: str) -> str:
    """Suffix of a file of this kind, with its dot; ``.bin`` of one that is not known."""
    return _SUFFIXES.get(media_type, _UNKNOWN)


def next_free(media_type: str) -> Path:
    """``picture.png``, or ``picture-2.png`` and so on: nobody asked to lose an earlier one."""
    stem = "video" if media_type.startswith("video/") else "picture"
    suffix = suffix_of(media_type)
    later = (f"{stem}-{number}{suffix}" for number in itertools.count(2))
    paths = map(Path, itertools.chain([stem + suffix], later))
    return next(path for path in paths if not path.exists())
