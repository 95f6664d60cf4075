"""A batch that goes on against another server, another model or with other options."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from click.testing import Result
from tests.unit.client.fake_services import FakeOrchestrator, serving
from typer.testing import CliRunner

from skipstone_client.batch.outputs import MANIFEST
from skipstone_client.cli_commands import build_app
from skipstone_shared.errors import Internal, InvalidArgument, PermissionDenied
from skipstone_shared.explanation_messages import explanation_to_message
from skipstone_shared.generation import Artifact, GenerationParams
from skipstone_shared.orchestration import (
    CacheMode,
    Explanation,
    GenerateAccepted,
    GenerateFinished,
    GenerateStarted,
    HitTier,
    LookupDecision,
    OrchestratorCapabilities,
    Provenance,
)
from skipstone_shared.orchestration_answer_messages import orchestrator_capabilities_to_message
from skipstone_shared.orchestration_messages import event_to_messages


@dataclasses.dataclass
class Model:
    """The model behind a scripted orchestrator; what it is may change at any time."""

    model_id: str = "model-1"
    weights: str = "w1"
    may_explain: bool = True
    changes_after: int = 1_000
    refused: str = ""
    made: list[str] = dataclasses.field(default_factory=list)
    explained: int = 0

    def key(self, params: Any) -> str:
        return f"{self.weights}-{params.num_inference_steps}"

    def generate(self, request: Any, context: Any) -> Iterator[Any]:
        if len(self.made) == self.changes_after:
            self.weights = "w2"
        if request.params.prompt == self.refused:
            raise Internal("no luck")
        self.made.append(request.params.prompt)
        provenance = Provenance(
            "r", HitTier.MISS, "NO_CANDIDATE", 8, 8, 1, CacheMode.READ_WRITE, "1"
        )
        told = dataclasses.replace(provenance, compatibility_key=self.key(request.params))
        events = (
            GenerateAccepted("r", GenerationParams(request.params.prompt, seed=1)),
            GenerateStarted(HitTier.MISS, 0, 8),
            Artifact("image/png", self.weights.encode(), 64, 64),
            GenerateFinished(told),
        )
        return (message for event in events for message in event_to_messages(event))

    def explain(self, request: Any, context: Any) -> Any:
        self.explained += 1
        if not self.may_explain:
            raise PermissionDenied("read")
        if self.weights == "small" and request.params.num_inference_steps > 8:
            raise InvalidArgument("too many", field="params.num_inference_steps")
        decision = LookupDecision(HitTier.MISS, "CACHE_OFF", "1", self.key(request.params), "")
        return explanation_to_message(
            Explanation(GenerationParams("a"), decision, "", 8, CacheMode.OFF)
        )

    def tell(self, request: Any, context: Any) -> Any:
        return orchestrator_capabilities_to_message(
            OrchestratorCapabilities("1", "1", CacheMode.READ_WRITE, 100, self.model_id)
        )


@pytest.fixture(autouse=True)
def _silent_server() -> Iterator[None]:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield
    structlog.reset_defaults()


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def target(model: Model) -> Iterator[str]:
    servicer = FakeOrchestrator(
        Generate=model.generate, Explain=model.explain, GetCapabilities=model.tell
    )
    with serving(servicer) as found:
        yield found


@pytest.fixture
def words(target: str, tmp_path: Path) -> list[str]:
    file = tmp_path / "prompts.txt"
    file.write_text("a\nb\n")
    where = ["--target", target, "--out", str(tmp_path / "out")]
    return ["generate", "--file", str(file), *where, "--steps", "8"]


def run(*words: str) -> Result:
    return CliRunner().invoke(build_app(), words, env={"COLUMNS": "400"})


def outcomes(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "out" / MANIFEST).open()]


def test_the_manifest_tells_who_made_a_row_and_with_which_options(
    model: Model, target: str, words: list[str], tmp_path: Path
) -> None:
    (tmp_path / "mask.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    assert run(*words, "--namespace", "mine", "--mask", str(tmp_path / "mask.png")).exit_code == 0
    for told in outcomes(tmp_path):
        assert (told["target"], told["model_id"]) == (target, "model-1")
        assert len(told["references"]["mask"][0]) == 64
        mask = str(tmp_path / "mask.png")
        assert told["options"] == {"namespace": "mine", "steps": 8, "mask": mask}


def test_the_same_command_counts_what_is_done_and_asks_once_for_equal_runs(
    model: Model, words: list[str]
) -> None:
    run(*words)
    again = run(*words)
    assert again.exit_code == 0
    assert "2 of 2 done, 2 of them before" in again.stdout
    assert (sorted(model.made), model.explained) == (["a", "b"], 1)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ("weights", "what the model runs with (key w2-8, was w1-8)"),
        ("model", "model model-2, was model-1"),
        ("address", "target "),
        ("options", "steps 9, was 8; shift 3.0, was not given"),
        ("namespace", "namespace mine, was not given"),
    ],
)
def test_what_is_not_as_it_was_stops_a_batch_and_is_told_with_what_to_do(
    model: Model, words: list[str], tmp_path: Path, changed: str, said: str
) -> None:
    assert run(*words).exit_code == 0
    match changed:
        case "weights":
            model.weights = "w2"
        case "model":
            model.model_id = "model-2"
        case "address":
            port = words[words.index("--target") + 1].rpartition(":")[2]
            words += ["--target", f"localhost:{port}"]
        case "options":
            words += ["--steps", "9", "--shift", "3"]
        case "namespace":
            words += ["--namespace", "mine"]
    stopped = run(*words)
    assert stopped.exit_code == 1
    assert said in stopped.stderr
    assert "(2 of 2 rows)" in stopped.stderr
    for way in ("--out", "--if-changed keep", "--if-changed again"):
        assert way in stopped.stderr
    assert len(model.made) == 2

    kept = run(*words, "--if-changed", "keep")
    assert "2 of 2 done, 2 of them before" in kept.stdout
    assert len(model.made) == 2
    again = run(*words, "--if-changed", "again")
    assert again.exit_code == 0
    assert len(model.made) == 4
    assert run(*words).exit_code == 0
    assert len(model.made) == 4
    assert len(outcomes(tmp_path)) == 2
    assert len(list((tmp_path / "out").glob("*.png"))) == 2


def test_another_content_of_a_file_that_options_name_is_told(
    words: list[str], tmp_path: Path
) -> None:
    image = tmp_path / "image.png"
    image.write_bytes(b"\x89PNG\r\n\x1a\n1")
    assert run(*words, "--image", str(image)).exit_code == 0
    image.write_bytes(b"\x89PNG\r\n\x1a\n2")
    assert "the content of a file" in run(*words, "--image", str(image)).stderr


def test_a_model_that_has_no_such_run_is_another_one(model: Model, words: list[str]) -> None:
    run(*words, "--steps", "9")
    model.weights = "small"
    stopped = run(*words, "--steps", "9")
    assert stopped.exit_code == 1
    assert "what the model runs with (key none, was w1-9)" in stopped.stderr


def test_a_model_that_changes_while_a_batch_runs_is_told_at_its_end_and_by_the_next_run(
    model: Model, words: list[str], tmp_path: Path
) -> None:
    model.changes_after = 2
    (tmp_path / "prompts.txt").write_text("a\nb\nc\n")
    first = run(*words, "--concurrency", "1")
    assert first.exit_code == 0
    assert "changed on the way: 1 rows were made otherwise" in first.stdout
    next_run = run(*words)
    assert next_run.exit_code == 1
    assert "(2 of 3 rows)" in next_run.stderr
    again = run(*words, "--if-changed", "again")
    assert "3 of 3 done, 1 of them before" in again.stdout
    assert "otherwise" not in again.stdout


def test_what_fails_when_it_is_made_anew_is_done_as_before_and_made_by_the_next_run(
    model: Model, words: list[str], tmp_path: Path
) -> None:
    run(*words)
    model.weights, model.refused = "w2", "b"
    failed = run(*words, "--if-changed", "again")
    assert failed.exit_code == 1
    assert "row 2" in failed.stderr
    a, b = sorted(outcomes(tmp_path)[-2:], key=lambda told: told["row"])
    assert (a["status"], a["error"], b["status"], b["reason"]) == ("done", "", "done", "INTERNAL")
    assert (tmp_path / "out" / b["file"]).read_bytes() == b"w1"
    assert "2 of 2 done, 2 of them before" in run(*words, "--if-changed", "keep").stdout
    assert "(1 of 2 rows)" in run(*words).stderr
    model.refused = ""
    assert "1 of them before" in run(*words, "--if-changed", "again").stdout
    assert sorted(model.made) == ["a", "a", "b", "b"]


def test_rows_that_are_new_in_the_file_are_no_change(
    model: Model, words: list[str], tmp_path: Path
) -> None:
    run(*words)
    (tmp_path / "prompts.txt").write_text("c\na\nb\n")
    assert "3 of 3 done, 2 of them before" in run(*words).stdout
    assert model.made[2:] == ["c"]


def test_a_model_that_is_not_told_is_known_by_what_it_runs_with(
    model: Model, words: list[str]
) -> None:
    run(*words)
    model.model_id = ""  # as when no executor answers in time
    assert "2 of them before" in run(*words).stdout
    model.weights = "w2"
    assert "what the model runs with" in run(*words).stderr


def test_a_caller_that_may_not_ask_goes_by_the_name_of_the_model(
    model: Model, words: list[str]
) -> None:
    model.may_explain = False
    run(*words)
    assert "2 of them before" in run(*words).stdout
    model.model_id = "model-2"
    assert "model model-2, was model-1" in run(*words).stderr
