"""The command line against real services."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.generations import PROMPT, STEPS, generate, is_saved
from tests.e2e.processes import START_TIMEOUT_S, Cluster, service_environment, wait_until

from skipstone_client import OrchestratorClient
from skipstone_shared.orchestration import HitTier

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


class CommandLine:
    """Runs `skipstone` against a cluster, in a namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._where = ("--target", cluster.targets["orchestrator"], "--namespace", namespace)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "skipstone_client", *words, *self._where],
            capture_output=True,
            text=True,
            timeout=60.0,
            env=service_environment(),
            check=False,
        )

    def json(self, *words: str) -> Any:
        ended = self.run(*words, "--json")
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)


@pytest.fixture
def skipstone(cluster: Cluster, namespace: str) -> CommandLine:
    return CommandLine(cluster, namespace)


def test_a_picture_is_written_and_its_entry_is_listed_shown_and_deleted(
    cluster: Cluster, skipstone: CommandLine, namespace: str, tmp_path: Path
) -> None:
    out = tmp_path / "picture.png"
    words = ("generate", PROMPT, "--seed", "1", "--steps", str(STEPS), "--out", str(out))
    ended = skipstone.run(*words)
    assert ended.returncode == 0, ended.stderr
    assert out.read_bytes() == generate(cluster.client, namespace).artifact.data
    assert "miss" in ended.stdout
    again = skipstone.json(*words)
    assert again["provenance"]["tier"] == "exact"

    entry_id = again["provenance"]["donor_entry_id"]
    wait_until(lambda: is_saved(cluster, namespace, entry_id), "the entry is saved")
    (listed,) = skipstone.json("entries", "list")["entries"]
    assert (listed["entry_id"], listed["prompt"]) == (entry_id, PROMPT)
    assert skipstone.json("entries", "show", entry_id)["seed"] == 1
    assert skipstone.json("stats")["entry_count"] == 1
    assert skipstone.json("entries", "delete", entry_id) == {entry_id: True}
    assert skipstone.json("entries", "list")["entries"] == []
    missing = skipstone.run("entries", "show", entry_id)
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("generate", ""), "prompt"),
        (("generate", PROMPT, "--steps", "0"), "num_inference_steps"),
        (("generate", PROMPT, "--cache-mode", "sometimes"), "cache-mode"),
        (("generate", PROMPT, "--guidance", "nan"), "guidance_scale"),
        (("generate", PROMPT, "--out", "/no/such/folder/x.png"), "--out"),
    ],
)
def test_bad_input_is_exit_code_2_and_names_what_is_wrong(
    skipstone: CommandLine, words: tuple[str, ...], said: str
) -> None:
    ended = skipstone.run(*words)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_orchestrator_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "skipstone_client", "stats", "--target", "127.0.0.1:1"],
        capture_output=True,
        text=True,
        timeout=60.0,
        env=service_environment(),
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "skipstone up" in ended.stderr


@pytest.mark.long
def test_skipstone_up_serves_and_ctrl_c_leaves_no_child(tmp_path: Path, tiny_model: Path) -> None:
    command = [sys.executable, "-m", "skipstone_client", "up", "--free-ports", "--json"]
    with subprocess.Popen(
        [*command, "--data-dir", str(tmp_path / "data"), "--model", str(tiny_model)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=service_environment(),
        start_new_session=True,
    ) as up:
        assert up.stdout is not None
        target = next(t for line in up.stdout if (t := orchestrator_target(line)))
        children = children_of(up.pid)
        assert len(children) == 6
        with OrchestratorClient(target) as client:
            assert generate(client, "").provenance.tier is HitTier.MISS
        os.killpg(up.pid, signal.SIGINT)
        rest = up.stdout.read()
        assert up.wait(START_TIMEOUT_S) == 0, rest
    for pid in children:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def orchestrator_target(line: str) -> str:
    """The orchestrator's target when the line tells that all services are ready."""
    try:
        fields = json.loads(line)
    except json.JSONDecodeError:
        return ""
    if not isinstance(fields, dict):
        return ""
    targets = fields.get("targets")
    return str(targets["orchestrator"]) if isinstance(targets, dict) else ""


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]
