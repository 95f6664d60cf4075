"""Enums of dataclasses <-> enum numbers of messages, by tables in the files of conversions."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from skipstone_shared.errors import InvalidArgument

_E = TypeVar("_E", bound=Enum)


def enum_member(kind: type[_E], value: object, field: str) -> _E:
    """A member as callers give it: itself or its value, such as "off".

    Raises:
        InvalidArgument: neither of them.
    """
    try:
        return kind(value)
    except ValueError:
        raise InvalidArgument(
            f"{field} is {value!r}",
            field=field,
            allowed=", ".join(str(member.value) for member in kind),
        ) from None


def required_enum(table: Mapping[int, _E], number: int, field: str) -> _E:
    """The enum's value behind a number.

    Raises:
        InvalidArgument: the number is 0 (unspecified) or one that this version does not know.
    """
    try:
        return table[number]
    except KeyError:
        raise InvalidArgument(
            f"{field} is not set" if number == 0 else f"{field} {number} is not known",
            field=field,
            allowed=", ".join(str(member.value) for member in table.values()),
        ) from None


def optional_enum(table: Mapping[int, _E], number: int, field: str) -> _E | None:
    """The enum's value behind a number; None for 0 (unspecified).

    Raises:
        InvalidArgument: a number that this version does not know.
    """
    return None if number == 0 else required_enum(table, number, field)
