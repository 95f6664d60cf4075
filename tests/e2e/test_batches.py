"""Files of prompts on the command line: stopped, killed and gone on with, against real services."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.generations import STEPS
from tests.e2e.processes import Cluster, service_environment, wait_until
from tests.e2e.test_command_line import CommandLine

from skipstone_client.batch.outputs import MANIFEST

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PROMPTS = [f"a small {shape} number {n}" for n in range(4) for shape in ("circle", "square")]


@pytest.fixture
def skipstone(cluster: Cluster, namespace: str) -> CommandLine:
    return CommandLine(cluster, namespace)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """Eight rows, each with a seed, so that whoever runs one twice gets an exact hit."""
    file = tmp_path / "prompts.jsonl"
    rows = [{"prompt": prompt, "seed": n, "steps": STEPS} for n, prompt in enumerate(PROMPTS)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def done(out: Path) -> dict[str, dict[str, Any]]:
    """Done rows of a manifest by prompt; a line that is not whole yet does not count."""
    manifest = out / MANIFEST
    text = manifest.read_text() if manifest.exists() else ""
    told = lines("".join(line for line in text.splitlines(keepends=True) if line[-1] == "\n"))
    return {line["prompt"]: line for line in told if line["status"] == "done"}


def test_a_file_of_prompts_becomes_a_folder_of_pictures_and_failed_rows_are_told(
    skipstone: CommandLine, tmp_path: Path
) -> None:
    file, out = tmp_path / "prompts.csv", tmp_path / "pictures"
    file.write_text(f"prompt,seed,steps,name\na circle,1,{STEPS},first\na square,2,100000,second\n")
    ended = skipstone.run("generate", "--file", str(file), "--out", str(out))
    assert ended.returncode == 1, ended.stderr
    assert "row 2" in ended.stderr
    assert "num_inference_steps" in ended.stderr
    assert "1 of 2 done" in ended.stdout
    assert (out / "first.png").read_bytes().startswith(b"\x89PNG")
    assert not (out / "second.png").exists()
    told = {line["row"]: line["status"] for line in lines((out / MANIFEST).read_text())}
    assert told == {1: "done", 2: "failed"}

    file.write_text(file.read_text().replace("100000", str(STEPS)))
    again = skipstone.run("generate", "--file", str(file), "--out", str(out), "--json")
    assert again.returncode == 0, again.stderr
    *rows, summary = lines(again.stdout)
    assert [line["prompt"] for line in rows] == ["a square"]
    counts = {"rows": 2, "done": 2, "failed": 0, "done_before": 1, "made_otherwise": 0}
    assert summary == {**counts, "out": str(out)}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_batch_that_was_ended_goes_on_without_running_a_done_row_again(
    cluster: Cluster,
    skipstone: CommandLine,
    namespace: str,
    prompts: Path,
    tmp_path: Path,
    number: signal.Signals,
) -> None:
    out = tmp_path / "pictures"
    words = ("generate", "--file", str(prompts), "--out", str(out), "--concurrency", "2")
    with started(cluster, namespace, *words) as batch:
        wait_until(lambda: len(done(out)) >= 2, "two rows are done")
        os.kill(batch.pid, number)
        _, said = batch.communicate(timeout=60)
    assert batch.returncode == (-number if number == signal.SIGKILL else 130), said
    before = done(out)
    assert len(before) < len(PROMPTS), "it was not ended in its middle"

    steps_before = cluster.client.get_stats(namespace).executed_steps
    ended = skipstone.run(*words, "--json")
    assert ended.returncode == 0, ended.stderr
    *rows, summary = lines(ended.stdout)
    assert summary["done_before"] == len(before)
    assert {row["prompt"] for row in rows} == set(PROMPTS) - before.keys()
    assert not list(out.glob("*.part"))
    ran = sum(row["provenance"]["executed_steps"] for row in rows)
    assert cluster.client.get_stats(namespace).executed_steps - steps_before == ran
    for prompt, line in done(out).items():
        assert line == before.get(prompt, line)
        assert (out / line["file"]).stat().st_size == line["size_bytes"]

    again = skipstone.run(*words, "--json")
    assert lines(again.stdout)[0]["done_before"] == len(PROMPTS)


def test_a_batch_waits_for_an_orchestrator_that_comes_back(
    cluster: Cluster, namespace: str, prompts: Path, tmp_path: Path
) -> None:
    out = tmp_path / "pictures"
    with started(
        cluster, namespace, "generate", "--file", str(prompts), "--out", str(out)
    ) as batch:
        wait_until(lambda: len(done(out)) >= 1, "a row is done")
        cluster.kill("orchestrator")
        cluster.restart("orchestrator")
        _, said = batch.communicate(timeout=120)
    assert batch.returncode == 0, said
    assert done(out).keys() == set(PROMPTS)


def test_an_orchestrator_that_stays_away_ends_a_batch_and_not_row_after_row(
    prompts: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "skipstone_client", "generate", "--file", str(prompts)]
    where = ["--out", str(tmp_path / "out"), "--target", "127.0.0.1:1", "--retry-for", "0"]
    ended = subprocess.run(
        [*command, *where],
        capture_output=True,
        text=True,
        timeout=60.0,
        env=service_environment(),
        check=False,
    )
    assert ended.returncode == 1
    assert "goes on with what is not done" in ended.stderr
    assert "skipstone up" in ended.stderr
    assert done(tmp_path / "out") == {}


def test_a_cache_is_warmed_once_and_then_answers_without_a_step(
    skipstone: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "prompts.csv"
    file.write_text("prompt,cache_mode\na circle,\na square,\na circle,read_only\n")
    words = ("warm", str(file), "--steps", str(STEPS), "--seed", "3")
    *rows, first = skipstone_json(skipstone, *words)
    assert [row["was_there"] for row in rows] == [False, False]
    counts = {"rows": 3, "there": 0, "warmed": 2, "repeated": 1, "failed": 0}
    assert counts.items() <= first.items()
    assert first["steps"] == 2 * STEPS
    assert first["stored_bytes"] > 0
    assert first["denoise_s"] > 0

    *_, second = skipstone_json(skipstone, *words)
    assert (second["there"], second["warmed"], second["steps"]) == (2, 0, 0)
    out = tmp_path / "picture.png"
    asked = ("generate", "a circle", "--seed", "3", "--steps", str(STEPS), "--out", str(out))
    assert skipstone.json(*asked)["provenance"]["tier"] == "exact"


def test_warming_runs_in_full_what_was_only_resumed(skipstone: CommandLine, tmp_path: Path) -> None:
    """A result that began from a donor donates nothing itself."""
    prompts = ["a small red circle on a blue background"]
    prompts += [f"there is {prompts[0]}"]
    out = str(tmp_path / "picture.png")
    options = ("--seed", "3", "--steps", str(STEPS))
    file = tmp_path / "prompts.txt"
    file.write_text(prompts[0])
    skipstone_json(skipstone, "warm", str(file), *options)
    resumed = skipstone.json("generate", prompts[1], *options, "--out", out)["provenance"]
    assert resumed["tier"] == "approximate"

    file.write_text("\n".join(prompts))
    *_, told = skipstone_json(skipstone, "warm", str(file), *options)
    assert (told["there"], told["warmed"], told["steps"]) == (1, 1, STEPS)
    *_, told = skipstone_json(skipstone, "warm", str(file), *options)
    assert told["there"] == 2


def test_warming_says_which_rows_could_not_be_stored(
    cluster: Cluster, skipstone: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("a circle\n")
    cluster.kill("latent_kv")
    ended = skipstone.run("warm", str(file), "--steps", str(STEPS), "--retry-for", "0")
    assert ended.returncode == 1
    assert "was not stored" in ended.stderr
    assert "latent_kv" in ended.stderr


def skipstone_json(skipstone: CommandLine, *words: str) -> list[dict[str, Any]]:
    ended = skipstone.run(*words, "--json")
    assert ended.returncode == 0, ended.stderr
    return lines(ended.stdout)


@contextmanager
def started(cluster: Cluster, namespace: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A command line that runs beside the test; killed when the test is over."""
    where = ("--target", cluster.targets["orchestrator"], "--namespace", namespace)
    process = subprocess.Popen(
        [sys.executable, "-m", "skipstone_client", *words, *where],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=service_environment(),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
