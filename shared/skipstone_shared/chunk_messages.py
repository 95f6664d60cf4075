"""Messages of a stream that hold one chunk of bytes and nothing else, without a message object.

An object copies its bytes when they are set, when it is serialized, when it is parsed, and each
time the field is read. On the wire such a message is the number of its field, a length, and the
bytes, so it is put together here in one copy and taken apart in none.
"""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor

Buffer = bytes | bytearray | memoryview

_LENGTH_DELIMITED = 2
_MORE = 0x80


class ChunkField:
    """The field of a message that holds a chunk."""

    def __init__(self, message: Descriptor, field: str) -> None:
        """Names the field.

        Args:
            message: Of the message.
            field: Its name; of type bytes.
        """
        self._tag = _varint(message.fields_by_name[field].number << 3 | _LENGTH_DELIMITED)

    def to_wire(self, chunk: Buffer, end: bytes = b"") -> bytes:
        """The serialized message that holds a chunk, and ``end`` behind it."""
        return b"".join((self._tag, _varint(len(chunk)), chunk, end))

    def from_wire(self, serialized: bytes, end: bytes = b"") -> memoryview | None:
        """The chunk of a serialized message; None when there is anything else before or behind it.

        Args:
            serialized: The message.
            end: What must follow the chunk, another field for example.
        """
        if not (serialized.startswith(self._tag) and serialized.endswith(end)):
            return None
        whole = len(serialized) - len(end)
        size, shift, start = 0, 0, len(self._tag)
        for byte in serialized[start : start + 10]:
            size |= (byte & ~_MORE) << shift
            shift += 7
            start += 1
            if byte < _MORE:
                return memoryview(serialized)[start:whole] if start + size == whole else None
        return None


def _varint(value: int) -> bytes:
    """A number as protobuf writes it: seven bits to a byte, the lowest first."""
    encoded = bytearray()
    while value >= _MORE:
        encoded.append(value & ~_MORE & 0xFF | _MORE)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
