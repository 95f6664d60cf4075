"""The safetensors format, as far as exports need it: written and read a tensor at a time.

A file is the length of its header (8 bytes, little-endian), the header (JSON: for each tensor its
dtype, shape and place), and the bytes of all tensors. Written here and not with the safetensors
package, which a client does not need otherwise, and which wants a whole file in memory at once.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from skipstone_shared.errors import DataCorrupt
from skipstone_shared.latents import DType, TensorSpec

_LENGTH = struct.Struct("<Q")
_NAMES = {
    DType.FLOAT64: "F64",
    DType.FLOAT32: "F32",
    DType.FLOAT16: "F16",
    DType.BFLOAT16: "BF16",
    DType.INT64: "I64",
}
_LARGEST_HEADER_BYTES = 100_000_000
"""The format's own bound."""


def write_tensors(
    path: Path, specs: Mapping[str, TensorSpec], data: Iterable[bytes | bytearray | memoryview]
) -> None:
    """Writes a file.

    Args:
        path: Where to.
        specs: The tensors in the order of their bytes.
        data: The bytes of all of them, cut anywhere; asked for as they are written.
    """
    header, end = {}, 0
    for name, spec in specs.items():
        start, end = end, end + spec.size_bytes
        header[name] = {
            "dtype": _NAMES[spec.dtype],
            "shape": list(spec.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    # Tensors begin at a multiple of 8 bytes; the format allows spaces for that.
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(_LENGTH.pack(len(text)) + text)
        for piece in data:
            file.write(piece)


class TensorsFile:
    """A file that is open for reading."""

    def __init__(self, path: Path) -> None:
        """Opens a file and reads its header.

        Args:
            path: The file.

        Raises:
            DataCorrupt: it is not there, or its header is damaged.
        """
        self._path = path
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise DataCorrupt(f"{path} cannot be read: {error.strerror}") from error
        try:
            (length,) = _LENGTH.unpack(self._file.read(_LENGTH.size))
            if length > _LARGEST_HEADER_BYTES:
                raise ValueError(f"a header of {length} bytes")
            self._places: dict[str, tuple[int, int]] = {
                name: tuple(tensor["data_offsets"])
                for name, tensor in json.loads(self._file.read(length)).items()
                if name != "__metadata__"
            }
        except (ValueError, struct.error, KeyError, TypeError, AttributeError) as error:
            self._file.close()
            raise DataCorrupt(f"the header of {path} is damaged: {error}") from error
        self._start = _LENGTH.size + length

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def read(self, name: str, size_bytes: int) -> bytes:
        """The bytes of a tensor.

        Raises:
            DataCorrupt: it is not there whole, or has another size.
        """
        start, end = self._places.get(name, (0, -1))
        if end - start != size_bytes:
            raise DataCorrupt(f"{self._path} holds no tensor {name!r} of {size_bytes} bytes")
        self._file.seek(self._start + start)
        data = self._file.read(size_bytes)
        if len(data) != size_bytes:
            raise DataCorrupt(f"{self._path} is truncated")
        return data
