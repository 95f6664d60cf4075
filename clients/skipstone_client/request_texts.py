"""Parts of a request that are written as one text, on the command line and in files of prompts."""

from __future__ import annotations

from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import AdapterSelection


def adapter_of(text: str, field: str) -> AdapterSelection:
    """Reads ``NAME`` or ``NAME=SCALE``.

    Raises:
        InvalidArgument: It is neither.
    """
    name, _, scale = text.rpartition("=") if "=" in text else (text, "", "1")
    try:
        found = AdapterSelection(name.strip(), float(scale))
    except ValueError:
        found = AdapterSelection("")
    if not found.name:
        raise InvalidArgument(
            f"{text!r} is no adapter", field=field, allowed="NAME or NAME=SCALE, such as style=0.8"
        )
    return found


def key_steps_of(text: str, field: str) -> tuple[int, ...]:
    """Reads steps with commas between them; an empty text has none.

    Raises:
        InvalidArgument: One is no whole number.
    """
    try:
        return tuple(int(part) for part in text.split(",")) if text.strip() else ()
    except ValueError:
        raise InvalidArgument(
            f"{text!r} are no steps", field=field, allowed="whole numbers, such as 5,10,15"
        ) from None
