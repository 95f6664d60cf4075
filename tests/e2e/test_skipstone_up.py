"""`skipstone up` as a user starts it, with six small services in place of the real ones."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.e2e.small_services import small_services_environ

pytestmark = pytest.mark.e2e

WAIT_S = 60.0


@pytest.fixture(scope="module")
def environ(tmp_path_factory) -> dict[str, str]:
    return small_services_environ(tmp_path_factory.mktemp("services"))


@contextmanager
def skipstone_up(environ, tmp_path, *flags) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-m", "skipstone_client", "up", "--free-ports"]
    process = subprocess.Popen(
        [*words, "--data-dir", str(tmp_path), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(WAIT_S)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def await_line(process, words: str) -> str:
    assert process.stdout is not None
    for text in process.stdout:
        if words in text:
            return text
    raise AssertionError(f"no line with {words!r} before the end")


def children_of(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_up_gets_ready_says_what_died_and_stops_everything_on_sigterm(environ, tmp_path):
    with skipstone_up(environ, tmp_path, "--no-restart") as process:
        ready = await_line(process, "ready: orchestrator at")
        assert "127.0.0.1:" in ready
        assert "127.0.0.1:" in await_line(process, "web page and HTTP: http://")
        children = children_of(process.pid)
        assert len(children) == 6

        os.kill(children[0], signal.SIGKILL)
        assert "stays down; the others go on" in await_line(process, "killed by SIGKILL")
        assert process.poll() is None

        process.send_signal(signal.SIGTERM)
        await_line(process, "skipstone    | stopped")
        assert process.wait(WAIT_S) == 0
        assert not any(map(is_there, children))


def test_up_ends_with_the_sentence_of_a_service_that_cannot_start(environ, tmp_path):
    with skipstone_up(
        environ, tmp_path, "--set", "denoise.fail=no model at models/gone"
    ) as process:
        out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert err == ("skipstone: skipstone-denoise: cannot start: no model at models/gone\n")
    assert "latent_kv    | ready at" in out


@pytest.mark.parametrize(
    ("words", "variables", "told"),
    [
        (
            ["--set", "denoise.fai=x", "--set", "latent_kv.port=0"],
            {},
            "--set denoise.fai: skipstone-denoise: unknown flag --fai, did you mean --fail?",
        ),
        (
            [],
            {"SKIPSTONE_ORCHESTRATOR_LOG_LEVL": "info"},
            "skipstone-orchestrator: unknown environment variable SKIPSTONE_ORCHESTRATOR_LOG_LEVL,"
            " did you mean SKIPSTONE_ORCHESTRATOR_LOG_LEVEL?",
        ),
    ],
)
def test_up_starts_nothing_where_one_service_refuses_its_settings(
    environ, tmp_path, words, variables, told
):
    with skipstone_up({**environ, **variables}, tmp_path, *words) as process:
        out, err = process.communicate(timeout=WAIT_S)
    assert (process.returncode, err) == (2, f"skipstone: {told}\n")
    assert out == "", "not even those that would have started"


def test_up_stops_everything_when_its_terminal_goes_away(environ, tmp_path):
    """Then a signal comes and nothing can be printed any more."""
    terminal, other_end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "skipstone_client", "up", "--free-ports", "--data-dir", tmp_path],
        stdin=other_end,
        stdout=other_end,
        stderr=other_end,
        env=environ,
        start_new_session=True,
        preexec_fn=take_terminal,
    )
    os.close(other_end)
    seen = b""
    while b"ready: orchestrator at" not in seen:
        seen += os.read(terminal, 1024)
    children = children_of(process.pid)
    assert len(children) == 6
    os.close(terminal)
    process.wait(WAIT_S)
    assert not any(map(is_there, children))


def take_terminal() -> None:
    """Makes standard input the terminal of the new session, which ends with it."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_up_as_json_prints_one_object_a_line(environ, tmp_path):
    with skipstone_up(environ, tmp_path, "--json") as process:
        assert process.stdout is not None
        for text in process.stdout:
            document = json.loads(text)
            if document.get("event") == "ready":
                break
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 0
    assert set(document["targets"]) >= {"orchestrator", "denoise", "gateway"}


def test_up_without_the_gateway_starts_the_five_others(environ, tmp_path):
    with skipstone_up(environ, tmp_path, "--json", "--no-gateway") as process:
        document = json.loads(await_line(process, '"event": "ready"'))
        assert len(children_of(process.pid)) == 5
    assert "gateway" not in document["targets"]
