"""A service ends when it is told to, whichever of its threads is told."""

from __future__ import annotations

import subprocess
import sys

WAIT_S = 60.0
SERVICE = """
import signal
import sys
import threading

from skipstone_shared.config import ServiceSettings
from skipstone_shared.grpc_server import Mounted, serve


class Settings(ServiceSettings):
    service_name = "signalled"


def register(server):
    threading.Thread(target=signal_itself, daemon=True).start()


def signal_itself():
    while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        main_waits.wait(0.01)
    main_waits.wait(0.2)
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)


main_waits = threading.Event()
sys.exit(serve(Settings(port=0), lambda: Mounted(register, ())))
"""


def test_a_signal_that_another_thread_got_ends_the_service() -> None:
    """The kernel chooses the thread: after SIGCONT it is often not the main one."""
    ended = subprocess.run(
        [sys.executable, "-c", SERVICE], timeout=WAIT_S, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "stopped" in ended.stderr
