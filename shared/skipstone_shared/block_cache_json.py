"""Block-cache settings as the JSON that people already have <-> BlockCacheConfig.

Understood as they are: cache-dit's `DBCacheConfig` and `load_configs`, vLLM-Omni's `cache_config`,
SGLang's `cache_dit_params` and its environment variables (`SGLANG_CACHE_DIT_FN`), and the names of
Skipstone's own messages. Upper and lower case are the same. Whether values fit a model is checked
by the executor, which knows it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from enum import Enum
from itertools import groupby
from typing import Any

from skipstone_shared.block_cache_keys import (
    FIELDS,
    MASK,
    ONLY,
    SECONDARY,
    STEPS,
    SWITCH,
    WITHOUT_EFFECT,
    Entry,
    entries,
    shown,
)
from skipstone_shared.block_cache_values import read_boolean, read_choice, read_object
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import BlockCacheConfig, BlockCachePreset, ScmMaskPolicy

_DEFAULTS = BlockCacheConfig()


def block_cache_from_text(text: str) -> BlockCacheConfig:
    """Settings from a word or from JSON, as they stand on a command line or in a file.

    Args:
        text: A preset (`balanced`), or a JSON object.

    Raises:
        InvalidArgument: it is neither, or the JSON says what is not known or impossible.
    """
    text = text.strip()
    if text.startswith("{"):
        return parse_block_cache(text)
    try:
        return BlockCacheConfig(preset=BlockCachePreset(text.lower()))
    except ValueError:
        presets = ", ".join(preset.value for preset in BlockCachePreset)
        raise InvalidArgument(
            f"cache config {_short(text)} is neither a preset ({presets}) nor a JSON object such "
            'as {"Fn_compute_blocks": 1}',
            field="block_cache",
        ) from None


def parse_block_cache(source: str | Mapping[str, Any]) -> BlockCacheConfig:
    """Settings from a JSON object or its text. Null leaves a field unset.

    Options ask for caching, those that have no effect here too; an empty object asks for nothing.

    Raises:
        InvalidArgument: the text is no JSON object, a key is not known or given twice, or a value
            has the wrong type; names the key and what it may be.
    """
    values = _loaded(source) if isinstance(source, str) else source
    settings = list(entries(values))
    config = _config(settings, "")
    asked = any(entry.value is not None for entry in settings)
    return _switched(config, switch=True) if asked else config


def block_cache_as_json(config: BlockCacheConfig) -> dict[str, Any]:
    """The JSON object of settings: those that are set, under names that cache-dit's users know.

    `parse_block_cache` gives the same settings back.
    """
    values = {
        shown(name): _plain(value)
        for name in FIELDS
        if (value := getattr(config, name)) != getattr(_DEFAULTS, name)
    }
    if config.secondary is not None:
        values[SECONDARY] = block_cache_as_json(config.secondary)
    return values


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    return list(value) if isinstance(value, tuple) else value


def _loaded(text: str) -> Mapping[str, Any]:
    try:
        values = json.loads(text, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(
            f"cache config is not JSON: {error}", field="block_cache", allowed="a JSON object"
        ) from None
    return read_object("block_cache", values)


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        double = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {double!r} is given twice")
    return values


def _config(settings: Iterable[Entry], path: str) -> BlockCacheConfig:
    """The settings of one transformer, and with an empty path those of its secondary."""
    fields: dict[str, Any] = {}
    stated: dict[str, Any] = {}
    secondary: list[Entry] | None = None
    for entry in settings:
        if entry.value is None:
            continue
        if entry.of_secondary:
            secondary = [*(secondary or []), dataclasses.replace(entry, of_secondary=False)]
        elif entry.name == SECONDARY:
            inner = entries(read_object(entry.key, entry.value), f"{SECONDARY}.")
            secondary = [*(secondary or []), *inner]
        elif entry.name in (STEPS, SWITCH):
            read = WITHOUT_EFFECT[STEPS] if entry.name == STEPS else read_boolean
            _put(stated, entry, entry.name, read(entry.key, entry.value))
        else:
            for name, value in _fields_of(entry).items():
                _put(fields, entry, name, value)
    _check_steps(fields, stated.get(STEPS), path)
    if secondary is not None:
        if path:
            raise InvalidArgument(
                "cache config: secondary has a secondary of its own, and no model has a third "
                "transformer",
                field=f"{path}{SECONDARY}",
                allowed="unset",
            )
        fields[SECONDARY] = _config(secondary, f"{SECONDARY}.")
    return _switched(BlockCacheConfig(**fields), stated.get(SWITCH))


def _fields_of(entry: Entry) -> dict[str, Any]:
    """What an entry sets."""
    if entry.name == MASK:
        return _fields_of_mask(entry)
    if entry.name in FIELDS:
        return {entry.name: FIELDS[entry.name](entry.key, entry.value)}
    if entry.name in WITHOUT_EFFECT:
        WITHOUT_EFFECT[entry.name](entry.key, entry.value)
    elif not any(_same(entry.value, offered) for offered in ONLY[entry.name]):
        raise InvalidArgument(
            f"cache config: {entry.key} {_short(entry.value)} is not offered; leave it out",
            field=entry.key,
            allowed=" or ".join(json.dumps(offered) for offered in (*ONLY[entry.name], None)),
        )
    return {}


def _same(value: object, offered: str | bool) -> bool:
    if isinstance(value, str) and isinstance(offered, str):
        return value.lower() == offered.lower()
    return value is offered


def _fields_of_mask(entry: Entry) -> dict[str, Any]:
    """A step mask as bins, or as the policy that its name stands for."""
    mask = entry.value
    if isinstance(mask, str):
        return {"scm_steps_mask_policy": read_choice(ScmMaskPolicy)(entry.key, mask)}
    if not isinstance(mask, list | tuple) or any(step not in (0, 1) for step in mask):
        raise InvalidArgument(
            f"cache config: {entry.key} is {_short(mask)}",
            field=entry.key,
            allowed="a list of 1 (compute) and 0 (reuse), one per step, or the name of a policy",
        )
    runs = [(bool(computed), len(list(run))) for computed, run in groupby(mask)]
    if len(runs) < 2 or not runs[0][0]:
        raise InvalidArgument(
            f"cache config: {entry.key} is {_short(mask)}, which "
            + ("reuses nothing" if all(mask) else "reuses a first step that has no step before it"),
            field=entry.key,
            allowed="1 first and a 0 somewhere; preset none turns block caching off",
        )
    return {
        "compute_bins": tuple(length for computed, length in runs if computed),
        "cache_bins": tuple(length for computed, length in runs if not computed),
    }


def _put(values: dict[str, Any], entry: Entry, name: str, value: Any) -> None:
    if values.setdefault(name, value) != value:
        raise InvalidArgument(
            f"cache config: {entry.key} says {shown(name)} {_short(_plain(value))}, which is "
            f"already {_short(_plain(values[name]))} by another key; leave one out",
            field=entry.key,
        )


def _check_steps(fields: Mapping[str, Any], steps: int | None, path: str) -> None:
    covered = sum(fields.get("compute_bins", ())) + sum(fields.get("cache_bins", ()))
    if steps is not None and covered not in (0, steps):
        raise InvalidArgument(
            f"cache config: bins or step mask cover {covered} steps, but {path}{STEPS} is {steps}",
            field=f"{path}compute_bins",
            allowed=f"bins that sum to {steps}",
        )


def _switched(config: BlockCacheConfig, switch: bool | None) -> BlockCacheConfig:
    """Settings under a switch. Switched on with nothing else said, they are the defaults."""
    if switch is None:
        return config
    if not switch:
        return dataclasses.replace(config, preset=BlockCachePreset.NONE)
    return BlockCacheConfig(fn_compute_blocks=1) if config == _DEFAULTS else config


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
