"""`skipstone calibrate` through real services, and an orchestrator that follows its file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.processes import Cluster, service_environment

from skipstone_shared.calibration import read_calibration
from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import HitTier

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PAIRS = """donor,prompt,relation
a red circle,a circle in red,reworded
a small square,a picture of a small square,reworded
a red circle,a blue circle,colour
"""


def calibrated(cluster: Cluster, folder: Path, *words: str) -> dict[str, Any]:
    pairs = folder / "pairs.csv"
    pairs.write_text(PAIRS)
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "skipstone_client", "calibrate", str(pairs), "--json"),
            *("--out", str(folder / "out"), "--steps", "5", "--full-steps", "5"),
            *("--levels", "0.8", "--plain-steps", "2", "--seeds", "2", "--seed-prompts", "1"),
            *("--embedding", cluster.targets["embedding"]),
            *("--denoise", cluster.targets["denoise"]),
            *words,
        ],
        capture_output=True,
        text=True,
        timeout=240.0,
        env=service_environment(),
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    told: dict[str, Any] = json.loads(ended.stdout)
    return told


def test_a_calibration_is_measured_goes_on_and_is_followed(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    assert calibrated(cluster, tmp_path, "--pairs", "1")["pairs"] == 1
    out = tmp_path / "out"
    begun = (out / "records.jsonl").read_text()
    assert calibrated(cluster, tmp_path, "--pairs", "3")["pairs"] == 3
    records = (out / "records.jsonl").read_text()
    assert records.startswith(begun)
    assert len(records.splitlines()) == 1 + 1 + 3, "settings, seeds and pairs"
    assert calibrated(cluster, tmp_path, "--refit")["pairs"] == 3
    assert (out / "records.jsonl").read_text() == records
    assert {path.name for path in out.iterdir()} == {
        *("records.jsonl", "calibration.json", "calibration.md", "calibration.png")
    }
    found = read_calibration(out / "calibration.json")
    assert found.services.reranker_id.startswith("skipstone-gate/")
    assert "--levels 0.8" in found.measured.command
    assert "127.0.0.1" not in found.measured.command, "that is of this machine"
    assert found.edited_scores is not None
    assert found.edited_scores.n == 1
    assert {tier.same_seed for tier in found.tiers} == {False, True}
    assert not any(tier.open for tier in found.tiers), "of three pairs nothing can be said"
    flags = ("--calibration-file", str(out / "calibration.json"))
    with cluster.another_orchestrator(*flags) as client:
        first, second = (
            client.generate(
                GenerationParams(prompt, num_inference_steps=5, seed=seed), namespace=namespace
            ).provenance
            for prompt, seed in (("a red circle", 1), ("A red circle", 2))
        )
        assert first.tier is HitTier.MISS
        assert (second.tier, second.reason) == (HitTier.MISS, "TIERS_CLOSED")
