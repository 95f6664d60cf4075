"""``skipstone entries delete-prompt``, ``delete-namespace``, ``verify-deleted``, on a real wire."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from click.testing import Result
from tests.unit.client.fake_services import FakeOrchestrator, serving
from typer.testing import CliRunner

from skipstone.orchestrator.v1 import orchestrator_pb2 as pb
from skipstone_client.cli_commands import build_app


@pytest.fixture(autouse=True)
def _silent_server() -> Iterator[None]:
    """The server runs in this process and would log into what the command prints."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield
    structlog.reset_defaults()


@contextmanager
def command(**answers: Any) -> Iterator[tuple[FakeOrchestrator, Any]]:
    """Runs commands against an orchestrator that gives these answers."""
    servicer = FakeOrchestrator(**{rpc: _giving(answer) for rpc, answer in answers.items()})
    with serving(servicer) as target:

        def run(*words: str, answer: str = "") -> Result:
            return CliRunner().invoke(  # type: ignore[return-value]
                build_app(), ["entries", *words, "--target", target], input=answer
            )

        yield servicer, run


def _giving(answer: Any) -> Any:
    return lambda request, context: answer


def test_a_prompt_is_read_from_a_file_so_that_nobody_sees_it(tmp_path: Path) -> None:
    path = tmp_path / "prompt"
    path.write_text("a red circle\n")
    deleted = pb.DeletePromptResponse(deleted_count=2, prompt_hash="0" * 32)
    with command(DeletePrompt=deleted) as (servicer, run):
        result = run("delete-prompt", "--prompt-file", str(path), "--namespace", "gallery")
    assert result.output == f"deleted 2 entries with the prompt hash {'0' * 32}\n"
    assert (servicer.requests[0].prompt, servicer.requests[0].namespace) == (
        "a red circle",
        "gallery",
    )


def test_a_namespace_is_deleted_only_when_somebody_says_so() -> None:
    deleted = pb.DeleteNamespaceResponse(deleted_vectors=3, deleted_latents=4)
    with command(DeleteNamespace=deleted) as (servicer, run):
        assert run("delete-namespace", "gallery", answer="n\n").exit_code == 1
        assert servicer.requests == []
        assert run("delete-namespace", "gallery", answer="y\n").exit_code == 0
        result = run("delete-namespace", "gallery", "--yes", "--json")
    assert json.loads(result.output) == {"vectors": 3, "latents": 4}


def test_what_is_proved_gone_ends_well() -> None:
    with command(VerifyDeleted=pb.VerifyDeletedResponse(checked_count=7)) as (servicer, run):
        result = run("verify-deleted", "one", "two")
        assert result.exit_code == 0
        assert result.output == "nothing is left; 7 entries of both stores were checked\n"
        assert list(servicer.requests[0].entry_ids) == ["one", "two"]


@pytest.mark.parametrize(
    ("left", "told"),
    [
        (pb.VerifyDeletedResponse(vector_entry_ids=["e"]), "vector_index still has e"),
        (pb.VerifyDeletedResponse(latent_entry_ids=["e", "f"]), "latent_kv still has e f"),
        (pb.VerifyDeletedResponse(unattributed_count=3), "3 entries of latent_kv have no vector"),
    ],
)
def test_what_is_left_is_told_and_ends_with_1(left: pb.VerifyDeletedResponse, told: str) -> None:
    with command(VerifyDeleted=left) as (_, run):
        result = run("verify-deleted", "--prompt-hash", "0" * 32)
        assert result.exit_code == 1
        assert told in result.output
        found = json.loads(run("verify-deleted", "--whole-namespace", "--json").output)
    assert found["proved"] is False


@pytest.mark.parametrize(
    "words", [[], ["--prompt", "a", "--whole-namespace"], ["e", "--prompt-hash", "0" * 32]]
)
def test_it_must_be_clear_what_is_to_be_gone(words: list[str]) -> None:
    """Without anything, a typing error would prove the whole namespace gone, or nothing."""
    with command() as (servicer, run):
        assert run("verify-deleted", *words).exit_code == 2
        assert servicer.requests == []
