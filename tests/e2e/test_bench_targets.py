"""The benchmarks behind `make bench*` start, and those of the backends give their figures."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.processes import service_environment

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
TINY = {
    "latent_stores.py": "--backends lmdb lmdb+memory --mb 0.13 --rounds 1",
    "store_sizes.py": "--backends lmdb --entries 10 --opens 1 --reads 3",
    "indexes.py": "--backends hnswlib --entries 30 --queries 2",
    "overhead.py": "--stores lmdb --engines hnswlib --mb 0.13 --rounds 1",
}
"""What needs no server."""

FIGURES = {
    *("kv_get_ms", "kv_put_ms", "search_ms", "generate_overhead_ms"),
    *("store_open_ms", "entry_get_ms"),
}


def started_by(target: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The scripts that a target of the Makefile runs, with the variables that it sets for them."""
    told = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for line in told.stdout.splitlines():
        words = shlex.split(line)
        scripts = [word for word in words if re.fullmatch(r"bench/[\w/]+\.py", word)]
        if scripts:
            variables = [word.split("=", 1) for word in words if re.match(r"[A-Z]+=", word)]
            yield scripts[0], dict(variables)


def targets() -> list[str]:
    return re.findall(r"^(bench-\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


def test_a_tiny_run_of_every_backend_benchmark_gives_every_figure() -> None:
    """They broke once without anybody seeing it: nothing else starts them."""
    scripts = dict(started_by("bench-backends"))
    runs = {
        script: subprocess.Popen(
            [sys.executable, script, *TINY[Path(script).name].split()],
            cwd=ROOT,
            env=service_environment(**variables),
            stdout=subprocess.PIPE,
            text=True,
        )
        for script, variables in scripts.items()
    }
    assert len(runs) == len(TINY)
    lines = []
    for script, run in runs.items():
        printed, _ = run.communicate()
        assert run.returncode == 0, script
        lines += [json.loads(line) for line in printed.splitlines()]
    assert {line["figure"] for line in lines} == FIGURES
    assert {line["backend"] for line in lines} == {
        *("lmdb", "lmdb+memory", "hnswlib", "lmdb/hnswlib")
    }
    for line in lines:
        assert {"size", "p50", "p99", "cpu_ms", "n"} <= line.keys()
        assert line["n"] >= 1
        assert line["cpu_ms"] > 0


@pytest.mark.long
@pytest.mark.parametrize("target", targets())
def test_what_a_target_runs_starts(target: str) -> None:
    scripts = dict(started_by(target))
    assert scripts
    for script, variables in scripts.items():
        subprocess.run(
            [sys.executable, script, "--help"],
            cwd=ROOT,
            env=service_environment(**variables),
            stdout=subprocess.DEVNULL,
            check=True,
        )


@pytest.mark.long
@pytest.mark.parametrize("script", sorted(path.name for path in (ROOT / "bench").glob("bench_*")))
def test_a_benchmark_starts(script: str) -> None:
    """`make bench` runs all of them."""
    subprocess.run(
        [sys.executable, f"bench/{script}", "--help"],
        cwd=ROOT,
        env=service_environment(PYTHONPATH="models"),
        stdout=subprocess.DEVNULL,
        check=True,
    )


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "command",
    [
        "latent_stores.py --mb 0.13 --rounds 1",
        "store_sizes.py --entries 10 40 --opens 1 --reads 3",
        "indexes.py --entries 30 --queries 2",
        "overhead.py --stores redis --engines pgvector milvus-lite --mb 0.13 --rounds 1",
    ],
)
def test_every_backend_that_is_installed_is_measured(command: str) -> None:
    """What is not installed is left out, and said."""
    script, *arguments = shlex.split(command)
    run = subprocess.run(
        [sys.executable, f"bench/backends/{script}", *arguments],
        cwd=ROOT,
        env=service_environment(PYTHONPATH="bench"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    missing = re.findall(r"^(\S+) is not measured: ", run.stderr, flags=re.MULTILINE)
    assert lines or missing
    assert not {line["backend"] for line in lines} & set(missing)
