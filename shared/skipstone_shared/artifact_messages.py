"""Artifacts <-> the header and data messages in which they travel.

The denoise executor and the orchestrator stream the same two kinds of message, so cutting and
assembling live here once.
"""

from __future__ import annotations

from collections.abc import Iterator

from skipstone.generation.v1 import generation_pb2
from skipstone_shared.errors import DataCorrupt
from skipstone_shared.generation import Artifact
from skipstone_shared.latents import checksum

ARTIFACT_CHUNK_BYTES = 1 << 20
"""Largest piece of an artifact in one message: 1 MiB."""


def artifact_chunks(artifact: Artifact) -> Iterator[bytes]:
    """The pieces of an artifact's bytes, in order; nothing for an empty one."""
    for start in range(0, len(artifact.data), ARTIFACT_CHUNK_BYTES):
        yield artifact.data[start : start + ARTIFACT_CHUNK_BYTES]


class ArtifactReader:
    """Puts the pieces of the artifacts in one stream together and checks them.

    Not shared between threads.
    """

    def __init__(self) -> None:
        self._header: generation_pb2.ArtifactHeader | None = None
        self._pieces: list[bytes] = []
        self._size = 0

    def start(self, header: generation_pb2.ArtifactHeader) -> Artifact | None:
        """Takes a header; the artifact when it has no bytes.

        Raises:
            DataCorrupt: the artifact before is incomplete.
        """
        self.check_complete()
        self._header, self._pieces, self._size = header, [], 0
        return self._complete(header)

    def add(self, data: bytes) -> Artifact | None:
        """Takes the next piece; the artifact when it was the last.

        Raises:
            DataCorrupt: there was no header, more bytes came than it said, or they do not match
                its checksum.
        """
        if self._header is None:
            raise DataCorrupt("bytes of an artifact without a header")
        self._pieces.append(data)
        self._size += len(data)
        return self._complete(self._header)

    def check_complete(self) -> None:
        """Called when something other than a piece comes, or the stream ends.

        Raises:
            DataCorrupt: bytes of an artifact are missing.
        """
        if self._header is not None:
            raise DataCorrupt(
                f"artifact ends after {self._size} of {self._header.size_bytes} bytes"
            )

    def _complete(self, header: generation_pb2.ArtifactHeader) -> Artifact | None:
        if self._size < header.size_bytes:
            return None
        data = b"".join(self._pieces)
        if len(data) != header.size_bytes or checksum(data) != header.xxh3_64:
            raise DataCorrupt("artifact does not match the size and checksum in its header")
        self._header, self._pieces = None, []
        return Artifact(
            media_type=header.media_type,
            data=data,
            height=header.height,
            width=header.width,
            num_frames=header.num_frames,
            frame_rate=header.frame_rate,
        )
