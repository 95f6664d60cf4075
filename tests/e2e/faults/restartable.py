"""One service process that is killed and started again on its port."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path

import psutil
from tests.e2e.processes import START_TIMEOUT_S, service_command, service_environment, wait_until


class Restartable:
    """A service; its log goes to a file."""

    def __init__(self, name: str, folder: Path, *flags: str) -> None:
        """Starts nothing yet.

        Args:
            name: Of the service.
            folder: For its log.
            flags: Of its command line, without the port.
        """
        self.name = name
        self._flags = flags
        self._log = folder / f"{name}-{id(self):x}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()
        self.target = ""

    def start(self) -> None:
        """Starts it, on the port that it had before, and waits until it serves."""
        with self._starting:
            port = self.target.rpartition(":")[2] or "0"
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    service_command(self.name, "--port", port, *self._flags),
                    stdout=log,
                    stderr=log,
                    env=service_environment(),
                )
            wait_until(self._serves, f"{self.name} serves", START_TIMEOUT_S)

    def kill(self) -> None:
        """Ends it at once, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def rss_bytes(self) -> int:
        """Memory that it holds."""
        return int(self._measured().memory_info().rss)

    @property
    def open_files(self) -> int:
        """File descriptors that it holds."""
        return int(self._measured().num_fds())

    def _measured(self) -> psutil.Process:
        assert self._process is not None
        return psutil.Process(self._process.pid)

    def _serves(self) -> bool:
        assert self._process is not None
        text = self._log.read_text(encoding="utf-8")
        assert self._process.poll() is None, f"{self.name} did not start: {text}"
        for line in text.splitlines(keepends=True):
            if line.endswith("\n") and '"serving"' in line:
                self.target = str(json.loads(line)["address"])
                return True
        return False
