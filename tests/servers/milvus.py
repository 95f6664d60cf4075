"""A real Milvus 2.3.5 with its own data folder; its etcd takes the ports 2379 and 2380."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

import pytest

from backends.redis_processes import free_ports

INSTALL = (
    "Milvus is not installed, so nothing is tested against it: tests/servers/install_milvus.sh"
)
FOLDER = Path.home() / ".cache" / "skipstone-test-servers"
_PORTS = (
    *("proxy", "proxy-internal", "root-coord", "query-coord", "query-node"),
    *("index-coord", "index-node", "data-coord", "data-node"),
)
_ETCD_PORTS = (2379, 2380)
"""Of the etcd inside it, which heeds no setting."""
_START_S = 180.0


class Milvus:
    """One server, started on free ports."""

    def __init__(self, program: Path) -> None:
        """Starts it; returns once it says that it is ready.

        Args:
            program: ``milvus-server``, which starts the server itself as its child.
        """
        self._folder = Path(tempfile.mkdtemp(prefix="skipstone-milvus-"))
        ports = free_ports(len(_PORTS))
        # Ends the server with the tests, however they end: it ends its child at this signal only.
        command = ["setpriv", "--pdeathsig", "INT"] if shutil.which("setpriv") else []
        command += [str(program), "--data", str(self._folder / "data")]
        for name, port in zip(_PORTS, ports, strict=True):
            command += [f"--{name}-port", str(port)]
        self.url = f"http://127.0.0.1:{ports[0]}"
        log = self._folder / "log"
        with log.open("wb") as out:
            unbuffered = {**os.environ, "PYTHONUNBUFFERED": "1"}
            self._process = subprocess.Popen(command, stdout=out, stderr=out, env=unbuffered)
        end = time.monotonic() + _START_S
        while "Welcome" not in (text := log.read_text(errors="replace")):
            assert self._process.poll() is None, f"Milvus did not start: {text[-2000:]}"
            assert time.monotonic() < end, f"Milvus is not ready: {text[-2000:]}"
            time.sleep(0.1)

    def remove(self) -> None:
        """Ends it, and deletes its data."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


@cache
def shared_milvus() -> Milvus:
    """Returns the server of this test run, which ends with it.

    Skips the test where Milvus is not installed, or where its ports are taken.
    """
    folder = Path(os.environ.get("SKIPSTONE_TEST_MILVUS", FOLDER))
    program = folder / "milvus" / "bin" / "milvus-server"
    if not program.exists():
        pytest.skip(INSTALL)
    for port in _ETCD_PORTS:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                pytest.skip(f"Milvus is not tested: something listens on its port {port} already")
    server = Milvus(program)
    atexit.register(server.remove)
    return server
