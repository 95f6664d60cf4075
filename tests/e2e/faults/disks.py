"""Disks of any size and kind for one test, where this machine lets tests have them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.full_disk import largest_file


@contextmanager
def mounted(directory: Path, *options: str) -> Iterator[Path]:
    """A file system in memory at a directory, which is made; the test is skipped without rights."""
    directory.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"needs a file system of its own, and may not mount one: {done.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


@contextmanager
def small_disk(kind: str, directory: Path, size_bytes: int) -> Iterator[Path]:
    """A directory that holds so many bytes.

    Args:
        kind: "disk" for a file system that is full then, "file" for a limit on the size of a file,
            which needs no rights; processes that are started meanwhile have it.
        directory: Where it is.
        size_bytes: Its size.
    """
    if kind == "disk":
        with mounted(directory, f"size={size_bytes}") as disk:
            yield disk
    else:
        with largest_file(size_bytes):
            yield directory
