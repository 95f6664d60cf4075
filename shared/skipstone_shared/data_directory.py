"""A data directory: one process at a time, names that last, and telling disk trouble apart."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from skipstone_shared.errors import FailedPrecondition

_LOCK_FILE = "owner.lock"
_DISK_TROUBLE = tuple(
    os.strerror(code) for code in (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG)
)


class DirectoryLock:
    """Holds a directory for this process until ``release`` or its end, a kill -9 included."""

    def __init__(self, directory: Path) -> None:
        """Creates the directory where it is missing, and takes it.

        Raises:
            FailedPrecondition: it cannot be written, or another process has it.
        """
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._file = os.open(
                directory / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
            )
        except OSError as error:
            raise FailedPrecondition(
                f"cannot write to data_dir {directory}: {error.strerror}; give a directory that "
                "this user can create and write"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._file, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._file)
            raise FailedPrecondition(
                f"data_dir {directory} is in use by process {holder}; stop that one or give this "
                "one a data_dir of its own"
            ) from error
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Lets other processes have the directory."""
        os.close(self._file)


def is_disk_trouble(error: Exception) -> bool:
    """Whether an error of LMDB tells of a full or failing disk.

    LMDB has no common class for these: a disk that fills up in the middle of a write is a plain
    input/output error to it, known only by the system's text at the end of the message.
    """
    return str(error).endswith(_DISK_TROUBLE)


def sync_directory(path: Path) -> None:
    """Makes the names in a directory survive a loss of power."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
