"""Server processes of a benchmark: started, asked where they listen, ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

PATIENCE_S = 600.0


class ServerProcess:
    """A server whose log goes to a file; ``address`` waits until it serves.

    A file and not a pipe, since reading a log would add to what this process is measured by.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        """Starts it.

        Args:
            command: What to run. It logs the event ``serving`` with its ``address`` as JSON.
            log: Where its log goes.
        """
        self._log = log
        with log.open("w", encoding="utf-8") as file:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                # One thread each, as where services share cores.
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def address(self) -> str:
        """Where it listens."""
        wait_until(lambda: bool(self._serving()), "a server listens")
        return str(json.loads(self._serving())["address"])

    def end(self, *, kill: bool = False) -> None:
        """Ends it, as a crash would or in order."""
        self._process.kill() if kill else self._process.terminate()
        self._process.wait()

    def _serving(self) -> str:
        text = self._log.read_text(encoding="utf-8")
        if self._process.poll() is not None:
            raise SystemExit(f"a server did not start: {text[-2000:]}")
        lines = text.splitlines(keepends=True)
        return next((x for x in lines if '"serving"' in x and x.endswith("\n")), "")


def end_in_order_on_sigterm() -> None:
    """Lets a benchmark that is ended end its servers too; else they would outlive it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))


def python(*arguments: str) -> list[str]:
    """The command that runs something with this Python."""
    return [sys.executable, *arguments]


def wait_until(reached: Callable[[], bool], what: str) -> None:
    """Waits for a state, looking often enough not to add to what is measured."""
    end = time.monotonic() + PATIENCE_S
    while not reached():
        if time.monotonic() > end:
            raise SystemExit(f"not reached in {PATIENCE_S:.0f} s: {what}")
        time.sleep(0.002)
