"""Artifacts <-> the header and data messages in which they travel.

The denoise executor and the orchestrator stream the same two kinds of message, so cutting and
assembling live here once.
"""

from __future__ import annotations

from collections.abc import Iterator

import xxhash

from skipstone.generation.v1 import generation_pb2
from skipstone_shared.errors import DataCorrupt
from skipstone_shared.generation import Artifact

ARTIFACT_CHUNK_BYTES = 1 << 20
"""Largest piece of an artifact in one message: 1 MiB."""


def artifact_chunks(artifact: Artifact) -> Iterator[bytes]:
    """The pieces of an artifact's bytes, in order; nothing for an empty one."""
    for start in range(0, len(artifact.data), ARTIFACT_CHUNK_BYTES):
        yield artifact.data[start : start + ARTIFACT_CHUNK_BYTES]


class ArtifactAssembler:
    """Puts the pieces of one artifact together and checks them. Not shared between threads."""

    def __init__(self, header: generation_pb2.ArtifactHeader) -> None:
        """Starts with the header.

        Args:
            header: What is to come.
        """
        self._header = header
        self._pieces: list[bytes] = []
        self._size = 0
        self._digest = xxhash.xxh3_64()

    @property
    def is_complete(self) -> bool:
        """Whether all bytes have arrived."""
        return self._size == self._header.size_bytes

    def add(self, data: bytes) -> None:
        """Takes the next piece.

        Raises:
            DataCorrupt: more bytes than the header said.
        """
        self._size += len(data)
        if self._size > self._header.size_bytes:
            raise DataCorrupt(
                f"artifact of {self._size} bytes or more where its header says "
                f"{self._header.size_bytes}"
            )
        self._pieces.append(data)
        self._digest.update(data)

    def finish(self) -> Artifact:
        """The artifact.

        Raises:
            DataCorrupt: bytes are missing or do not match the checksum.
        """
        if not self.is_complete:
            raise DataCorrupt(
                f"artifact ends after {self._size} of {self._header.size_bytes} bytes"
            )
        if self._digest.intdigest() != self._header.xxh3_64:
            raise DataCorrupt("artifact does not match its checksum")
        return Artifact(
            media_type=self._header.media_type,
            data=b"".join(self._pieces),
            height=self._header.height,
            width=self._header.width,
            num_frames=self._header.num_frames,
        )
