"""numpy arrays <-> ``TensorSpec`` + raw bytes: the one place that lays tensors out for the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from skipstone.latent.v1 import latent_pb2
from skipstone_shared.errors import DataCorrupt, InvalidArgument
from skipstone_shared.latents import DType, TensorPart, TensorSpec
from skipstone_shared.snapshot_rules import checked_spec

Array = npt.NDArray[np.generic]

_DTYPE_TO_MESSAGE: dict[DType, latent_pb2.Dtype.ValueType] = {
    DType.FLOAT32: latent_pb2.DTYPE_FLOAT32,
    DType.FLOAT16: latent_pb2.DTYPE_FLOAT16,
    DType.BFLOAT16: latent_pb2.DTYPE_BFLOAT16,
    DType.INT64: latent_pb2.DTYPE_INT64,
    DType.FLOAT64: latent_pb2.DTYPE_FLOAT64,
}
_DTYPE_FROM_MESSAGE = {message: dtype for dtype, message in _DTYPE_TO_MESSAGE.items()}


def dtype_to_message(dtype: DType) -> latent_pb2.Dtype.ValueType:
    """The enum value of an element type."""
    return _DTYPE_TO_MESSAGE[dtype]


def dtype_from_message(value: latent_pb2.Dtype.ValueType) -> DType:
    """The element type of an enum value.

    Raises:
        InvalidArgument: DTYPE_UNSPECIFIED, or a value this version does not know.
    """
    try:
        return _DTYPE_FROM_MESSAGE[value]
    except KeyError:
        raise InvalidArgument(
            f"dtype {value} is not an element type",
            field="dtype",
            allowed=", ".join(d.value for d in DType),
        ) from None


def spec_to_message(spec: TensorSpec) -> latent_pb2.TensorSpec:
    """The message of a spec."""
    return latent_pb2.TensorSpec(dtype=dtype_to_message(spec.dtype), shape=spec.shape)


def spec_from_message(message: latent_pb2.TensorSpec) -> TensorSpec:
    """The spec of a message.

    Raises:
        InvalidArgument: unknown element type, a dimension below 1, or too many dimensions.
    """
    return _spec_of(message.SerializeToString())


@lru_cache(maxsize=1024)
def _spec_of(serialized: bytes) -> TensorSpec:
    """Remembered, since a deployment has few specs and an answer of a search tells fifty."""
    message = latent_pb2.TensorSpec.FromString(serialized)
    return checked_spec(TensorSpec(dtype_from_message(message.dtype), tuple(message.shape)))


def array_spec(array: Array) -> TensorSpec:
    """The spec of an array.

    Raises:
        InvalidArgument: the array's element type cannot be stored.
    """
    return TensorSpec(DType.of(array), tuple(array.shape))


def array_bytes(array: Array) -> memoryview:
    """The bytes of an array, C order and little-endian, without a copy where the layout allows."""
    contiguous = np.ascontiguousarray(array, dtype=DType.of(array).numpy)
    # A scalar becomes one-dimensional; its bytes are the same. uint8 because the buffer protocol
    # knows no bfloat16.
    return contiguous.reshape(-1).view(np.uint8).data


def array_from_bytes(data: bytes | bytearray | memoryview, spec: TensorSpec) -> Array:
    """An array over the given bytes, without a copy; read-only when the buffer is.

    Raises:
        DataCorrupt: there are more or fewer bytes than the spec needs.
    """
    if len(data) != spec.size_bytes:
        raise DataCorrupt(
            f"{len(data)} bytes where {spec.dtype.value}{list(spec.shape)} needs {spec.size_bytes}"
        )
    return np.frombuffer(data, dtype=np.uint8).view(spec.dtype.numpy).reshape(spec.shape)


def parts_of(arrays: Mapping[str, Array]) -> tuple[TensorPart, ...]:
    """Parts that describe named arrays, in their order."""
    return tuple(TensorPart(name, array_spec(array)) for name, array in arrays.items())


def arrays_from_parts(
    data: bytes | bytearray | memoryview, parts: Sequence[TensorPart]
) -> dict[str, Array]:
    """Named arrays over concatenated bytes, without a copy.

    Raises:
        DataCorrupt: there are more or fewer bytes than the parts need.
    """
    view = memoryview(data)
    needed = sum(part.spec.size_bytes for part in parts)
    if len(view) != needed:
        raise DataCorrupt(f"{len(view)} bytes where the parts need {needed}")
    arrays: dict[str, Array] = {}
    start = 0
    for part in parts:
        end = start + part.spec.size_bytes
        arrays[part.name] = array_from_bytes(view[start:end], part.spec)
        start = end
    return arrays


def is_finite(array: Array) -> bool:
    """Whether no element is NaN or infinite; integers always are finite."""
    if not DType.of(array).is_floating:
        return True
    return bool(np.isfinite(array).all())


def vector_bytes(vector: npt.NDArray[np.float32]) -> bytes:
    """A search vector as 32-bit little-endian floats."""
    return np.ascontiguousarray(vector, dtype="<f4").tobytes()


def vector_from_bytes(data: bytes) -> npt.NDArray[np.float32]:
    """A search vector from 32-bit little-endian floats; read-only.

    Raises:
        InvalidArgument: the number of bytes is no multiple of 4, or 0.
    """
    if not data or len(data) % 4:
        raise InvalidArgument(
            f"a vector of {len(data)} bytes",
            field="vector",
            allowed="32-bit little-endian floats, at least one",
        )
    return np.frombuffer(data, dtype="<f4")
