"""Graphs on disk, so that a start need not build them again. Only a copy: the log is the truth.

A file is one graph at one sequence number of the log; what the log has got since is added when the
graph is used. All numbers are little-endian.

    offset  bytes
    0       8      b"SKGRAPH1"
    8       8      XXH3-64 of everything after it
    16      4      length of the header
    20      4      reserved, 0
    24             header as JSON, then the arrays it names, each at the next multiple of 8

A file that is damaged, of another log, of another version of hnswlib, or ahead of the log (which
was put back from a backup) is not used, and its graph is built from the log.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from skipstone_shared.data_directory import sync_directory
from skipstone_shared.errors import DataCorrupt
from skipstone_shared.latents import checksum
from skipstone_shared.structured_logging import get_logger
from skipstone_vector_index.graph_vectors import GraphState

_MAGIC = b"SKGRAPH1"
_HEAD = struct.Struct("<8sQI4x")
_CHECKED_FROM = 16
_ALIGN = 8
_MAX_HEADER_BYTES = 1 << 20
_LABELS = "labels"

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True, slots=True)
class SavedGraph:
    """A graph on disk.

    Attributes:
        path: Its file.
        partition: Number of the partition in the log.
        embedding_model_id: Model of its vectors.
        sequence: Number of the last write of the log that is in it.
    """

    path: Path
    partition: int
    embedding_model_id: str
    sequence: int


class GraphFiles:
    """The graphs of one log, a file each. Saving and removing are up to one thread at a time."""

    def __init__(self, directory: Path, log_id: str) -> None:
        """Opens a directory.

        Args:
            directory: Where the files are; created where it is missing.
            log_id: Which log they belong to.
        """
        self._directory = directory
        self._log_id = log_id
        directory.mkdir(exist_ok=True)

    def find(self, last_sequence: int) -> list[SavedGraph]:
        """Returns the graphs that may be used with the log at this number; removes other files."""
        found = []
        for path in sorted(self._directory.iterdir()):
            with _removing_unusable(path):
                saved = self._describe(path, _read_header(path))
                if saved.sequence > last_sequence:
                    raise DataCorrupt(f"it is ahead of the log, which is at {last_sequence}")
                found.append(saved)
        return found

    def load(self, saved: SavedGraph) -> GraphState | None:
        """Returns the graph of a file; None, and the file is removed, when it is damaged."""
        state: GraphState | None = None
        with _removing_unusable(saved.path):
            header, arrays = _read(saved.path)
            if self._describe(saved.path, header) != saved:
                raise DataCorrupt("it is not the one that was found")
            state = GraphState(arrays.pop(_LABELS), header["scalars"], arrays)
        return state

    def save(self, partition: int, model_id: str, sequence: int, state: GraphState) -> None:
        """Writes a graph; the file of an earlier one is replaced in one step.

        Raises:
            OSError: The disk is full or failing; the earlier file is still there.
        """
        arrays = {_LABELS: state.labels, **state.arrays}
        header = {
            "log": self._log_id,
            "hnswlib": version("hnswlib"),
            "partition": partition,
            "model": model_id,
            "sequence": sequence,
            "scalars": dict(state.scalars),
            "arrays": [[name, array.dtype.str, array.shape] for name, array in arrays.items()],
        }
        path = self._path(partition, model_id)
        unfinished = path.with_suffix(".tmp")
        try:
            _write(unfinished, header, list(arrays.values()))
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
        sync_directory(self._directory)

    def remove(self, saved: SavedGraph) -> None:
        """Removes the file of a graph."""
        saved.path.unlink(missing_ok=True)

    def forget(self, partition: int) -> None:
        """Removes the files of a partition, if there are any."""
        for path in self._directory.glob(f"{partition}-*.graph"):
            path.unlink(missing_ok=True)

    def _path(self, partition: int, model_id: str) -> Path:
        return self._directory / f"{partition}-{checksum(model_id.encode()):016x}.graph"

    def _describe(self, path: Path, header: Mapping[str, Any]) -> SavedGraph:
        for name, wanted in (("log", self._log_id), ("hnswlib", version("hnswlib"))):
            if header[name] != wanted:
                raise DataCorrupt(f"its {name} is {header[name]}, wanted is {wanted}")
        saved = SavedGraph(path, header["partition"], header["model"], header["sequence"])
        if path != self._path(saved.partition, saved.embedding_model_id):
            raise DataCorrupt("its name is not that of its graph")
        return saved


@contextmanager
def _removing_unusable(path: Path) -> Iterator[None]:
    """Turns trouble with a file into its removal: the graph is built from the log instead."""
    try:
        yield
    except (DataCorrupt, OSError) as error:
        get_logger().warning("graph on disk not used", file=path.name, error=str(error))
        path.unlink(missing_ok=True)


def open_graph_files(directory: Path, log_id: str, *, keep: bool) -> GraphFiles | None:
    """Opens a directory; where graphs are not to be kept, what is in it is removed.

    A file that is left lying could be used later, beside a log that was put back from a backup and
    has got past the number of the file since.
    """
    if keep:
        return GraphFiles(directory, log_id)
    shutil.rmtree(directory, ignore_errors=True)
    return None


def _write(path: Path, header: Mapping[str, Any], arrays: Sequence[Array]) -> None:
    text = json.dumps(header).encode()
    pieces: list[bytes | memoryview] = [struct.pack("<I4x", len(text)), text]
    pieces.append(_padding(_HEAD.size + len(text)))
    for array in arrays:
        pieces += [np.ascontiguousarray(array).data.cast("B"), _padding(array.nbytes)]
    with path.open("wb") as file:
        file.write(_MAGIC + struct.pack("<Q", checksum(*pieces)))
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def _read_header(path: Path) -> dict[str, Any]:
    """The header of a file, not verified.

    Raises:
        DataCorrupt: It cannot be read as one.
    """
    with path.open("rb") as file:
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            raise DataCorrupt("it is too short")
        magic, _, size = _HEAD.unpack(head)
        if magic != _MAGIC or size > _MAX_HEADER_BYTES:
            raise DataCorrupt("it is no graph of this version")
        return _parse(file.read(size))


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Header and arrays of a file, verified; the arrays are views into the mapped file.

    Raises:
        DataCorrupt: The checksum does not match.
    """
    header = _read_header(path)
    data = np.memmap(path, np.uint8, "r")
    if int(data[8:16].view("<u8")[0]) != checksum(data.data[_CHECKED_FROM:]):
        raise DataCorrupt("its checksum does not match")
    size = int(data[16:20].view("<u4")[0])
    offset = _HEAD.size + size + len(_padding(_HEAD.size + size))
    arrays: dict[str, Array] = {}
    for name, dtype, shape in header["arrays"]:
        end = offset + np.dtype(dtype).itemsize * int(np.prod(shape))
        arrays[name] = data[offset:end].view(dtype).reshape(shape)
        offset = end + len(_padding(end - offset))
    return header, arrays


def _parse(text: bytes) -> dict[str, Any]:
    try:
        header: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise DataCorrupt("its header is no JSON") from error
    if not isinstance(header, dict) or not header.keys() >= _FIELDS:
        raise DataCorrupt("its header lacks fields")
    return header


_FIELDS = {"log", "hnswlib", "partition", "model", "sequence", "scalars", "arrays"}


def _padding(size: int) -> bytes:
    return bytes(-size % _ALIGN)
