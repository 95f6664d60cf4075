"""One LMDB environment: owned by one process, grows while it is in use."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb

from skipstone_shared.data_directory import DirectoryLock, is_disk_trouble, sync_directory
from skipstone_shared.errors import (
    DataCorrupt,
    FailedPrecondition,
    ResourceExhausted,
    Unavailable,
)
from skipstone_shared.lmdb_file import check_pages
from skipstone_shared.page_check import PageCheck, note_orderly_close, page_check_due

# py-lmdb has no types; a transaction is passed around and only used through lmdb_rows.
Transaction = Any

MAX_READERS = 1024
"""Read transactions at one moment; far above any number of worker threads."""


class LmdbEnvironment:
    """Opens a directory and hands out transactions.

    LMDB's map must not be resized while a transaction of this process is open, so ``grow`` waits
    for the running ones and holds new ones back. Read transactions must therefore be short: copy
    out of them, never wait for a peer inside one. (An open reader also keeps LMDB from reusing the
    pages that were freed since it began.)
    """

    def __init__(
        self, path: Path, initial_map_bytes: int, sync: bool, page_check: PageCheck = "always"
    ) -> None:
        """Opens the directory and creates it if necessary.

        Args:
            path: Directory.
            initial_map_bytes: Size of the map; a larger one from an earlier run is kept.
            sync: Whether a commit waits for an fsync.
            page_check: When pages are looked at.

        Raises:
            FailedPrecondition: the directory cannot be used; the message says why.
            DataCorrupt: pages of its file are damaged; see ``lmdb_rescue``.
        """
        self._path = path
        self._sync = sync
        self._file = path / "data.mdb"
        self._lock = DirectoryLock(path)
        try:
            if page_check_due(self._file, page_check):
                check_pages(self._file)
            self._env = lmdb.open(
                str(path),
                map_size=initial_map_bytes,
                max_dbs=16,
                max_readers=MAX_READERS,
                sync=sync,
            )
        except (DataCorrupt, FailedPrecondition):
            self._lock.release()
            raise
        except (lmdb.Error, OSError) as error:
            self._lock.release()
            raise FailedPrecondition(
                f"the data in {path} cannot be opened ({error}); restore it or start with an empty "
                "data_dir"
            ) from error
        # Nobody else can be reading: what is in the reader table was left by killed processes, and
        # would keep LMDB from ever reusing pages.
        self._env.reader_check()
        self._gate = threading.Condition()
        self._running = 0
        self._growing = False
        self._closed = False

    def open_table(self, name: str) -> Any:
        """The named table, created if necessary."""
        return self._env.open_db(name.encode())

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """A consistent view. Buffers that come from it are valid only inside the block.

        Raises:
            DataCorrupt: LMDB found pages that cannot be.
            Unavailable: the environment is closed.
        """
        try:
            with self._entered(), self._env.begin(buffers=True) as txn:
                yield txn
        except (lmdb.CorruptedError, lmdb.PageNotFoundError) as error:
            raise DataCorrupt(f"damaged pages in {self._path}: {error}") from error

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """The one write transaction: commits at the end of the block, aborts when it raises.

        Raises:
            Unavailable: the environment is closed.
        """
        with self._entered(), self._env.begin(write=True) as txn:
            yield txn

    def grow(self) -> int:
        """Doubles the map and returns its new size in bytes."""
        with self._gate:
            self._growing = True
            self._gate.wait_for(lambda: self._running == 0)
            try:
                size = 2 * int(self._env.info()["map_size"])
                self._env.set_mapsize(size)
            finally:
                self._growing = False
                self._gate.notify_all()
        return size

    def flush(self) -> None:
        """Forces onto the disk what commits have not forced already."""
        if not self._sync:
            self._env.sync(True)

    def disk_bytes(self) -> int:
        """Bytes on disk."""
        return (self._path / "data.mdb").stat().st_blocks * 512

    def compact(self) -> None:
        """Closes the environment with its file written anew, without the pages that were freed.

        The new file takes the place of the old one in one step, while the directory is still held:
        whatever goes wrong before leaves the old one. For a moment the disk holds both.

        Raises:
            ResourceExhausted: the disk has no room for both.
        """
        fresh = self._path / "compacting"
        shutil.rmtree(fresh, ignore_errors=True)  # Left by a process that was killed in here.
        fresh.mkdir()
        try:
            with self._gate:
                self._closed = True
                self._gate.wait_for(lambda: self._running == 0)
                self._env.copy(str(fresh), compact=True)
                self._env.close()
            (fresh / "data.mdb").replace(self._path / "data.mdb")
            sync_directory(self._path)
        except lmdb.Error as error:
            if not is_disk_trouble(error):
                raise
            raise ResourceExhausted(
                f"no room beside {self._path / 'data.mdb'} for its compacted copy ({error}); free "
                "space on its disk"
            ) from error
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
            self._env.close()
            self._lock.release()

    def close(self) -> None:
        """Waits for running transactions, flushes, closes and gives the directory free."""
        with self._gate:
            self._closed = True
            self._gate.wait_for(lambda: self._running == 0)
            self._env.sync(True)
            self._env.close()
            note_orderly_close(self._file)
            self._lock.release()

    @contextmanager
    def _entered(self) -> Iterator[None]:
        with self._gate:
            self._gate.wait_for(lambda: not self._growing)
            if self._closed:
                raise Unavailable("the store is closed")
            self._running += 1
        try:
            yield
        finally:
            with self._gate:
                self._running -= 1
                self._gate.notify_all()
