"""Attributes of a dataclass -> the optional fields of a message."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.message import Message

from skipstone_shared.errors import InvalidArgument


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
        except UnicodeEncodeError:
            raise InvalidArgument(
                f"{name} is not valid Unicode", field=name, allowed="text without lone surrogates"
            ) from None
        except ValueError:
            raise InvalidArgument(
                f"{name} is {value}", field=name, allowed="a number that fits in its field"
            ) from None
