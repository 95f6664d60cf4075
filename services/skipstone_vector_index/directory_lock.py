"""One process per data directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from skipstone_shared.errors import FailedPrecondition

_LOCK_FILE = "process.lock"


class DirectoryLock:
    """Holds a directory for this process until `release` or its end, a kill -9 included."""

    def __init__(self, directory: Path) -> None:
        """Creates the directory where it is missing, and takes it.

        Raises:
            FailedPrecondition: It cannot be written, or another process has it.
        """
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._file = os.open(directory / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        except OSError as error:
            raise FailedPrecondition(
                f"data_dir {directory} cannot be written ({error.strerror}); make it writable or "
                "choose another directory"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise FailedPrecondition(
                f"data_dir {directory} is in use by another process; stop it, or give this one a "
                "directory of its own"
            ) from error

    def release(self) -> None:
        """Lets other processes have the directory."""
        os.close(self._file)
