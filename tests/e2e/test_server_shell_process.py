"""How a service process starts, fails to start, and ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

pytestmark = pytest.mark.e2e

SCRIPT = Path(__file__).with_name("shell_service.py")
TIMEOUT_S = 20.0


@pytest.fixture(params=["sync", "aio"])
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@contextmanager
def started(*argv: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(SCRIPT), *argv]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ)
    try:
        yield process
    finally:
        process.kill()
        process.wait(TIMEOUT_S)


def read_until(process: subprocess.Popen[str], event: str) -> dict[str, Any]:
    """Reads log lines up to an event."""
    assert process.stderr is not None
    for line in process.stderr:
        found: dict[str, Any] = json.loads(line)
        if found["event"] == event:
            return found
    raise AssertionError(f"the process ended before it logged {event!r}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_running_request_is_finished_before_the_process_ends(
    kind: str, number: signal.Signals
) -> None:
    with started(kind, "ok", "--port", "0") as process:
        target = read_until(process, "serving")["address"]
        with closing(grpc.insecure_channel(target)) as channel:
            answer = channel.unary_unary("/test.Shell/Wait").future(b"", timeout=TIMEOUT_S)
            answer.initial_metadata()  # the handler runs
            process.send_signal(number)
            assert answer.result() == b"done"
        read_until(process, "closed")
        assert process.wait(TIMEOUT_S) == 0


def test_a_service_that_cannot_start_says_why_in_one_sentence(kind: str) -> None:
    with started(kind, "fail", "--port", "0") as process:
        _, text = process.communicate(timeout=TIMEOUT_S)
    assert text == "skipstone-shell: cannot start: no model at /models/none\n"
    assert process.returncode == 2


def test_a_service_whose_port_is_taken_does_not_start(kind: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with started(kind, "ok", "--port", str(port)) as process:
            _, text = process.communicate(timeout=TIMEOUT_S)
    expected = f"cannot listen on 127.0.0.1:{port}: address already in use"
    assert text == f"skipstone-shell: cannot start: {expected}\n"
    assert process.returncode == 2


def test_a_wrong_flag_is_one_sentence(kind: str) -> None:
    with started(kind, "ok", "--prot", "1") as process:
        _, text = process.communicate(timeout=TIMEOUT_S)
    assert text == "skipstone-shell: unknown flag --prot, did you mean --port?\n"
    assert process.returncode == 2
