"""The benchmark of the cache plane gives its figures: it must work on the day it is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.e2e.processes import service_environment

pytestmark = pytest.mark.e2e

BENCH = Path(__file__).parents[2] / "bench" / "bench_cacheplane.py"
TINY = "--entries 60 --mb 0.13 --measured 3 --rounds 2 --saves 1 --queries 4 --starts 1"
PARTS = "--only reads saves searches starts"
OF_THE_ISSUE = {
    "hit_cpu_ms",
    "hit_wall_ms",
    "miss_cpu_ms",
    "save_cpu_ms",
    "read_ratio_to_echo",
    "search_overhead_ms",
    "recall_at_10",
    "startup_s",
}


def test_a_tiny_run_gives_every_figure_with_its_limits_and_rivals() -> None:
    run = subprocess.run(
        [sys.executable, str(BENCH), *TINY.split(), *PARTS.split()],
        capture_output=True,
        text=True,
        env=service_environment(),
        check=False,
    )
    assert run.returncode == 0, run.stderr
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    ours = [line for line in lines if "rival" not in line and "limit" not in line]
    assert {line["figure"] for line in ours} >= OF_THE_ISSUE
    for line in lines:
        assert {"figure", "entries", "mb", "p50", "p99", "n"} <= line.keys()
        assert line["entries"] == 60
    assert {line.get("limit") for line in lines} >= {"LMDB", "gRPC stream", "memcpy", "hnswlib"}
    assert "FAISS HNSW + torch files" in {line.get("rival") for line in lines}
    # A partition this small is searched exactly.
    [recall] = [line for line in ours if line["figure"] == "recall_at_10"]
    assert recall["p99"] == 1.0
