"""Plain values -> fields of a message, with an error that names the field that cannot be sent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from google.protobuf.message import Message

from skipstone_shared.errors import InvalidArgument

_Message = TypeVar("_Message", bound=Message)


def new_message(kind: type[_Message], /, **fields: Any) -> _Message:
    """A message with fields set; None leaves one unset.

    Raises:
        InvalidArgument: a value that cannot be sent; names the field.
    """
    try:
        return kind(**fields)
    except (ValueError, TypeError):
        for name, value in fields.items():
            _set_alone(kind, name, value)
        raise


def set_fields(message: Message, source: object, names: Iterable[str]) -> None:
    """Sets those fields whose attribute of the same name is not None.

    Raises:
        InvalidArgument: a value that cannot be sent; names the field.
    """
    for name in names:
        value = getattr(source, name)
        if value is None:
            continue
        try:
            setattr(message, name, value)
        except (ValueError, TypeError):
            _set_alone(type(message), name, value)
            raise


def _set_alone(kind: type[Message], name: str, value: object) -> None:
    try:
        kind(**{name: value})
    except UnicodeEncodeError:
        raise InvalidArgument(
            f"{name} is not valid Unicode", field=name, allowed="text without lone surrogates"
        ) from None
    except ValueError:
        raise InvalidArgument(
            f"{name} is {value!r}", field=name, allowed="a value that fits in its field"
        ) from None
    except TypeError:
        raise InvalidArgument(
            f"{name} is {value!r}, of type {type(value).__name__}",
            field=name,
            allowed="a value of the field's type",
        ) from None
