"""Plain values -> fields of a message, with an error that names the field that cannot be sent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
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


_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def _range_of(kind: type[Message], name: str, value: object) -> str:
    field = kind.DESCRIPTOR.fields_by_name.get(name)
    limits = None if field is None else _RANGES.get(field.cpp_type)
    if limits is None or not isinstance(value, int):
        return "a value that fits in its field"
    return f"at most {limits[1]}" if value > limits[1] else f"at least {limits[0]}"


def _set_alone(kind: type[Message], name: str, value: object) -> None:
    try:
        kind(**{name: value})
    except UnicodeEncodeError:
        raise InvalidArgument(
            f"{name} is not valid Unicode", field=name, allowed="text without lone surrogates"
        ) from None
    except ValueError:
        raise InvalidArgument(
            f"{name} is {value!r}", field=name, allowed=_range_of(kind, name, value)
        ) from None
    except TypeError:
        raise InvalidArgument(
            f"{name} is {value!r}, of type {type(value).__name__}",
            field=name,
            allowed="a value of the field's type",
        ) from None
