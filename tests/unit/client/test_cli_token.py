"""``skipstone token create``, and the credentials that all commands take."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from tests.unit.client.fake_services import FakeOrchestrator, serving
from typer.testing import CliRunner

from skipstone.orchestrator.v1 import orchestrator_pb2
from skipstone_client.cli_commands import build_app
from skipstone_shared.access import AccessList, Right

WORDS = ["--right", "read", "--right", "generate", "--namespace", "gallery"]


def run(*words: str, **environ: str) -> Result:
    return CliRunner().invoke(build_app(), list(words), env=environ)  # type: ignore[return-value]


def test_what_is_printed_lets_the_token_in(tmp_path: Path) -> None:
    token, access = tmp_path / "token", tmp_path / "access.toml"
    result = run("token", "create", "the gallery", "--out", str(token), *WORDS)
    assert result.exit_code == 0, result.output
    access.write_text(result.output)
    secret = token.read_text().strip()
    caller = AccessList(access).caller([("authorization", f"Bearer {secret}")])
    assert (caller.name, caller.namespaces) == ("the gallery", {"gallery"})
    assert caller.rights == {Right.READ, Right.GENERATE}
    assert secret not in result.output


def test_only_the_owner_can_read_the_token(tmp_path: Path) -> None:
    run("token", "create", "a", "--out", str(tmp_path / "token"), *WORDS)
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600


def test_a_token_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("in use")
    result = run("token", "create", "a", "--out", str(path), *WORDS)
    assert (result.exit_code, path.read_text()) == (2, "in use")


def test_two_tokens_are_never_the_same(tmp_path: Path) -> None:
    found = set()
    for number in range(2):
        result = run("token", "create", "a", "--out", str(tmp_path / str(number)), *WORDS, "--json")
        found.add(json.loads(result.output)["tokens"][0])
    assert len(found) == 2


@pytest.mark.parametrize("namespace", ["", "a b", "a*"])
def test_a_namespace_that_cannot_be_is_refused(tmp_path: Path, namespace: str) -> None:
    path = tmp_path / "token"
    words = ["--right", "read", "--namespace", namespace]
    assert run("token", "create", "a", "--out", str(path), *words).exit_code == 2
    assert not path.exists()


def answer(request: Any, context: Any) -> orchestrator_pb2.GetStatsResponse:
    return orchestrator_pb2.GetStatsResponse()


def test_every_command_sends_the_token_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("sks_secret\n")
    servicer = FakeOrchestrator(GetStats=answer)
    with serving(servicer) as target:
        assert run("--token-file", str(path), "stats", "--target", target).exit_code == 0
        run("stats", "--target", target, SKIPSTONE_TOKEN_FILE=str(path))
        run("stats", "--target", target)
    sent = [metadata.get("authorization") for metadata in servicer.metadata]
    assert sent == ["Bearer sks_secret", "Bearer sks_secret", None]


def test_help_shows_no_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("sks_secret\n")
    assert "sks_secret" not in run("--help", SKIPSTONE_TOKEN_FILE=str(path)).output


@pytest.mark.parametrize(
    ("option", "name"),
    [("--token-file", "token_file"), ("--tls-ca-file", "tls_ca_file")],
)
def test_a_file_that_cannot_be_read_is_told_in_one_line(option: str, name: str) -> None:
    result = run(option, "/nothing/here", "stats")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"skipstone: {name}: cannot read /nothing/here")
    assert result.stderr.count("\n") == 1
