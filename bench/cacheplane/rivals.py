"""What people use: FAISS for the search, and Redis or one file per snapshot for the latents.

Both get away with less than a service promises: vectors are in this process and not saved, Redis
keeps nothing on disk, files are not synced. Each keeps what it must to find an entry again: where
one JSON file holds the index, it is written anew with every save.
"""

from __future__ import annotations

import json
import shutil
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import faiss
import redis
import torch

from cacheplane.entries import MEASURED_STEP, STEPS, Sizes, entry_id, latents
from cacheplane.services import TOP_K
from server_process import ServerProcess, wait_until
from skipstone_shared.index_entries import Vector
from skipstone_shared.tensor_messages import Array, array_bytes


class Rival(Protocol):
    """Answers hits and takes saves."""

    @property
    def name(self) -> str:
        """What it is made of."""
        ...

    @property
    def pids(self) -> Sequence[int]:
        """Its processes beside this one."""
        ...

    def fill(self, sizes: Sizes) -> None:
        """Stores the entries."""
        ...

    def hit(self, query: Vector) -> Any:
        """A search, then a read."""
        ...

    def save(self, row: int, arrays: Sequence[Array], vector: Vector) -> None:
        """What a run leaves."""
        ...

    def delete(self, row: int) -> None:
        """Frees the latents of an entry."""
        ...

    def close(self) -> None:
        """Ends it."""
        ...


class FaissIndex:
    """FAISS HNSW in this process; row numbers are told by the place of a vector."""

    def __init__(self, index: faiss.Index, entries: int) -> None:
        """Takes an index of the first rows."""
        faiss.omp_set_num_threads(1)
        self._index = index
        self._rows = list(range(entries))

    def nearest(self, query: Vector) -> int:
        """The row of the closest vector among the ten that are looked for."""
        _, places = self._index.search(query[None], TOP_K)
        return self._rows[int(places[0, 0])]

    def add(self, row: int, vector: Vector) -> None:
        """Adds a vector."""
        self._index.add(vector[None])
        self._rows.append(row)


class RedisRival:
    """Redis beside FAISS: a value per snapshot."""

    name: str = "FAISS HNSW + Redis"

    def __init__(self, index: FaissIndex, directory: Path) -> None:
        """Starts a server on a free port that keeps nothing on disk."""
        self._index = index
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        flags = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self._process = ServerProcess(["redis-server", *flags], directory / "redis.log")
        self._client = redis.Redis(port=port)
        wait_until(self._answers, "Redis answers")

    @property
    def pids(self) -> Sequence[int]:
        """The server."""
        return [self._process.pid]

    def fill(self, sizes: Sizes) -> None:
        """Stores every entry, those with a measured size as such."""
        measured = sizes.by_row()
        small = bytes(array_bytes(latents(0, None)))
        with self._client.pipeline(transaction=False) as pipeline:
            for row in range(sizes.entries):
                mb = measured.get(row)
                value = small if mb is None else bytes(array_bytes(latents(row, mb)))
                pipeline.set(_key(row, MEASURED_STEP), value)
                if mb is not None or row % 1000 == 0:
                    pipeline.execute()
            pipeline.execute()

    def hit(self, query: Vector) -> bytes:
        """A search and a GET."""
        value = self._client.get(_key(self._index.nearest(query), MEASURED_STEP))
        if not isinstance(value, bytes):
            raise SystemExit("Redis has lost a value")
        return value

    def save(self, row: int, arrays: Sequence[Array], vector: Vector) -> None:
        """A SET per snapshot."""
        for step, array in zip(STEPS, arrays, strict=True):
            self._client.set(_key(row, step), array_bytes(array))
        self._index.add(row, vector)

    def delete(self, row: int) -> None:
        """A DEL of all snapshots."""
        self._client.delete(*(_key(row, step) for step in STEPS))

    def close(self) -> None:
        """Ends the server."""
        self._client.close()
        self._process.end(kill=True)

    def _answers(self) -> bool:
        try:
            return bool(self._client.ping())
        except redis.ConnectionError:
            return False


class FilesRival:
    """A file per snapshot, as torch.save writes it, and one JSON file for what there is."""

    name = "FAISS HNSW + torch files"

    def __init__(self, index: FaissIndex, directory: Path) -> None:
        """Creates an empty directory."""
        self._index = index
        self._directory = directory / "files"
        self._directory.mkdir()
        self._entries: dict[str, dict[str, str]] = {}

    @property
    def pids(self) -> Sequence[int]:
        """None: all of it happens in this process."""
        return []

    def fill(self, sizes: Sizes) -> None:
        """Lists every entry, and writes the files of those that are read."""
        for row in range(sizes.entries):
            self._entries[entry_id(row)] = {str(s): self._path(row, s).name for s in STEPS}
        for row, mb in sizes.by_row().items():
            torch.save(_tensor(latents(row, mb)), self._path(row, MEASURED_STEP))
        self._write_index()

    def hit(self, query: Vector) -> torch.Tensor:
        """A search and a torch.load."""
        name = self._entries[entry_id(self._index.nearest(query))][str(MEASURED_STEP)]
        tensor: torch.Tensor = torch.load(self._directory / name, weights_only=True)
        return tensor

    def save(self, row: int, arrays: Sequence[Array], vector: Vector) -> None:
        """A torch.save per snapshot, and the index anew."""
        for step, array in zip(STEPS, arrays, strict=True):
            torch.save(_tensor(array), self._path(row, step))
        self._entries[entry_id(row)] = {str(s): self._path(row, s).name for s in STEPS}
        self._index.add(row, vector)
        self._write_index()

    def delete(self, row: int) -> None:
        """Removes the files."""
        for name in self._entries.pop(entry_id(row)).values():
            (self._directory / name).unlink()

    def close(self) -> None:
        """Nothing runs."""

    def _path(self, row: int, step: int) -> Path:
        return self._directory / f"{entry_id(row)}.{step}.pt"

    def _write_index(self) -> None:
        fresh = self._directory / "index.json.new"
        fresh.write_text(json.dumps(self._entries), encoding="utf-8")
        fresh.replace(self._directory / "index.json")


@contextmanager
def rivals(index: FaissIndex, directory: Path, sizes: Sizes) -> Iterator[list[Rival]]:
    """All rivals that can run here, filled; says loudly which cannot."""
    with ExitStack() as stack:
        found: list[Rival] = [FilesRival(index, directory)]
        if shutil.which("redis-server"):
            found.append(RedisRival(index, directory))
        else:
            print("NOT MEASURED: Redis, since there is no redis-server", file=sys.stderr)
        for rival in found:
            stack.callback(rival.close)
            rival.fill(sizes)
        yield found


def _key(row: int, step: int) -> str:
    return f"{entry_id(row)}:{step}"


def _tensor(array: Array) -> torch.Tensor:
    return torch.from_numpy(array.view("<i2")).view(torch.bfloat16)
