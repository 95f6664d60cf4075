"""How a recorded run is repeated: its options as settings of the block cache.

The names of the options are cache-dit's. Requests are checked before they run; the recorded runs
go beyond what is accepted there (no middle block left, say), so the settings are made directly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from skipstone_denoise.blockcache.settings import DBCacheSettings, Forecast
from skipstone_denoise.blockcache.step_mask import compat_mask
from skipstone_shared.generation import ScmMaskPolicy

CALIBRATORS = {"taylorseer": False, "taylorseer_hidden": True}
"""Supported calibrators, and whether they forecast hidden states instead of the residual."""

KNOWN_OPTIONS = frozenset(
    {
        "Fn_compute_blocks",
        "Bn_compute_blocks",
        "max_warmup_steps",
        "warmup_interval",
        "max_cached_steps",
        "max_continuous_cached_steps",
        "residual_diff_threshold",
        "max_accumulated_residual_diff_threshold",
        "steps_computation_mask",
        "steps_computation_policy",
        "enable_separate_cfg",
        "cfg_compute_first",
        "cfg_diff_compute_separate",
        "force_refresh_step_hint",
        "force_refresh_step_policy",
        "num_inference_steps",
    }
)
POLICIES = {
    "slow": ScmMaskPolicy.SLOW,
    "medium": ScmMaskPolicy.MEDIUM,
    "fast": ScmMaskPolicy.FAST,
    "ultra": ScmMaskPolicy.ULTRA,
}


class Unsupported(Exception):
    """The run asks for something Skipstone does not have; the text says what."""


@dataclasses.dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run needs beside its model.

    Attributes:
        settings: Of every transformer, by its name.
        branches: Names of the calls that make one step of the cache, in order.
        step_limits: By transformer, the number of steps the reference was told. It starts over
            before a call once more than these were run.
        refresh_after_calls: The reference starts over before the call that follows so many since
            the last start; None: never.
        refresh_repeats: Whether it does so more than once.
    """

    settings: Mapping[str, DBCacheSettings]
    branches: tuple[str, ...]
    step_limits: Mapping[str, int]
    refresh_after_calls: int | None = None
    refresh_repeats: bool = False

    def starts_over(self, transformer: str, calls: int, refreshed: bool) -> bool:
        """Whether the reference starts over before its next call.

        Args:
            transformer: Which one is called.
            calls: Its calls since it started last.
            refreshed: Whether it has started over by `refresh_after_calls` before.
        """
        if calls == self.refresh_after_calls and (self.refresh_repeats or not refreshed):
            return True
        return -(-calls // len(self.branches)) > self.step_limits[transformer]


def plan_run(
    run: Mapping[str, Any], branches: tuple[str, ...], steps: Mapping[str, int]
) -> RunPlan:
    """The plan of a recorded run.

    Args:
        run: The run as recorded: `config`, `calibrator` and what came of it.
        branches: Names of the transformer's calls at one denoising step, in order.
        steps: Denoising steps of every transformer, by its name.

    Raises:
        Unsupported: Skipstone has no such option, or the reference failed.
    """
    if "error" in run:
        raise Unsupported(f"the reference failed: {run['error']}")
    if run.get("prune"):
        raise Unsupported("dynamic block pruning")
    config = run["config"]
    unknown = sorted(key for key in config if key not in KNOWN_OPTIONS and config[key] is not None)
    if unknown:
        raise Unsupported(f"option {', '.join(unknown)}")
    masks = _masks_of(config, steps)
    limit = config.get("num_inference_steps")
    return RunPlan(
        settings={
            name: _settings(config, run.get("calibrator"), masks[name], len(branches))
            for name in steps
        },
        branches=_branches_of(config, branches),
        step_limits={
            name: limit if limit is not None and len(steps) == 1 else count
            for name, count in steps.items()
        },
        refresh_after_calls=config.get("force_refresh_step_hint"),
        refresh_repeats=config.get("force_refresh_step_policy") == "repeat",
    )


def _branches_of(config: Mapping[str, Any], branches: tuple[str, ...]) -> tuple[str, ...]:
    """What the reference takes for one step; what it was told may be wrong, in either direction."""
    separate = config.get("enable_separate_cfg")
    if separate is None:
        separate = len(branches) > 1
    if not separate:
        return branches[:1]
    return ("uncond", "cond") if config.get("cfg_compute_first") else ("cond", "uncond")


def _settings(
    config: Mapping[str, Any],
    calibrator: list[Any] | None,
    mask: tuple[bool, ...] | None,
    calls_of_step: int,
) -> DBCacheSettings:
    forecast, order, hidden = Forecast.REPEAT, 1, False
    if calibrator is not None:
        name, order = calibrator
        if name not in CALIBRATORS:
            raise Unsupported(f"calibrator {name}")
        forecast, hidden = Forecast.TAYLOR, CALIBRATORS[name]
    limit = config.get("max_accumulated_residual_diff_threshold")
    # With the unconditional call first, the reference has no difference yet that it could share.
    shares = not config.get("cfg_diff_compute_separate", True)
    shares = shares and not config.get("cfg_compute_first", False) and calls_of_step > 1
    return DBCacheSettings(
        fn_compute_blocks=config.get("Fn_compute_blocks", 8),
        bn_compute_blocks=config.get("Bn_compute_blocks", 0),
        max_warmup_steps=config.get("max_warmup_steps", 8),
        warmup_interval=config.get("warmup_interval", 1),
        max_cached_steps=config.get("max_cached_steps", -1),
        max_continuous_cached_steps=config.get("max_continuous_cached_steps", -1),
        residual_diff_threshold=config.get("residual_diff_threshold", 0.08),
        max_accumulated_residual_diff=limit if limit is not None and limit > 0.0 else None,
        forecast=forecast,
        taylor_order=order,
        forecast_hidden=hidden,
        steps_mask=mask,
        static_mask=mask is not None and config.get("steps_computation_policy") == "static",
        share_branch_diff=shares,
    )


def _masks_of(
    config: Mapping[str, Any], steps: Mapping[str, int]
) -> dict[str, tuple[bool, ...] | None]:
    """The step mask of every transformer.

    A dual model's mask is recorded for all steps together; the experts ran with the masks of the
    same policy for their own steps.
    """
    recorded = config.get("steps_computation_mask")
    if recorded is None:
        return dict.fromkeys(steps)
    mask = tuple(int(step) == 1 for step in recorded)
    if len(steps) == 1:
        return dict.fromkeys(steps, mask)
    for policy in POLICIES.values():
        if compat_mask(policy, len(mask)) == mask:
            return {name: compat_mask(policy, count) for name, count in steps.items()}
    raise Unsupported("a step mask for two experts that is none of the named policies")
