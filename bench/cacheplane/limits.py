"""What no service can beat: LMDB, hnswlib, a gRPC stream and memory without anything around."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import grpc
import hnswlib
import lmdb
import numpy as np

from cacheplane import echo_server
from cacheplane.services import TOP_K
from server_process import ServerProcess, python
from skipstone_shared.index_entries import Vector
from skipstone_shared.stored_entries import MAX_CHUNK_BYTES
from skipstone_shared.tensor_messages import Array, array_bytes

_MAP_BYTES = 16 << 30


class RawLmdb:
    """Values in LMDB, each in a row of its own."""

    def __init__(self, directory: Path) -> None:
        """Creates an environment."""
        self._env = lmdb.open(str(directory), map_size=_MAP_BYTES)

    def put(self, values: dict[str, Array]) -> None:
        """Writes values in one transaction, with an fsync."""
        with self._env.begin(write=True) as txn:
            for key, array in values.items():
                txn.put(key.encode(), array_bytes(array))

    def get(self, key: str) -> bytes:
        """A copy of a value."""
        with self._env.begin(buffers=True) as txn:
            value = txn.get(key.encode())
            if value is None:
                raise SystemExit("LMDB has lost a value")
            return bytes(value)

    def close(self) -> None:
        """Closes it."""
        self._env.close()


class Echo:
    """A gRPC stream of the same bytes in the same pieces from another process."""

    def __init__(self, log: Path) -> None:
        """Starts the server."""
        self._process = ServerProcess(python(str(Path(echo_server.__file__))), log)
        self._channel = grpc.insecure_channel(
            self._process.address(), [("grpc.enable_http_proxy", 0)]
        )
        self._send: Any = self._channel.unary_stream(f"/{echo_server.SERVICE}/{echo_server.METHOD}")

    @property
    def pids(self) -> list[int]:
        """The server's process."""
        return [self._process.pid]

    def read(self, size_bytes: int) -> None:
        """Receives so many bytes, and drops them."""
        request = json.dumps([size_bytes, MAX_CHUNK_BYTES]).encode()
        received = sum(len(piece) for piece in self._send(request, timeout=60.0))
        if received != size_bytes:
            raise SystemExit(f"the echo gave {received} of {size_bytes} bytes")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._channel.close()
        self._process.end()


def search_graph(graph: hnswlib.Index, query: Vector) -> list[int]:
    """The rows that hnswlib finds."""
    (found,), _ = graph.knn_query(query[None], k=TOP_K, num_threads=1)
    rows: list[int] = found.tolist()
    return rows


class Copy:
    """A copy of so many bytes into memory that is there already."""

    def __init__(self, array: Array) -> None:
        """Takes what to copy."""
        self._source = array
        self._target: Any = np.empty_like(array)

    def run(self) -> None:
        """Copies it."""
        np.copyto(self._target, self._source)


def run_all(copies: Sequence[Copy]) -> None:
    """Runs several copies."""
    for copy in copies:
        copy.run()
