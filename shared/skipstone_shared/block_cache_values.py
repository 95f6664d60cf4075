"""Values of block-cache JSON -> values of BlockCacheConfig, with errors that name the key."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from skipstone_shared.errors import InvalidArgument

Reader = Callable[[str, Any], Any]
"""(key as the caller wrote it, value) -> the field's value; raises InvalidArgument."""

_MAX = 2**31 - 1
_LARGEST = sys.float_info.max
_TRUE = ("true", "1", "yes", "on")
_FALSE = ("false", "0", "no", "off", "")


def read_integer(key: str, value: Any) -> int:
    """A whole number that fits in its message field."""
    if isinstance(value, bool) or not isinstance(value, int) or not -_MAX <= value <= _MAX:
        raise _wrong(key, value, f"a whole number of at most {_MAX}")
    return value


def read_number(key: str, value: Any) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST:
        raise _wrong(key, value, "a finite number")
    return float(value)


def read_boolean(key: str, value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise _wrong(key, value, "true or false")
    return value


def read_object(key: str, value: Any) -> Mapping[str, Any]:
    """A JSON object."""
    if not isinstance(value, Mapping):
        raise _wrong(key, value, "a JSON object with settings")
    return value


def read_bins(key: str, value: Any) -> tuple[int, ...]:
    """Lengths of runs; an empty list is unset."""
    if not isinstance(value, list | tuple):
        raise _wrong(key, value, "a list of whole numbers")
    return tuple(read_integer(key, each) for each in value)


def read_choice(kind: type[Enum]) -> Reader:
    """A reader of an enum's values, by name."""

    def read(key: str, value: Any) -> Enum:
        try:
            return kind(value.lower())
        except (ValueError, AttributeError):
            allowed = ", ".join(member.value for member in kind)
            raise _wrong(key, value, allowed) from None

    return read


def from_environment_text(read: Reader, key: str, value: Any) -> Any:
    """The JSON value that an environment variable's text stands for.

    Args:
        read: How the field is read afterwards, which says what the text stands for.
        key: Name of the variable.
        value: Its text; anything else is taken as it is. Empty text is unset.
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    if read is read_boolean:
        if text.lower() not in _TRUE + _FALSE:
            raise _wrong(key, value, "true or false")
        return text.lower() in _TRUE
    if not text:
        return None
    try:
        if read is read_integer:
            return int(text)
        if read is read_number:
            return float(text)
        if read is read_bins:
            return [int(part) for part in text.split(",")]
    except ValueError:
        numbers = "whole numbers with commas between" if read is read_bins else "a number"
        raise _wrong(key, value, numbers) from None
    return text


def _wrong(key: str, value: Any, allowed: str) -> InvalidArgument:
    shown = repr(value)
    return InvalidArgument(
        f"cache config: {key} is {shown if len(shown) <= 60 else shown[:60] + '...'}",
        field=key,
        allowed=allowed,
    )
