"""The keys of block-cache JSON: what each is called elsewhere, and how its value is read."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from skipstone_shared.block_cache_values import (
    Reader,
    from_environment_text,
    read_bins,
    read_boolean,
    read_choice,
    read_integer,
    read_number,
    read_object,
)
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import (
    BlockCachePreset,
    ScmMaskPolicy,
    ScmMaskSource,
    ScmStepsPolicy,
    TaylorSeerCacheType,
)

FIELDS: Mapping[str, Reader] = {
    "preset": read_choice(BlockCachePreset),
    "fn_compute_blocks": read_integer,
    "bn_compute_blocks": read_integer,
    "max_warmup_steps": read_integer,
    "warmup_interval": read_integer,
    "max_cached_steps": read_integer,
    "max_continuous_cached_steps": read_integer,
    "residual_diff_threshold": read_number,
    "max_accumulated_residual_diff_threshold": read_number,
    "enable_taylorseer": read_boolean,
    "taylorseer_order": read_integer,
    "taylorseer_cache_type": read_choice(TaylorSeerCacheType),
    "enable_divided_difference": read_boolean,
    "scm_steps_mask_policy": read_choice(ScmMaskPolicy),
    "scm_steps_policy": read_choice(ScmStepsPolicy),
    "scm_mask_source": read_choice(ScmMaskSource),
    "compute_bins": read_bins,
    "cache_bins": read_bins,
    "cfg_diff_compute_separate": read_boolean,
    "report_residual_diffs": read_boolean,
}
"""Fields of BlockCacheConfig that hold one value."""

SECONDARY = "secondary"
MASK = "steps_computation_mask"
SWITCH = "enable_cache_dit"
STEPS = "num_inference_steps"

WITHOUT_EFFECT: Mapping[str, Reader] = {
    # The request's own number counts. Bins and masks are checked against this one.
    STEPS: read_integer,
    # Guidance branches are told apart by name, in whatever order they are called.
    "enable_separate_cfg": read_boolean,
    "cfg_compute_first": read_boolean,
    # The text stream is forecast whenever the model has one.
    "enable_encoder_taylorseer": read_boolean,
    "enable_encoder_calibrator": read_boolean,
}
"""Keys that say what Skipstone finds out by itself."""

ONLY: Mapping[str, tuple[str | bool, ...]] = {
    "cache_type": ("DBCache",),
    "calibrator_type": ("taylorseer",),
    "enable_dmd": (False,),
    "enable_foca": (False,),
    "force_refresh_step_hint": (),
    "force_refresh_step_policy": ("once", "repeat"),
}
"""Keys of which these values only are offered, or null."""

_ALIASES = {
    "scm_preset": "scm_steps_mask_policy",
    "scm_policy": "scm_steps_policy",
    "steps_computation_policy": "scm_steps_policy",
    "scm_compute_bins": "compute_bins",
    "scm_cache_bins": "cache_bins",
    "enable_calibrator": "enable_taylorseer",
    "calibrator_cache_type": "taylorseer_cache_type",
}
_SECTIONS = ("cache_config", "cache_dit_params", "calibrator_config")
_SHOWN = {"fn_compute_blocks": "Fn_compute_blocks", "bn_compute_blocks": "Bn_compute_blocks"}
_NAMES = (*FIELDS, *_ALIASES, SECONDARY, MASK, SWITCH, *WITHOUT_EFFECT, *ONLY, *_SECTIONS)

_ENVIRONMENT_PREFIX = "SGLANG_CACHE_DIT_"
_ENVIRONMENT = {
    "ENABLED": SWITCH,
    "FN": "fn_compute_blocks",
    "BN": "bn_compute_blocks",
    "WARMUP": "max_warmup_steps",
    "RDT": "residual_diff_threshold",
    "MC": "max_continuous_cached_steps",
    "TAYLORSEER": "enable_taylorseer",
    "TS_ORDER": "taylorseer_order",
    "SCM_PRESET": "scm_steps_mask_policy",
    "SCM_POLICY": "scm_steps_policy",
    "SCM_COMPUTE_BINS": "compute_bins",
    "SCM_CACHE_BINS": "cache_bins",
    "DMD": "enable_dmd",
}
_ENVIRONMENT_SECONDARY = _ENVIRONMENT_PREFIX + "SECONDARY_"
_ENVIRONMENT_NAMES = [
    prefix + name
    for prefix in (_ENVIRONMENT_PREFIX, _ENVIRONMENT_SECONDARY)
    for name in _ENVIRONMENT
]


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One setting of a JSON object.

    Attributes:
        key: As the caller wrote it, with the path to it.
        name: What it is called here.
        value: Its JSON value; None for null.
        of_secondary: Whether it is of the second transformer, though it stands outside.
    """

    key: str
    name: str
    value: Any
    of_secondary: bool = False


def shown(name: str) -> str:
    """The name under which a field is written: cache-dit's, where it has the field."""
    return _SHOWN.get(name, name)


def entries(values: Mapping[str, Any], path: str = "") -> Iterator[Entry]:
    """The settings of a JSON object, those of its sections included.

    Raises:
        InvalidArgument: a key that is not known, or a section that is no object.
    """
    for written, value in values.items():
        key, name = f"{path}{written}", str(written).lower()
        if name in _SECTIONS:
            yield from entries(read_object(key, value) if value is not None else {}, path)
        elif name.upper().startswith(_ENVIRONMENT_PREFIX):
            yield _environment_entry(key, name.upper(), value)
        elif name in _NAMES:
            yield Entry(key, _ALIASES.get(name, name), value)
        else:
            raise _unknown(key, str(written), [shown(each) for each in _NAMES])


def _environment_entry(key: str, variable: str, value: Any) -> Entry:
    if variable not in _ENVIRONMENT_NAMES:
        raise _unknown(key, variable, _ENVIRONMENT_NAMES)
    of_secondary = variable.startswith(_ENVIRONMENT_SECONDARY)
    prefix = _ENVIRONMENT_SECONDARY if of_secondary else _ENVIRONMENT_PREFIX
    name = _ENVIRONMENT[variable.removeprefix(prefix)]
    read = FIELDS.get(name, read_boolean)
    return Entry(key, name, from_environment_text(read, key, value), of_secondary)


def _unknown(key: str, written: str, known: list[str]) -> InvalidArgument:
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(written.lower(), by_lower, n=1)
    text = f"cache config: unknown key {key}"
    if near:  # The whole list would bury it.
        return InvalidArgument(f"{text}; did you mean {by_lower[near[0]]}?", field=key)
    return InvalidArgument(text, field=key, allowed=", ".join(known))
