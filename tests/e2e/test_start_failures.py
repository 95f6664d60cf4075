"""What is configured and cannot start ends at once, and says what to do in one sentence."""

from __future__ import annotations

import resource
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.processes import (
    SERVICES,
    running_service,
    service_command,
    service_environment,
)

pytestmark = pytest.mark.e2e

LIMIT_S = 10.0
"""Promised to operators: a wrong configuration is told within this time."""

STORES = ("vector_index", "latent_kv")
MODELS = ("embedding", "denoise")


def refusal(name: str, *flags: str, **environment: str) -> str:
    """Starts a service that must not start; returns what it said."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(
        service_command(name, *flags),
        env=service_environment(**environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=6 * LIMIT_S,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    lines = ended.stderr.splitlines()
    assert ended.returncode == 2, ended.stderr
    assert len(lines) == 1, ended.stderr
    assert lines[0].startswith(f"skipstone-{name.replace('_', '-')}: ")
    assert not ended.stdout
    # Seconds of CPU: on a busy machine the wall clock would measure the others.
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert used < LIMIT_S
    return lines[0]


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


@pytest.mark.parametrize("name", SERVICES)
def test_a_taken_port_is_named_before_anything_is_loaded(
    name: str, taken_port: int, tmp_path: Path
) -> None:
    """A model may take minutes to load: the missing one here must not even be looked for."""
    models = ["--model", str(tmp_path / "none")] if name in MODELS else []
    said = refusal(name, "--port", str(taken_port), *models)
    assert f"cannot listen on 127.0.0.1:{taken_port}: address already in use" in said


@pytest.mark.parametrize("name", SERVICES)
def test_an_unknown_variable_names_the_nearest_one(name: str) -> None:
    prefix = f"SKIPSTONE_{name.upper()}_"
    said = refusal(name, **{f"{prefix}LOG_LEVLE": "debug"})
    assert f"{prefix}LOG_LEVLE, did you mean {prefix}LOG_LEVEL?" in said


@pytest.mark.parametrize("name", SERVICES)
def test_an_unknown_key_in_the_file_names_the_nearest_one(name: str, tmp_path: Path) -> None:
    config = tmp_path / "skipstone.toml"
    config.write_text(f"[{name}]\nmax_worker = 3\n")
    said = refusal(name, SKIPSTONE_CONFIG=str(config))
    assert f"[{name}]: unknown key max_worker, did you mean max_workers?" in said


@pytest.mark.parametrize("name", STORES)
def test_a_data_directory_that_cannot_be_made_is_named(name: str, tmp_path: Path) -> None:
    # Permissions stop nobody where tests run as root; a file in the way stops everybody.
    (tmp_path / "file").write_text("in the way")
    directory = tmp_path / "file" / "data"
    assert str(directory) in refusal(name, "--port", "0", "--data-dir", str(directory))


@pytest.mark.parametrize("name", STORES)
def test_a_second_process_on_one_data_directory_is_refused(name: str, tmp_path: Path) -> None:
    """Two writers would not see each other's entries and could hand out half of one."""
    directory = str(tmp_path / "data")
    with running_service(name, "--data-dir", directory):
        said = refusal(name, "--port", "0", "--data-dir", directory)
    assert directory in said
    assert "use" in said or "lock" in said


@pytest.mark.parametrize("name", STORES)
def test_a_data_directory_is_free_again_after_kill_9(name: str, tmp_path: Path) -> None:
    directory = str(tmp_path / "data")
    for _ in range(2):
        with running_service(name, "--data-dir", directory):
            pass


@pytest.mark.parametrize("name", STORES)
def test_a_data_file_that_is_no_database_is_refused(name: str, tmp_path: Path) -> None:
    """Starting empty over a damaged file would silently lose every entry."""
    directory = tmp_path / "data"
    with running_service(name, "--data-dir", str(directory)):
        pass
    (database,) = (path for path in directory.glob("*.mdb") if path.name != "lock.mdb")
    database.write_bytes(b"no database" * 1000)
    assert str(directory) in refusal(name, "--port", "0", "--data-dir", str(directory))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_is_not_there_is_named(name: str, tmp_path: Path) -> None:
    missing = tmp_path / "no-such-model"
    assert str(missing) in refusal(name, "--port", "0", "--model", str(missing))


@pytest.mark.parametrize("name", MODELS)
def test_a_folder_that_is_no_model_is_named(name: str, tmp_path: Path) -> None:
    assert str(tmp_path) in refusal(name, "--port", "0", "--model", str(tmp_path))


def test_weights_that_were_copied_in_part_are_named(tmp_path: Path, tiny_model: Path) -> None:
    folder = tmp_path / "model"
    for path in tiny_model.rglob("*"):
        if path.is_file():
            copy = folder / path.relative_to(tiny_model)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    weights = next((folder / "transformer").glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-100])
    assert str(weights) in refusal("denoise", "--port", "0", "--model", str(folder))
