"""Repeats the runs of the synthetic transformer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.golden.cached_calls import CachedCalls, CountedBlocks, cached_calls
from tests.golden.toy_transformer import ToyTransformer, toy_adapter
from tests.golden.trace_comparison import (
    EXACT_TOLERANCE,
    RECORDED_DIGITS,
    DecisionRule,
    Finding,
    compare_context,
    compare_exactly,
    compare_numbers,
    relative_l1,
)
from tests.golden.trace_plan import RunPlan, Unsupported, plan_run
from torch import Tensor

BRANCHES = {None: ("cond",), "separate": ("cond", "uncond"), "cfg_first": ("uncond", "cond")}
"""Calls of a step, in order, by the recorded `cfg_mode`."""

BRANCH_INDEX = {"cond": 0, "uncond": 1}


def check_toy_run(spec: Mapping[str, Any], run: Mapping[str, Any]) -> Finding:
    """Compares every call of a run: blocks that ran, output, error, and then the decisions.

    Raises:
        Unsupported: the run needs what Skipstone does not have.
    """
    branches = BRANCHES.get(run.get("cfg_mode"))
    if branches is None:
        raise Unsupported(f"cfg_mode {run['cfg_mode']}")
    n_steps = run["n_steps"]
    plan = plan_run(run, branches, {"transformer": n_steps})
    toy = ToyTransformer(spec, n_steps)
    adapter = toy_adapter()
    calls = cached_calls({"transformer": toy}, adapter, plan, [0])["transformer"]
    watch = CountedBlocks(toy, adapter)
    call_index = 0
    for step in range(n_steps):
        for branch in branches:
            inputs = {"step": step, "branch": BRANCH_INDEX[branch]}
            exact = toy(**inputs)
            watch.calls.clear()
            output = calls(**inputs)
            ran = "".join("1" if index in watch.calls else "0" for index in range(watch.count))
            place = {"step": step, "branch": branch}
            found = _compare_call(run, call_index, place, ran, output, exact)
            if found:
                return found
            call_index += 1
    return _compare_contexts(run, plan, calls)


def _compare_call(
    run: Mapping[str, Any],
    index: int,
    place: Mapping[str, Any],
    ran: str,
    output: Tensor,
    exact: Tensor,
) -> Finding:
    probe = [float(output[0, 0, 0]), float(output[0, 1, 2]), float(output.abs().mean())]
    error = [relative_l1(output, exact)]
    recorded_error = [run["rel_l1_per_call"][index]]
    return (
        compare_exactly("blocks_run", place, run["blocks_run"][index], ran)
        or compare_numbers("out_probe", place, run["out_probe"][index], probe, EXACT_TOLERANCE)
        or compare_numbers("rel_l1_per_call", place, recorded_error, error, EXACT_TOLERANCE)
    )


def _compare_contexts(run: Mapping[str, Any], plan: RunPlan, calls: CachedCalls) -> Finding:
    rule = DecisionRule(
        threshold=plan.settings["transformer"].residual_diff_threshold,
        diff_tolerance=RECORDED_DIGITS,
        near=0.0,
    )
    (recorded,) = run["contexts"]
    return compare_context(recorded, calls.observed(), calls.executed_steps, plan.branches, rule)
