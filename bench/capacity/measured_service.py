"""One service over a directory, its memory and its files."""

from __future__ import annotations

import time
from pathlib import Path

from cacheplane.cpu import process_cpu_s
from server_process import ServerProcess, python


class MeasuredService:
    """A running service."""

    def __init__(self, service: str, directory: Path, *settings: str) -> None:
        """Starts it; returns once it listens.

        Args:
            service: `latent_kv` or `vector_index`.
            directory: Its data lie in a folder of its name in here, its log beside it.
            settings: More flags.
        """
        self.started = time.perf_counter()
        self.data = directory / service
        flags = ["--port", "0", "--data-dir", str(self.data), "--log-format", "json"]
        self._process = ServerProcess(
            python("-m", f"skipstone_{service}", *flags, *settings), directory / f"{service}.log"
        )
        self.address = self._process.address()

    def memory_bytes(self) -> int:
        """Its memory without the files it has mapped, which the system may drop."""
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        (line,) = (line for line in status.splitlines() if line.startswith("RssAnon:"))
        return int(line.split()[1]) * 1024

    def cpu_s(self) -> float:
        """CPU seconds of the process so far, its imports included."""
        return process_cpu_s(self._process.pid)

    def kill(self) -> None:
        """Ends it as a crash would."""
        self._process.end(kill=True)


def disk_bytes(path: Path) -> int:
    """Bytes that the files below a folder take on the disk."""
    return sum(file.stat().st_blocks * 512 for file in path.rglob("*") if file.is_file())
