"""Milvus Lite as a process on a free loopback port with its own data folder.

For benchmarks, and for tests, which kill it, hang it and start it again.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

INSTALL = "Milvus Lite is not installed, so nothing of it is tested: pip install milvus-lite"
_START_S = 60.0


class MilvusLite:
    """One server; killed, hung and started again on the same port and data."""

    def __init__(self) -> None:
        """Starts it."""
        self._folder = Path(tempfile.mkdtemp(prefix="skipstone-milvus-"))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        """Starts it; returns once it listens."""
        # Ends the server with the tests, however they end.
        command = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        command += [_program(), "server", "--data-dir", f"{self._folder}/data"]
        command += ["--host", "127.0.0.1", "--port", str(self.port)]
        with (self._folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        end = time.monotonic() + _START_S
        while not self._listens():
            text = (self._folder / "log").read_text(errors="replace")[-2000:]
            assert self.process.poll() is None, f"Milvus Lite did not start: {text}"
            assert time.monotonic() < end, f"Milvus Lite does not listen: {text}"
            time.sleep(0.02)

    def kill(self) -> None:
        """Kills it."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def remove(self) -> None:
        """Ends it for good."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True


def is_installed() -> bool:
    """Whether Milvus Lite can be started here."""
    return Path(_program()).exists()


def _program() -> str:
    return str(Path(sys.executable).with_name("milvus-lite"))
