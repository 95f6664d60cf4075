"""PostgreSQL with pgvector as a process on a free loopback port with its own data folder.

For benchmarks, and for tests, which stop it, hang it and start it again.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil
import psycopg

PASSWORD = "a-secret-word"
INSTALL = (
    "PostgreSQL with pgvector is not installed, so nothing of it is tested: run "
    "tests/servers/install_pgvector.sh as root"
)
_START_S = 60.0
_FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin")


class Postgres:
    """One server; started, stopped, killed, hung and started again on the same port and data."""

    def __init__(self) -> None:
        """Makes the data folder and starts the server."""
        self._folder = Path(tempfile.mkdtemp(prefix="skipstone-postgres-"))
        # PostgreSQL refuses to run as root.
        self._user = None
        if os.geteuid() == 0:
            self._user = _unprivileged_user()
            shutil.chown(self._folder, self._user)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        shutil.chown(secret, self._user or os.geteuid())
        self._run(
            *(_program("initdb"), "--no-sync", "--no-locale", "--encoding=UTF8"),
            *("--auth=scram-sha-256", f"--pwfile={secret}", "--username=skipstone"),
            f"--pgdata={self._folder}/data",
        )
        self.url = f"postgresql://skipstone:{PASSWORD}@127.0.0.1:{self.port}/postgres"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Starts it; returns once it answers."""
        # Ends the server with the tests, however they end.
        command = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        command += [_program("postgres"), "-D", f"{self._folder}/data", "-p", str(self.port)]
        for setting in (
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "fsync=off",  # what is tested is the end of processes, not of machines
            "shared_buffers=64MB",
        ):
            command += ["-c", setting]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, user=self._user, cwd=self._folder
            )
        end = time.monotonic() + _START_S
        while not self._answers():
            log_text = (self._folder / "log").read_text(errors="replace")[-2000:]
            assert self._process.poll() is None, f"PostgreSQL did not start: {log_text}"
            assert time.monotonic() < end, f"PostgreSQL does not answer: {log_text}"
            time.sleep(0.02)

    def stop(self) -> None:
        """Ends it at once, as `pg_ctl stop -m immediate`: it recovers at the next start."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
            self._process = None

    @property
    def pid(self) -> int:
        """Process id of the server, whose children work for it."""
        assert self._process is not None
        return self._process.pid

    def signal_all(self, number: int) -> None:
        """Sends a signal to the server and each of its processes."""
        server = psutil.Process(self.pid)
        # The server first: one that is stopped starts no more children.
        server.send_signal(number)
        for process in server.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def remove(self) -> None:
        """Ends it for good."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, *command: str) -> None:
        subprocess.run(command, check=True, user=self._user, cwd=self._folder, capture_output=True)


def is_installed() -> bool:
    """Whether PostgreSQL with pgvector can be started here."""
    try:
        share = subprocess.run(
            [_program("pg_config"), "--sharedir"], check=True, capture_output=True, text=True
        ).stdout.strip()
        return bool(_program("postgres")) and Path(share, "extension", "vector.control").exists()
    except (FileNotFoundError, subprocess.CalledProcessError):
        return False


@cache
def _program(name: str) -> str:
    """Returns the path of a program of the newest PostgreSQL with a server.

    Raises:
        FileNotFoundError: There is none.
    """
    found = [path for pattern in _FOLDERS for path in sorted(Path("/").glob(pattern[1:]))]
    for folder in reversed(found):
        if (folder / "postgres").exists() and (folder / name).exists():
            return str(folder / name)
    raise FileNotFoundError(name)


def _unprivileged_user() -> str:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise FileNotFoundError("no user to run PostgreSQL as")
