"""Ranks that share a request decide alike, with each other and with nobody else."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.denoise.blockcache.parallel_ranks import result_file, run_rank

PATIENCE_S = 100.0
"""For starting processes on a busy machine; a collective that hangs fails sooner by itself."""

Ranks = list[Mapping[str, Any]]


def results_of(world: int, folder: Path) -> Ranks:
    """Runs as many processes as given, and collects what each of them wrote."""
    # The server imports torch once and every rank is a fork of it.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed"])
    processes = [
        context.Process(target=run_rank, args=(rank, world, folder), daemon=True)
        for rank in range(world)
    ]
    for process in processes:
        process.start()
    deadline = time.monotonic() + PATIENCE_S
    for process in processes:
        process.join(max(deadline - time.monotonic(), 0.0))
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    assert codes == [0] * world
    return [json.loads(result_file(folder, rank).read_text()) for rank in range(world)]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    return results_of(2, tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    return results_of(4, tmp_path_factory.mktemp("four"))


def check_parts(ranks: Ranks) -> None:
    """Parts of a sequence decide as the whole does, and compute what it computes."""
    for rank in ranks:
        whole, together = rank["whole"], rank["together"]
        assert together["reused"] == whole["reused"]
        for mine, wanted in zip(together["diffs"], whole["diffs"], strict=True):
            assert mine == pytest.approx(wanted, nan_ok=True)
        part = slice(*rank["part"])
        outputs, wanted = torch.tensor(together["outputs"]), torch.tensor(whole["outputs"])
        assert torch.allclose(outputs, wanted[:, :, part], rtol=0, atol=1e-12)


def test_parts_of_a_sequence_decide_as_the_whole_while_another_group_is_busy(four: Ranks) -> None:
    name = "sequence_beside_another_request"
    first, second, *others = (rank[name] for rank in four)
    check_parts([first, second])
    # Left to themselves the two would go apart, on different sides of the threshold at step 1.
    assert first["apart"]["reused"] != second["apart"]["reused"]
    assert 1 in second["apart"]["reused"][0]
    assert 1 not in first["apart"]["reused"][0]
    assert others[0]["rounds"] != others[1]["rounds"]
    decided = [[r["reused"] for r in other["rounds"]] for other in others]
    assert decided[0] == decided[1]


def test_parts_of_different_length_weigh_by_their_length(four: Ranks) -> None:
    check_parts([rank["sequence_in_uneven_parts"] for rank in four])


def test_guidance_branches_on_two_ranks_agree_if_they_are_a_group(two: Ranks) -> None:
    cond, uncond = (rank["guidance_on_two_ranks"] for rank in two)
    assert cond["together"]["reused"] == uncond["together"]["reused"]
    for diffs in zip(cond["together"]["diffs"], uncond["together"]["diffs"], strict=True):
        assert diffs[0] == pytest.approx(diffs[1], rel=0, abs=0, nan_ok=True)
    assert cond["apart"]["reused"] != uncond["apart"]["reused"]


def test_ranks_that_hold_the_same_decide_as_one_alone(two: Ranks) -> None:
    for rank in two:
        together, apart = (rank["the_same_on_two_ranks"][key] for key in ("together", "apart"))
        # Bit for bit; as text, because NaN stands where nothing was measured.
        assert json.dumps(together) == json.dumps(apart)


def test_each_request_of_a_batch_in_parts_decides_for_itself(two: Ranks) -> None:
    ranks = [rank["a_batch_in_parts"] for rank in two]
    check_parts(ranks)
    first, second = ranks[0]["whole"]["reused"]
    assert first != second


def test_a_rank_meets_no_other_where_a_rule_decides(two: Ranks) -> None:
    assert two[0]["rules_on_one_rank_only"] == {
        "warm-up": [[]],
        "static mask": [[1, 3, 5]],
        "threshold 1": [[1, 2, 3, 5]],
    }
