"""How files are named that hold what was generated."""

from __future__ import annotations

import itertools
from pathlib import Path

_SUFFIXES = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/webp": ".webp",
    "image/gif": ".gif",
    "video/mp4": ".mp4",
}


def suffix_of(media_type: str) -> str:
    """Suffix of a file of this kind, with its dot; ``.bin`` of one that is not known."""
    return _SUFFIXES.get(media_type, ".bin")


def next_free(media_type: str) -> Path:
    """``picture.png``, or ``picture-2.png`` and so on: nobody asked to lose an earlier one."""
    stem = "video" if media_type.startswith("video/") else "picture"
    suffix = suffix_of(media_type)
    later = (f"{stem}-{number}{suffix}" for number in itertools.count(2))
    paths = map(Path, itertools.chain([stem + suffix], later))
    return next(path for path in paths if not path.exists())
