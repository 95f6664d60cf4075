"""Snapshots in fewer bytes, at the cost of an error; ``lossless`` is the default everywhere.

An encoded snapshot is, for each part, one byte that says how the part is written, and its payload.
So a reader needs no setting, and snapshots written under different settings live side by side. Only
floating parts of two dimensions and more are narrowed: a scheduler's scalars and lists are small,
and an error in them is of another kind than one in latents.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import ml_dtypes
import numpy as np
import numpy.typing as npt

from skipstone_shared.errors import DataCorrupt
from skipstone_shared.latents import TensorPart, TensorSpec

CodecName = Literal["lossless", "fp32", "bf16", "fp16", "int8"]

_Array = npt.NDArray[Any]

_RAW = 0
_NARROW: dict[CodecName, tuple[int, np.dtype[Any]]] = {
    "fp32": (1, np.dtype("<f4")),
    "bf16": (2, np.dtype(ml_dtypes.bfloat16)),
    "fp16": (3, np.dtype("<f2")),
}
_INT8 = 4
_KNOWN = (_RAW, *(how for how, _ in _NARROW.values()), _INT8)
_SCALE = np.dtype("<f4")
_LARGEST = 127


def encode(data: memoryview, parts: Sequence[TensorPart], codec: CodecName) -> bytes:
    """The bytes of a snapshot in fewer bytes.

    A part that the codec cannot hold (it would not be smaller, or a value would overflow) is
    written as it is.

    Args:
        data: All parts, concatenated.
        parts: What they are.
        codec: How to write them.
    """
    encoded: list[bytes] = []
    start = 0
    for part in parts:
        end = start + part.spec.size_bytes
        encoded += _encode_part(data[start:end], part.spec, codec)
        start = end
    return b"".join(encoded)


def decode(data: bytes | memoryview, parts: Sequence[TensorPart]) -> bytes:
    """The bytes of a snapshot that ``encode`` wrote, in the dtypes of its parts.

    Raises:
        DataCorrupt: they are too few, too many, or written in a way that is not known.
    """
    view = memoryview(data)
    decoded: list[bytes | memoryview] = []
    start = 0
    for part in parts:
        if start >= len(view):
            raise DataCorrupt(f"the encoded bytes end before part {part.name!r}")
        how, start = view[start], start + 1
        if how not in _KNOWN:
            raise DataCorrupt(f"part {part.name!r} is written in way {how}, known are {_KNOWN}")
        end = start + _payload_bytes(how, part.spec)
        if end > len(view):
            raise DataCorrupt(f"the encoded bytes end in part {part.name!r}")
        decoded.append(_decode_part(how, view[start:end], part.spec))
        start = end
    if start != len(view):
        raise DataCorrupt(f"{len(view) - start} bytes follow the last part")
    return b"".join(decoded)


def _encode_part(data: memoryview, spec: TensorSpec, codec: CodecName) -> tuple[bytes, bytes]:
    raw = bytes([_RAW]), bytes(data)
    if codec == "lossless" or not spec.dtype.is_floating or len(spec.shape) < 2:
        return raw
    values = np.frombuffer(data, spec.dtype.numpy).reshape(spec.shape)
    if codec == "int8":
        return _to_int8(values) or raw
    how, dtype = _NARROW[codec]
    if dtype.itemsize >= spec.dtype.numpy.itemsize:
        return raw
    with np.errstate(over="ignore"):
        narrow = values.astype(dtype)
    return (bytes([how]), narrow.tobytes()) if np.isfinite(narrow).all() else raw


def _to_int8(values: _Array) -> tuple[bytes, bytes] | None:
    """Each channel as its largest magnitude and 8 bits per value; None when that cannot hold it."""
    with np.errstate(over="ignore"):
        wide = values.astype(np.float32)
    scale = np.abs(wide).max(axis=_axes(values.shape), keepdims=True) / np.float32(_LARGEST)
    if not np.isfinite(scale).all():
        return None
    steps = np.divide(wide, scale, out=np.zeros_like(wide), where=scale > 0)
    # Where the scale is subnormal the quotient may miss 127 by more than a rounding.
    whole = np.clip(np.rint(steps), -_LARGEST, _LARGEST).astype(np.int8)
    return bytes([_INT8]), scale.astype(_SCALE).tobytes() + whole.tobytes()


def _decode_part(how: int, data: memoryview, spec: TensorSpec) -> bytes | memoryview:
    if how == _RAW:
        return data
    if how != _INT8:
        narrow = np.frombuffer(data, _narrow_dtype(how)).reshape(spec.shape)
        return narrow.astype(spec.dtype.numpy).tobytes()
    shape = _scale_shape(spec.shape)
    split = int(np.prod(shape)) * _SCALE.itemsize
    scale = np.frombuffer(data[:split], _SCALE).reshape(shape)
    whole = np.frombuffer(data[split:], np.int8).reshape(spec.shape)
    return (whole.astype(np.float32) * scale).astype(spec.dtype.numpy).tobytes()


def _payload_bytes(how: int, spec: TensorSpec) -> int:
    if how == _RAW:
        return spec.size_bytes
    if how == _INT8:
        return int(np.prod(_scale_shape(spec.shape))) * _SCALE.itemsize + spec.num_elements
    return spec.num_elements * _narrow_dtype(how).itemsize


def _narrow_dtype(how: int) -> np.dtype[Any]:
    return next(dtype for code, dtype in _NARROW.values() if code == how)


def _axes(shape: Sequence[int]) -> tuple[int, ...]:
    """What one scale covers: everything behind batch and channel; of a matrix, each row."""
    return tuple(range(min(2, len(shape) - 1), len(shape)))


def _scale_shape(shape: Sequence[int]) -> tuple[int, ...]:
    covered = _axes(shape)
    return tuple(1 if axis in covered else size for axis, size in enumerate(shape))
