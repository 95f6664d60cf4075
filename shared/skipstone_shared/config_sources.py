"""Where settings come from: flags, environment, file. Used by `config.py` only.

Each source returns only the fields it names, so that the caller can lay one over the other. The
only file in the project that knows flag and variable names.
"""

from __future__ import annotations

import argparse
import difflib
import json
import tomllib
import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from skipstone_shared.ports import DEFAULT_PORTS
from skipstone_shared.url_secrets import holds_password

CONFIG_ENV = "SKIPSTONE_CONFIG"
_KNOWN_TABLES = tuple(DEFAULT_PORTS)


class ConfigError(ValueError):
    """The configuration cannot be used; the message is one sentence that says what to change."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def flag_name(field: str) -> str:
    """Returns the flag of a field: `--max-bytes`."""
    return "--" + field.replace("_", "-")


def has_flag(field: FieldInfo) -> bool:
    """Returns whether a field may be set by a flag; secrets can say `{"flag": False}`."""
    extra = field.json_schema_extra
    return not isinstance(extra, dict) or extra.get("flag") is not False


def is_secret(field: FieldInfo) -> bool:
    """Returns whether what is given for a field must not be shown."""
    return SecretStr in (field.annotation, *get_args(field.annotation))


def env_prefix(cls: type[BaseModel]) -> str:
    """Returns the prefix of a service's variables: `SKIPSTONE_LATENT_KV_`."""
    return f"SKIPSTONE_{_table(cls).upper()}_"


def env_name(cls: type[BaseModel], field: str) -> str:
    """Returns the variable of a field: `SKIPSTONE_LATENT_KV_MAX_BYTES`."""
    return env_prefix(cls) + field.upper()


def parse_flags(cls: type[BaseModel], argv: Sequence[str]) -> tuple[dict[str, Any], str | None]:
    """Returns the fields set by flags, and the path given with `--config`.

    Raises:
        ConfigError: A flag is unknown or lacks its value.
    """
    parser = _Parser(add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    parser.add_argument("--config", dest=" config")
    for name, field in cls.model_fields.items():
        if not has_flag(field):
            continue
        if _plain_type(field.annotation) is bool:
            action = argparse.BooleanOptionalAction
            parser.add_argument(flag_name(name), dest=name, action=action)
        else:
            parser.add_argument(flag_name(name), dest=name)
    found, unknown = parser.parse_known_args(list(argv))
    if unknown:
        flags = [flag_name(name) for name, field in cls.model_fields.items() if has_flag(field)]
        flags += ["--config", "--print-config"]
        word = unknown[0].partition("=")[0]
        if not word.startswith("-"):
            raise ConfigError(f"unexpected argument {word}, all settings are flags (--help)")
        raise ConfigError(_unknown("flag", word, flags, "--"))
    values = vars(found)
    config_path = values.pop(" config", None)
    for name, text in values.items():
        if is_secret(cls.model_fields[name]) and holds_password(text):
            raise ConfigError(
                f"{flag_name(name)} holds a password, which lists of processes would show: set "
                f"{env_name(cls, name)} or {name} in a file"
            )
    return _parse_texts(cls, values), config_path


def read_environment(cls: type[BaseModel], environ: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields set by variables with the service's prefix.

    Raises:
        ConfigError: A variable has the prefix and no such field exists.
    """
    names = {env_name(cls, name): name for name in cls.model_fields}
    found = {key: value for key, value in environ.items() if key.startswith(env_prefix(cls))}
    for key in found.keys() - names.keys():
        raise ConfigError(_unknown("environment variable", key, names, env_prefix(cls)))
    return _parse_texts(cls, {names[key]: value for key, value in found.items()})


def read_file(cls: type[BaseModel], path: str) -> dict[str, Any]:
    """Returns the fields in the service's table of a TOML file.

    Raises:
        ConfigError: The file cannot be read, is not TOML, or names what does not exist.
    """
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read configuration file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration file {path} is not valid TOML: {error}") from None
    for name, table in document.items():
        if name not in _KNOWN_TABLES:
            raise ConfigError(f"{path}: " + _unknown("table", name, _KNOWN_TABLES))
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: {name} must be a table, write [{name}]")
    values: dict[str, Any] = document.get(_table(cls), {})
    for key in values.keys() - cls.model_fields.keys():
        problem = _unknown("key", key, cls.model_fields)
        raise ConfigError(f"{path} [{_table(cls)}]: {problem}")
    return values


def _table(cls: type[BaseModel]) -> str:
    name: str = cls.service_name  # type: ignore[attr-defined]
    return name


def _unknown(kind: str, name: str, valid: Iterable[str], prefix: str = "") -> str:
    # Compared without what all have in common, which would make all of them look near.
    by_rest = {word.removeprefix(prefix): word for word in valid}
    # Never give up: the nearest name helps even when it is far away.
    near = difflib.get_close_matches(name.removeprefix(prefix), by_rest, n=1, cutoff=0.0)
    told = f"unknown {kind} {name}"
    return f"{told}, did you mean {by_rest[near[0]]}?" if near else told


def _parse_texts(cls: type[BaseModel], texts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _parse_text(cls.model_fields[name].annotation, value)
        if isinstance(value, str)
        else value
        for name, value in texts.items()
    }


def _parse_text(annotation: Any, text: str) -> Any:
    """Returns what pydantic cannot take as text.

    That is lists as `a,b` or JSON, tables as JSON, and None as `none`.
    """
    if type(None) in get_args(annotation) and text.lower() in ("", "none"):
        return None
    origin = get_origin(_plain_type(annotation))
    if origin is dict:
        return _parse_json(text, "object")
    if origin in (list, tuple, set, frozenset):
        if text.lstrip().startswith("["):
            return _parse_json(text, "list")
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def _parse_json(text: str, kind: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{text!r} is not a JSON {kind}: {error}") from None


def _plain_type(annotation: Any) -> Any:
    """Returns `X` of `X | None`, else the annotation itself."""
    if get_origin(annotation) in (Union, types.UnionType):
        rest = [arg for arg in get_args(annotation) if arg is not type(None)]
        return rest[0] if len(rest) == 1 else annotation
    return annotation
