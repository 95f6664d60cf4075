"""Where a run first leaves what was recorded of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tests.golden.cached_calls import ObservedBranch
from torch import Tensor

DIFF_TOLERANCE = 1e-4
"""Float32 models: a residual difference may be off by so much, and so near the threshold a decision
may be the other one."""

FINAL_TOLERANCE = 1e-4
"""Float32 models: how far the final latents may be off, in their standard deviations. With equal
decisions, repeating the recorded runs is off by less than 1e-5."""

EXACT_TOLERANCE = 1e-9
"""Float64 toy: outputs, relative; residual differences are recorded with fewer digits."""

RECORDED_DIGITS = 1e-7

Difference = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """What a comparison found.

    Attributes:
        difference: Where the run first left the recorded one; None where it never did.
        note: A decision too near the threshold to be held against the run; what follows it was not
            compared.
    """

    difference: Difference | None = None
    note: Difference | None = None

    def __bool__(self) -> bool:
        """Whether the comparison ends here."""
        return self.difference is not None or self.note is not None

    def at(self, place: Mapping[str, Any]) -> Finding:
        """The same with more said about where it is."""
        return Finding(
            difference=None if self.difference is None else {**place, **self.difference},
            note=None if self.note is None else {**place, **self.note},
        )


@dataclasses.dataclass(frozen=True, slots=True)
class DecisionRule:
    """How decisions are compared.

    Attributes:
        threshold: The run's `residual_diff_threshold`.
        diff_tolerance: How far measured differences may be off, absolute or relative, whichever is
            more.
        near: Distance from the threshold within which a decision may be the other one.
    """

    threshold: float
    diff_tolerance: float
    near: float


def compare_context(
    recorded: Mapping[str, Any],
    observed: Mapping[str, ObservedBranch],
    executed_steps: int,
    branches: Sequence[str],
    rule: DecisionRule,
) -> Finding:
    """Compares one transformer's steps, in the order in which they ran.

    Args:
        recorded: One entry of `contexts`.
        observed: What our cache did, by branch.
        executed_steps: Steps that our run made since it started last.
        branches: Names of a step's calls, in order.
        rule: How to compare.
    """
    if executed_steps != recorded["executed_steps"]:
        return _differs("executed_steps", {}, recorded["executed_steps"], executed_steps)
    for step in range(executed_steps):
        for branch in branches:
            found = _compare_step(
                recorded, observed.get(branch, ObservedBranch()), step, branch, rule
            )
            if found:
                return found
    return Finding()


def _compare_step(
    recorded: Mapping[str, Any],
    observed: ObservedBranch,
    step: int,
    branch: str,
    rule: DecisionRule,
) -> Finding:
    prefix = "cfg_" if branch == "uncond" else ""
    place = {"step": step, "branch": branch}
    expected_diff = recorded[f"{prefix}residual_diffs"].get(str(step))
    if expected_diff is not None and expected_diff <= 0.0:
        expected_diff = None  # The reference's marks for "not measured" are -1 and -0.
    diff = observed.residual_diffs.get(step)
    expected = "reused" if step in recorded[f"{prefix}cached_steps"] else "computed"
    got = "reused" if step in observed.reused_steps else "computed"
    if not _close_diffs(expected_diff, diff, rule.diff_tolerance):
        return _differs("residual_diff", place, expected_diff, diff)
    if expected == got:
        return Finding()
    measured = [value for value in (expected_diff, diff) if value is not None]
    details = {"recorded_diff": expected_diff, "diff": diff, "threshold": rule.threshold}
    difference = _differs("decision", place | details, expected, got)
    if any(abs(value - rule.threshold) <= rule.near for value in measured):
        return Finding(note=difference.difference)
    return difference


def _close_diffs(expected: float | None, got: float | None, tolerance: float) -> bool:
    if expected is None or got is None:
        return expected is got
    return abs(got - expected) <= tolerance * max(1.0, expected)


def compare_final(recorded: Mapping[str, Any], latents: Tensor) -> Finding:
    """Compares final latents with a recorded fingerprint."""
    got = fingerprint(latents)
    scale = float(recorded["std"]) * FINAL_TOLERANCE
    allowed = {"mean": scale, "std": scale, "abs_sum": recorded["abs_sum"] * FINAL_TOLERANCE}
    for key, tolerance in allowed.items():
        if not abs(got[key] - recorded[key]) <= tolerance:
            return _differs(f"final {key}", {}, recorded[key], got[key])
    for index, expected in enumerate(recorded["first8"]):
        if not abs(got["first8"][index] - expected) <= scale:
            return _differs(f"final value {index}", {}, expected, got["first8"][index])
    return Finding()


def fingerprint(latents: Tensor) -> dict[str, Any]:
    """Mean, standard deviation, sum of magnitudes and the first eight values."""
    return {
        "mean": float(latents.mean()),
        "std": float(latents.std()),
        "abs_sum": float(latents.abs().sum()),
        "first8": latents.flatten()[:8].tolist(),
    }


def relative_l1(values: Tensor, reference: Tensor) -> float:
    """`mean|values - reference| / mean|reference|`."""
    return float((values - reference).abs().mean() / reference.abs().mean())


def compare_numbers(
    what: str,
    place: Mapping[str, Any],
    recorded: Sequence[float],
    got: Sequence[float],
    tolerance: float,
) -> Finding:
    """Compares numbers, each relative to the recorded one or to 1, whichever is more."""
    for expected, value in zip(recorded, got, strict=True):
        if not abs(value - expected) <= tolerance * max(1.0, abs(expected)):
            return _differs(what, place, list(recorded), list(got))
    return Finding()


def compare_exactly(what: str, place: Mapping[str, Any], recorded: Any, got: Any) -> Finding:
    """Compares what has no noise."""
    return Finding() if recorded == got else _differs(what, place, recorded, got)


def _differs(what: str, place: Mapping[str, Any], expected: Any, got: Any) -> Finding:
    return Finding(difference={"what": what, **place, "expected": expected, "got": got})
