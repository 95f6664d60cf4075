"""Hypothesis strategies for messages of any proto: fields set or not, with values that hurt."""

from __future__ import annotations

import math
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

DEPTH = 4
"""Levels of messages inside each other."""

_KEY = "0123456789abcdef0123456789abcdef"
_TEXTS = [
    "",
    "a",
    "default",
    "e",
    _KEY,
    "a b",
    "../../etc/passwd",
    "\x00",
    "\u202e\U0001f600",
    "x" * 300,
]
_FLOATS = [0.0, -0.0, 1.0, 0.5, -1.0, 1e308, 1e-320, math.nan, math.inf, -math.inf]
_INTS_32 = [0, 1, 2, 10, -1, 1000, 1001, 2**31 - 1, -(2**31)]
_INTS_64 = [*_INTS_32, 2**63 - 1, -(2**63), 2**40]
_BYTES = [b"", b"\x00", b"\xff" * 7, bytes(16), b"\x00\x00\x80\x3f" * 4]

_SCALARS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_STRING: st.sampled_from(_TEXTS) | st.text(max_size=20),
    FieldDescriptor.TYPE_BYTES: st.sampled_from(_BYTES) | st.binary(max_size=40),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_DOUBLE: st.sampled_from(_FLOATS) | st.floats(),
    FieldDescriptor.TYPE_FLOAT: st.sampled_from([f for f in _FLOATS if f != 1e308])
    | st.floats(width=32),
    FieldDescriptor.TYPE_INT32: st.sampled_from(_INTS_32),
    FieldDescriptor.TYPE_INT64: st.sampled_from(_INTS_64),
    FieldDescriptor.TYPE_UINT32: st.sampled_from([0, 1, 2**32 - 1]),
    FieldDescriptor.TYPE_UINT64: st.sampled_from([0, 1, 2**64 - 1]),
    FieldDescriptor.TYPE_FIXED64: st.sampled_from([0, 1, 2**64 - 1]),
}
_USUAL: dict[str, Any] = {
    "namespace": "default",
    "entry_id": "e",
    "compatibility_key": _KEY,
    "prompt": "a red circle",
    "num_inference_steps": 10,
    "embedding_model_id": "bag-of-words",
}
"""What makes a request go far; each is used half of the time."""


def messages(descriptor: Descriptor, depth: int = DEPTH) -> st.SearchStrategy[Message]:
    """Messages of a type."""

    @st.composite
    def made(draw: st.DrawFn) -> Message:
        message = GetMessageClass(descriptor)()
        for field in descriptor.fields:
            if draw(st.integers(0, 3)) == 0 or (_is_message(field) and depth == 0):
                continue
            _fill(draw, message, field, depth)
        return message

    return made()


def _fill(draw: st.DrawFn, message: Any, field: FieldDescriptor, depth: int) -> None:
    if _is_message(field):
        if field.message_type.GetOptions().map_entry:
            return
        inner = messages(field.message_type, depth - 1)
        if field.is_repeated:
            getattr(message, field.name).extend(draw(st.lists(inner, max_size=2)))
        else:
            getattr(message, field.name).CopyFrom(draw(inner))
        return
    values = _values(field)
    if field.is_repeated:
        getattr(message, field.name).extend(draw(st.lists(values, max_size=3)))
    else:
        setattr(message, field.name, draw(values))


def _values(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.type == FieldDescriptor.TYPE_ENUM:
        known = [value.number for value in field.enum_type.values]
        return st.sampled_from([*known, 99])
    values = _SCALARS[field.type]
    usual = _USUAL.get(field.name)
    return values if usual is None else st.just(usual) | values


def _is_message(field: FieldDescriptor) -> bool:
    return field.type == FieldDescriptor.TYPE_MESSAGE
