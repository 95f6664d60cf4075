"""Real servers of embedding APIs: infinity and llama.cpp, on free loopback ports."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

INSTALL = (
    "is not installed, so nothing is tested against it: tests/servers/install_remote_models.sh"
)
FOLDER = Path.home() / ".cache" / "skipstone-test-servers"
KEY = "sk-of-the-tests"

_INFINITY = Path("infinity/bin/infinity_emb")
_LLAMA = Path("llama.cpp")
_START_S = 120.0


@contextmanager
def infinity(model: Path, name: str, log: Path) -> Iterator[str]:
    """Serves a model with OpenAI's API; yields the base URL."""
    program = _found(_INFINITY, "infinity")
    port = free_port()
    command = [str(program), "v2", "--model-id", str(model), "--engine", "torch"]
    command += ["--device", "cpu", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--url-prefix", "/v1", "--no-bettertransformer", "--no-model-warmup"]
    command += ["--served-model-name", name, "--api-key", KEY, "--batch-size", "8"]
    quiet = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0"}
    with _running(command, port, log, quiet):
        yield f"http://127.0.0.1:{port}/v1"


@contextmanager
def llama_server(model: Path, options: Sequence[str], log: Path) -> Iterator[str]:
    """Serves a model in GGUF with OpenAI's and TEI's API; yields the URL."""
    program = _found(_LLAMA / "build" / "bin" / "llama-server", "llama.cpp")
    port = free_port()
    command = [str(program), "-m", str(model), "--host", "127.0.0.1", "--port", str(port)]
    command += ["--threads", "1", "--api-key", KEY, *options]
    with _running(command, port, log, {}):
        yield f"http://127.0.0.1:{port}"


def as_gguf(model: Path, target: Path) -> Path:
    """Writes a model of transformers in llama.cpp's format, by its own program."""
    llama = _found(_LLAMA, "llama.cpp")
    command = [sys.executable, str(llama / "convert_hf_to_gguf.py"), str(model)]
    command += ["--outfile", str(target), "--outtype", "f32"]
    environ = {**os.environ, "PYTHONPATH": str(llama / "gguf-py")}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return target


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _found(path: Path, what: str) -> Path:
    folder = Path(os.environ.get("SKIPSTONE_TEST_REMOTE_MODELS", FOLDER))
    if not (folder / path).exists():
        pytest.skip(f"{what} {INSTALL}")
    return folder / path


@contextmanager
def _running(
    command: list[str], port: int, log: Path, environ: Mapping[str, str]
) -> Iterator[None]:
    # Ends the server with the tests, however they end.
    bound = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    with log.open("ab") as file:
        process = subprocess.Popen(
            [*bound, *command], stdout=file, stderr=file, env={**os.environ, **environ}
        )
    try:
        end = time.monotonic() + _START_S
        while not _is_healthy(port):
            text = log.read_text(errors="replace")[-2000:]
            assert process.poll() is None, f"the server did not start: {text}"
            assert time.monotonic() < end, f"the server is not ready: {text}"
            time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait()


def _is_healthy(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
