"""The checker of traces can fail, and says where."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.golden.check_traces import DEFAULT_FILE, checks_of, main, verdict_on

TRACES = json.loads(DEFAULT_FILE.read_text())
TOY_RUN = "n28/F1B0_W4_R0.24_MC3"
TOY_GUIDED = "n28/cfg_F1B0_W4_R0.24_MC3"
FLUX_RUN = "F1B0_W4_R0.24_MC3"

Run = dict[str, Any]
Tampering = Callable[[Run], None]


def toy_file(*names: str) -> dict[str, Any]:
    toy = TRACES["toy"]
    return {"toy": {"spec": toy["spec"], "runs": {n: copy.deepcopy(toy["runs"][n]) for n in names}}}


def flux_file() -> dict[str, Any]:
    flux = copy.deepcopy(TRACES["diffusers"]["models"]["Flux"])
    flux["runs"] = {FLUX_RUN: flux["runs"][FLUX_RUN]}
    flux["profiles"] = {}
    return {"diffusers": {"spec": TRACES["diffusers"]["spec"], "models": {"Flux": flux}}}


def verdicts(traces: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: verdict_on(name, check) for name, check in checks_of(traces)}


def _another_block(run: Run) -> None:
    run["blocks_run"][5] = "110000"


def _another_output(run: Run) -> None:
    run["out_probe"][7][1] += 3e-9


def _another_error(run: Run) -> None:
    run["rel_l1_per_call"][7] += 3e-9


def _another_step(run: Run) -> None:
    run["contexts"][0]["cached_steps"].remove(9)


def _another_difference(run: Run) -> None:
    run["contexts"][0]["residual_diffs"]["9"] *= 1.0001


def _another_length(run: Run) -> None:
    run["contexts"][0]["executed_steps"] += 1


@pytest.mark.parametrize(
    ("tamper", "what"),
    [
        (_another_block, {"what": "blocks_run", "step": 5, "branch": "cond"}),
        (_another_output, {"what": "out_probe", "step": 7, "branch": "cond"}),
        (_another_error, {"what": "rel_l1_per_call", "step": 7, "branch": "cond"}),
        (_another_step, {"what": "decision", "step": 9, "expected": "computed", "got": "reused"}),
        (_another_difference, {"what": "residual_diff", "step": 9, "branch": "cond"}),
        (_another_length, {"what": "executed_steps", "expected": 29, "got": 28}),
    ],
)
def test_a_tampered_toy_run_differs_where_it_was_tampered_with(
    tamper: Tampering, what: dict[str, Any]
) -> None:
    traces = toy_file(TOY_RUN)
    tamper(traces["toy"]["runs"][TOY_RUN])
    (line,) = verdicts(traces).values()
    assert line["verdict"] == "differs"
    assert what.items() <= line["first_difference"].items()


def test_the_branch_of_a_difference_is_named() -> None:
    traces = toy_file(TOY_GUIDED)
    traces["toy"]["runs"][TOY_GUIDED]["contexts"][0]["cfg_cached_steps"].append(7)
    (line,) = verdicts(traces).values()
    assert line["first_difference"]["step"] == 7
    assert line["first_difference"]["branch"] == "uncond"


def _flux_step(flux: Run) -> None:
    flux["runs"][FLUX_RUN]["contexts"][0][0]["cached_steps"].remove(10)


def _flux_difference(flux: Run) -> None:
    flux["runs"][FLUX_RUN]["contexts"][0][0]["residual_diffs"]["5"] += 2e-4


def _flux_calls(flux: Run) -> None:
    flux["runs"][FLUX_RUN]["block_calls"] += 1


def _flux_final(flux: Run) -> None:
    flux["runs"][FLUX_RUN]["final"]["first8"][3] += 5e-4


@pytest.mark.parametrize(
    ("tamper", "what"),
    [
        (_flux_step, {"what": "decision", "step": 10}),
        (_flux_difference, {"what": "residual_diff", "step": 5}),
        (_flux_calls, {"what": "block_calls", "expected": 269, "got": 268}),
        (_flux_final, {"what": "final value 3"}),
    ],
)
def test_a_tampered_model_run_differs_where_it_was_tampered_with(
    tamper: Tampering, what: dict[str, Any]
) -> None:
    traces = flux_file()
    tamper(traces["diffusers"]["models"]["Flux"])
    lines = verdicts(traces)
    assert lines["Flux/uncached"]["verdict"] == "ok"
    assert lines[f"Flux/{FLUX_RUN}"]["verdict"] == "differs"
    assert what.items() <= lines[f"Flux/{FLUX_RUN}"]["first_difference"].items()


def test_a_model_with_other_weights_differs_before_its_runs_do() -> None:
    traces = flux_file()
    traces["diffusers"]["models"]["Flux"]["model_config"]["num_single_layers"] += 1
    assert verdicts(traces)["Flux/uncached"]["verdict"] == "differs"


def test_a_decision_next_to_the_threshold_is_noted_and_not_held_against_the_run() -> None:
    traces = flux_file()
    run = traces["diffusers"]["models"]["Flux"]["runs"][FLUX_RUN]
    # Computed at step 6 with a difference of 0.2681: with this threshold it would be reused.
    run["config"]["residual_diff_threshold"] = 0.26815
    line = verdicts(traces)[f"Flux/{FLUX_RUN}"]
    assert line["verdict"] == "ok"
    assert line["note"]["step"] == 6


def test_a_decision_far_from_the_threshold_is_held_against_the_run() -> None:
    traces = flux_file()
    run = traces["diffusers"]["models"]["Flux"]["runs"][FLUX_RUN]
    run["config"]["residual_diff_threshold"] = 0.2685
    line = verdicts(traces)[f"Flux/{FLUX_RUN}"]
    assert line["verdict"] == "differs"
    assert line["first_difference"]["step"] == 6


def test_a_tampered_mask_differs() -> None:
    lines = verdicts({"masks": {"9": {"fast": "111101011"}}})
    assert lines["masks/9/fast"]["verdict"] == "differs"


def test_a_broken_run_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = toy_file(TOY_RUN, TOY_GUIDED)
    del traces["toy"]["runs"][TOY_RUN]["out_probe"]
    path = tmp_path / "traces.json"
    path.write_text(json.dumps(traces))
    assert main([str(path)]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["verdict"] for line in lines] == ["differs", "ok"]
    assert "out_probe" in lines[0]["first_difference"]["error"]


def test_what_is_not_supported_says_why_and_does_not_count_as_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = toy_file(TOY_RUN)
    traces["toy"]["runs"][TOY_RUN]["config"]["downsample_factor"] = 2
    path = tmp_path / "traces.json"
    path.write_text(json.dumps(traces))
    assert main([str(path)]) == 0
    line = json.loads(capsys.readouterr().out)
    assert line["verdict"] == "unsupported"
    assert "downsample_factor" in line["first_difference"]["reason"]


@pytest.mark.parametrize("text", [None, "{"])
def test_a_file_that_cannot_be_read_is_one_line_and_no_traceback(
    text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "traces.json"
    if text is not None:
        path.write_text(text)
    assert main([str(path)]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"check-traces: {path} cannot be read: ")
    assert told.count("\n") == 1
