"""The settings that a sweep tries: a grid under the names of the field, presets, and own JSON."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from skipstone_shared.block_cache_json import block_cache_from_text
from skipstone_shared.generation import BlockCacheConfig, BlockCachePreset

SHARES_OF_FEWER_STEPS = (0.8, 0.65, 0.5, 0.4, 0.3, 0.2)
"""How many of a run's steps the plain runs have that a sweep compares with."""

_OFF = BlockCacheConfig(preset=BlockCachePreset.NONE)
_LABELS = {
    "Fn_compute_blocks": "F",
    "Bn_compute_blocks": "B",
    "max_warmup_steps": "warm-up",
    "max_continuous_cached_steps": "in a row",
    "residual_diff_threshold": "threshold",
    "scm_steps_mask_policy": "mask",
}
_ORDER = (
    *_LABELS,
    "scm_steps_policy",
    "enable_taylorseer",
    "taylorseer_order",
    "enable_divided_difference",
)
_STATIC_SUFFIX = "-static"


class Kind(Enum):
    """What a run of a sweep is there for."""

    FULL = "full"
    FEWER_STEPS = "fewer steps"
    BLOCK_CACHE = "block cache"


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One point of a sweep.

    Attributes:
        kind: What it is there for.
        label: Its name for people.
        config: Block caching of its runs.
        text: What `--cache-config` takes for the same; empty where nothing is cached.
        steps: Number of steps, where it is not the sweep's.
    """

    kind: Kind
    label: str
    config: BlockCacheConfig = _OFF
    text: str = ""
    steps: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Grid:
    """Values to combine, each with each. An empty axis leaves the option at its default.

    Even without any values there is one setting, that of the defaults.

    Attributes:
        thresholds: `residual_diff_threshold`.
        fn: `Fn_compute_blocks`.
        bn: `Bn_compute_blocks`.
        warmup: `max_warmup_steps`.
        max_continuous: `max_continuous_cached_steps`.
        forecasts: `off`, or how the residual is forecast: `1` and `2` by TaylorSeer of that order,
            `dd1` and `dd2` by divided differences.
        masks: `scm_steps_mask_policy`; with `-static` behind it, the mask alone decides and no
            threshold is tried.
    """

    thresholds: Sequence[float] = ()
    fn: Sequence[int] = ()
    bn: Sequence[int] = ()
    warmup: Sequence[int] = ()
    max_continuous: Sequence[int] = ()
    forecasts: Sequence[str] = ("off",)
    masks: Sequence[str] = ("none",)

    def settings(self) -> list[Setting]:
        """All combinations.

        Raises:
            InvalidArgument: a value is none that the option may have.
        """
        axes = [
            [_mask_options(mask) for mask in self.masks],
            [_forecast_options(forecast) for forecast in self.forecasts],
            # Never left out: settings that say nothing mean that nothing is cached.
            _axis("Fn_compute_blocks", self.fn or (1,)),
            _axis("Bn_compute_blocks", self.bn),
            _axis("max_warmup_steps", self.warmup),
            _axis("max_continuous_cached_steps", self.max_continuous),
            _axis("residual_diff_threshold", self.thresholds),
        ]
        found: dict[str, Mapping[str, Any]] = {}
        for parts in itertools.product(*axes):
            options: dict[str, Any] = {}
            for part in parts:
                options |= part
            if options.get("scm_steps_policy") == "static":
                # What differs in the threshold alone is then the same setting.
                options.pop("residual_diff_threshold", None)
            ordered = {name: options[name] for name in _ORDER if name in options}
            found.setdefault(_as_text(ordered), ordered)
        varied = _varied(list(found.values()))
        return [from_text(text, _label(options, varied)) for text, options in found.items()]


def full_run() -> Setting:
    """The run that all others are compared with."""
    return Setting(Kind.FULL, "full run")


def full_run_again() -> Setting:
    """The same once more: what differs then is not the settings' doing."""
    return Setting(Kind.FULL, "full run again")


def fewer_steps(num_inference_steps: int, shares: Sequence[float]) -> list[Setting]:
    """Plain runs of fewer steps, most steps first.

    Args:
        num_inference_steps: Steps of the full run.
        shares: Shares of them, 0 to 1.
    """
    counts = {max(round(num_inference_steps * share), 1) for share in shares}
    return [
        Setting(Kind.FEWER_STEPS, f"{steps} steps", steps=steps)
        for steps in sorted(counts - {num_inference_steps}, reverse=True)
    ]


def preset_settings() -> list[Setting]:
    """All presets that cache something."""
    names = [preset.value for preset in BlockCachePreset if preset is not BlockCachePreset.NONE]
    return [from_text(name, f"preset {name}") for name in names]


def from_text(text: str, label: str = "") -> Setting:
    """A setting as a user writes it.

    Args:
        text: A preset's name, or options as JSON.
        label: Its name for people; the text itself when empty.

    Raises:
        InvalidArgument: the text stands for no setting.
    """
    return Setting(Kind.BLOCK_CACHE, label or text, block_cache_from_text(text), text)


def _as_text(options: Mapping[str, Any]) -> str:
    return json.dumps(options, separators=(",", ":"))


def _varied(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Options in which settings differ; what all have in common need not be in their names."""
    varied = [name for name in _ORDER if len({options.get(name) for options in settings}) > 1]
    return varied or list(_ORDER)


def _axis(name: str, values: Sequence[float]) -> list[dict[str, Any]]:
    return [{name: value} for value in values] or [{}]


def _forecast_options(forecast: str) -> dict[str, Any]:
    if forecast == "off":
        return {}
    order = forecast.removeprefix("dd")
    switch = "enable_taylorseer" if forecast == order else "enable_divided_difference"
    return {switch: True, "taylorseer_order": int(order)}


def _mask_options(mask: str) -> dict[str, Any]:
    if mask == "none":
        return {}
    policy = mask.removesuffix(_STATIC_SUFFIX)
    return {
        "scm_steps_mask_policy": policy,
        "scm_steps_policy": "static" if policy != mask else "dynamic",
    }


def _label(options: Mapping[str, Any], varied: Sequence[str]) -> str:
    words = [
        f"{_LABELS[name]} {options[name]}" for name in _LABELS if name in options and name in varied
    ]
    if options.get("scm_steps_policy") == "static":
        words.append("static")
    if "taylorseer_order" in options:
        is_exact = options.get("enable_divided_difference")
        words.append(f"{'divided' if is_exact else 'taylor'} {options['taylorseer_order']}")
    return ", ".join(words) or "defaults"
