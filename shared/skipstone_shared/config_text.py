"""Settings as text: `--help` and `--print-config`. Used by `config.py` only."""

from __future__ import annotations

import json
import textwrap
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr

from skipstone_shared.config_sources import CONFIG_ENV, env_name, flag_name, has_flag

if TYPE_CHECKING:
    from skipstone_shared.config import ServiceSettings

_WIDTH = 98
_INDENT = 6


def format_help(cls: type[ServiceSettings]) -> str:
    """Returns the text of `--help`: every field with meaning, default and variable."""
    lines = [f"usage: {cls.program_name()} [flags]", ""]
    summary = (cls.__doc__ or "").strip().partition("\n\n")[0]
    lines += [*textwrap.wrap(summary, _WIDTH), ""]
    lines += ["Precedence: flag > environment > file > default.", ""]
    lines += _entry("--config FILE", f"TOML file, table [{cls.service_name}]. Env: {CONFIG_ENV}.")
    lines += _entry("--print-config", "Print the settings in effect and where each is from; exit.")
    lines += _entry("--help", "Print this and exit.")
    for name, field in cls.model_fields.items():
        kind = _kind(field.annotation)
        flag = f"{flag_name(name)} / --no-{flag_name(name)[2:]}" if kind == "" else flag_name(name)
        if field.is_required():
            default = "Required."
        else:
            default = f"Default: {_toml(field.get_default(call_default_factory=True))}."
        description = " ".join((field.description or "").split())
        head = f"{flag} {kind}".rstrip() if has_flag(field) else f"{name} (no flag)"
        lines += _entry(head, f"{description} {default} Env: {env_name(cls, name)}.")
    return "\n".join(lines) + "\n"


def describe_settings(settings: ServiceSettings, sources: Mapping[str, str]) -> str:
    """Returns the settings in effect as a TOML table with the source of each as a comment."""
    lines = [f"[{settings.service_name}]"]
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        # TOML has no null: an unset field is left out by commenting it.
        line = f"# {name} is not set" if value is None else f"{name} = {_toml(value)}"
        lines.append(f"{line}  # {sources.get(name, 'default')}")
    return "\n".join(lines) + "\n"


def _entry(head: str, text: str) -> list[str]:
    pad = " " * _INDENT
    return [f"  {head}", *textwrap.wrap(text, _WIDTH, initial_indent=pad, subsequent_indent=pad)]


def _kind(annotation: Any) -> str:
    """Returns the placeholder of a flag's value, empty for a switch."""
    origin, args = get_origin(annotation), get_args(annotation)
    if annotation is bool:
        return ""
    if origin is Literal:
        return "{" + ",".join(map(str, args)) + "}"
    if origin in (Union, types.UnionType):
        return "|".join(_kind(arg) for arg in args if arg is not type(None))
    if origin in (list, tuple, set, frozenset):
        return f"{_kind(args[0])},..." if args else "LIST"
    if origin is dict:
        return "JSON"
    return getattr(annotation, "__name__", str(annotation)).upper()


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, SecretStr):
        return json.dumps(str(value))
    if isinstance(value, list | tuple | set | frozenset):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, BaseModel):
        return _toml(value.model_dump())
    if isinstance(value, Mapping):
        pairs = (f"{json.dumps(str(key))} = {_toml(item)}" for key, item in value.items())
        return "{" + ", ".join(pairs) + "}"
    if value is None:
        return "none"
    return json.dumps(str(value), ensure_ascii=False)
