"""`skipstone blockcache sweep` through five real services."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.e2e.generations import PROMPT, STEPS
from tests.e2e.processes import Cluster, service_environment

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_a_sweep_measures_real_runs_and_leaves_nothing_behind(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    words = (
        *("blockcache", "sweep", PROMPT, "--steps", str(STEPS), "--out", str(tmp_path), "--json"),
        *("--thresholds", "0,1", "--fn", "1,9", "--max-continuous", "1", "--taylorseer", "off"),
        *("--no-presets", "--config", "balanced"),
        *("--target", cluster.targets["orchestrator"], "--namespace", namespace),
    )
    ended = subprocess.run(
        [sys.executable, "-m", "skipstone_client", *words],
        capture_output=True,
        text=True,
        timeout=240.0,
        env=service_environment(),
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert {one["reason"].split(":")[0] for one in told["refused"]} == {
        "params.block_cache.fn_compute_blocks"
    }
    assert len(told["refused"]) == 2
    never, every_other, _ = [row for row in told["rows"] if row["kind"] == "block cache"]
    full, again = [row for row in told["rows"] if row["kind"] == "full"]
    for same in (full, again, never):
        assert (same["rel_l1"], same["block_calls_share"]) == (0, 1)
    assert "residual_diff_threshold is 0" in never["notes"]
    # Four steps of warm-up, then every other one, in each of two branches.
    assert every_other["reused_steps"] == 2 * len(range(4, STEPS, 2))
    assert every_other["block_calls_share"] < 1
    assert every_other["rel_l1"] > 0
    assert cluster.client.list_entries(namespace).entries == ()
    assert {path.name for path in tmp_path.iterdir()} == {
        *("pictures", "pictures.png", "sweep.csv", "sweep.json", "sweep.png")
    }
