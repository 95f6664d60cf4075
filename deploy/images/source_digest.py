"""Prints a digest of all that the images hold of this repository.

    python deploy/images/source_digest.py

`make images` gives it to every image as the label `dev.skipstone.source`, so that whoever has an
image can tell whether it is one of the code at hand.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
RECIPE = Path("deploy/images/Dockerfile")
"""Not copied, but what it says is in the images."""

_COMPILED = re.compile(r"\.py[cod]$")


def context(repository: Path) -> Iterator[Path]:
    """The files that `.dockerignore` leaves of a repository, sorted: exceptions from `*` alone."""
    lines = (repository / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for kept in sorted(line[1:] for line in lines if line.startswith("!")):
        path = repository / kept
        for found in sorted(path.rglob("*")) if path.is_dir() else [path]:
            is_compiled = "__pycache__" in found.parts or _COMPILED.search(found.name)
            if found.is_file() and not is_compiled:
                yield found


def source_digest(repository: Path = REPOSITORY) -> str:
    """32 hexadecimal digits that change with every name and byte of the files."""
    digest = hashlib.blake2b(digest_size=16)
    for path in (repository / RECIPE, *context(repository)):
        name = path.relative_to(repository).as_posix().encode()
        data = path.read_bytes()
        digest.update(b"%d %s %d\n" % (len(name), name, len(data)))
        digest.update(data)
    return digest.hexdigest()


if __name__ == "__main__":
    sys.stdout.write(source_digest() + "\n")
