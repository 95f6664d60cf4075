"""Pictures, masks and clips that are given as files: looked at once, read when they are sent."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path

from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import MAX_REFERENCE_BYTES, ReferenceInput, ReferenceRole

_KINDS = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (4, b"ftyp", "video/mp4"),
)
"""Where what bytes stand in a file of which kind; endings of names are often wrong."""

_MAX_TOGETHER = (4 << 20) - (64 << 10)
"""Bytes for all files of a request: it is one message of less than 4 MiB, and has prompts too."""


@dataclasses.dataclass(frozen=True, slots=True)
class ReferenceFile:
    """A file that conditions a generation.

    Attributes:
        role: What it is used for.
        path: Where it is.
        media_type: Its kind, by its content.
        size_bytes: Its size.
        sha256: Hash of its bytes, as `sha256sum` prints it.
    """

    role: ReferenceRole
    path: Path
    media_type: str
    size_bytes: int
    sha256: str

    def read(self) -> ReferenceInput:
        """The file as it is sent.

        Raises:
            InvalidArgument: It cannot be read, or is not what was looked at.
        """
        data = _read(self.path, self.role.value)
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise InvalidArgument(
                f"{self.path} was changed while it was being used", field=self.role.value
            )
        return ReferenceInput(self.role, self.media_type, data)


class ReferenceFiles:
    """Looks at files; one that is named several times is read once."""

    def __init__(self) -> None:
        """Has seen nothing yet."""
        self._seen: dict[Path, tuple[str, int, str]] = {}

    def look_at(self, role: ReferenceRole, path: Path, field: str) -> ReferenceFile:
        """What a file is.

        Args:
            role: What it is used for.
            path: Where it is.
            field: Option or column that names it.

        Raises:
            InvalidArgument: It cannot be read, is empty, too large or of another kind.
        """
        if path not in self._seen:
            data = _read(path, field)
            kind = _media_type(data)
            if kind is None:
                raise InvalidArgument(
                    f"{path} is of another kind", field=field, allowed="PNG, JPEG or MP4"
                )
            self._seen[path] = kind, len(data), hashlib.sha256(data).hexdigest()
        return ReferenceFile(role, path, *self._seen[path])


def check_together(files: Sequence[ReferenceFile], field: str) -> None:
    """Checks that files fit into one request.

    Raises:
        InvalidArgument: They do not.
    """
    together = sum(file.size_bytes for file in files)
    if together > _MAX_TOGETHER:
        raise InvalidArgument(
            f"the files of a request have {together} bytes together",
            field=field,
            allowed=f"up to {_MAX_TOGETHER} bytes",
        )


def _media_type(data: bytes) -> str | None:
    return next((kind for at, sign, kind in _KINDS if data[at:].startswith(sign)), None)


def _read(path: Path, field: str) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise InvalidArgument(f"{path} is no file", field=field)  # a device may never end
        with path.open("rb") as file:
            data = file.read(MAX_REFERENCE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidArgument(f"cannot read {path}: {why}", field=field) from None
    if not 0 < len(data) <= MAX_REFERENCE_BYTES:
        size = f"more than {MAX_REFERENCE_BYTES}" if data else "0"
        raise InvalidArgument(
            f"{path} has {size} bytes", field=field, allowed=f"1 to {MAX_REFERENCE_BYTES} bytes"
        )
    return data
