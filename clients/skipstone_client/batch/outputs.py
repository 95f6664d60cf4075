"""The folder of a batch: pictures, and a manifest that says which rows are done.

A picture is written beside its name, brought to disk and renamed; then one line of the manifest
tells of it. So whatever is killed when, a row is done or it is not: a file that no line tells of,
or that is not what its line says, does not count.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import TypeAdapter

from skipstone_client.artifact_names import UNFINISHED, suffix_of
from skipstone_client.batch.rows import Row
from skipstone_client.json_values import plain
from skipstone_shared.errors import FailedPrecondition, InvalidArgument, SkipstoneError
from skipstone_shared.orchestration import GenerateResult

MANIFEST = "manifest.jsonl"
_LOCK = ".lock"
_FIELD = "--out"


@dataclasses.dataclass(frozen=True, slots=True)
class Maker:
    """What makes the pictures of a batch, beside its file.

    Attributes:
        target: Address of the orchestrator.
        model_id: Model that it tells; empty where it knows none.
        options: What the command line says for all rows, under the names of requests.
    """

    target: str
    model_id: str
    options: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a row, one line of the manifest.

    Attributes:
        row: Number of the row in the file when it ran.
        key: Its key.
        status: `done` or `failed`.
        prompt: Its prompt.
        file: Name of the picture in the folder; where it failed of one that is not whole, or empty.
        size_bytes: Size of the picture.
        sha256: Hash of its bytes, as `sha256sum` prints it.
        media_type: Kind of the picture.
        provenance: Where it comes from, as JSON has it.
        error: What went wrong, for people; of a row that is done, when it was made anew.
        reason: The same for programs.
        asked: Hash of all that it asks for, options included.
        target: Orchestrator that was asked.
        model_id: Model that it told.
        options: What the command line said for all rows.
        references: Hashes of the files that condition it, by role.
    """

    row: int
    key: str
    status: str
    prompt: str
    file: str = ""
    size_bytes: int = 0
    sha256: str = ""
    media_type: str = ""
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    error: str = ""
    reason: str = ""
    asked: str = ""
    target: str = ""
    model_id: str = ""
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    references: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)


_OUTCOMES = TypeAdapter(Outcome)


class BatchFolder:
    """The folder of one batch; one process at a time. Methods may be called from any thread."""

    def __init__(self, path: Path) -> None:
        """Opens the folder, makes it where it is not there, and reads its manifest.

        Raises:
            InvalidArgument: It cannot be written.
            FailedPrecondition: Another process has it.
        """
        self.path = path
        self._appending = threading.Lock()
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(path / _LOCK, os.O_CREAT | os.O_RDWR, 0o644)
        except OSError as error:
            raise InvalidArgument(f"cannot use {path}: {error.strerror}", field=_FIELD) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._outcomes = {outcome.key: outcome for outcome in _lines(path / MANIFEST)}
            self._manifest = self._written_anew()
        except BlockingIOError:
            os.close(self._lock)
            raise FailedPrecondition(f"another process works in {path}") from None
        except OSError as error:
            os.close(self._lock)
            raise InvalidArgument(f"cannot use {path}: {error.strerror}", field=_FIELD) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._manifest)
        os.close(self._lock)

    def done(self, row: Row) -> Outcome | None:
        """What a row gave before, if its picture is whole; None where it has to run."""
        outcome = self._outcomes.get(row.key)
        if outcome is None or outcome.status != "done" or not _is_whole(self.path, outcome):
            return None
        return outcome

    def keep(self, row: Row, result: GenerateResult, maker: Maker) -> Outcome:
        """Writes the picture of a row and then its line.

        Raises:
            OSError: One of them cannot be written; the row is not done.
        """
        artifact = result.artifact
        stem = row.name or f"{row.number:05d}-{row.key[:8]}"
        name = stem + suffix_of(artifact.media_type)
        _write_whole(self.path / name, artifact.data)
        outcome = dataclasses.replace(
            _begun(row, maker),
            status="done",
            file=name,
            size_bytes=len(artifact.data),
            sha256=hashlib.sha256(artifact.data).hexdigest(),
            media_type=artifact.media_type,
            provenance=plain(result.provenance),
        )
        before = self._outcomes.get(row.key)
        self._append(outcome)
        if before is not None and before.file not in ("", name):
            # Made anew as something of another kind: nothing tells of the old one any more.
            (self.path / Path(before.file).name).unlink(missing_ok=True)
        return outcome

    def note_failure(self, row: Row, error: SkipstoneError, maker: Maker) -> Outcome:
        """Writes that a row failed; the next run tries it again.

        A row that was done, and failed when it was made anew, stays done as it was: its line tells
        of the error too.

        Returns:
            The failure alone.

        Raises:
            OSError: It cannot be written.
        """
        before = self._outcomes.get(row.key)
        done = self.done(row)
        failed = dataclasses.replace(
            _begun(row, maker), status="failed", error=error.message, reason=error.reason
        )
        if done is not None:
            line = dataclasses.replace(done, error=error.message, reason=error.reason)
        else:
            # What is there and not whole goes when the row is made as something of another kind.
            line = dataclasses.replace(failed, file=before.file if before else "")
        self._append(line)
        return failed

    def _append(self, outcome: Outcome) -> None:
        line = _line(outcome)
        with self._appending:
            _write_all(self._manifest, line)
            os.fsync(self._manifest)
            self._outcomes[outcome.key] = outcome

    def _written_anew(self) -> int:
        """Writes the last line of every row, without one that a kill cut; opens it to append."""
        path = self.path / MANIFEST
        for left in self.path.glob(f"*{UNFINISHED}"):
            left.unlink()
        _write_whole(path, b"".join(map(_line, self._outcomes.values())))
        return os.open(path, os.O_WRONLY | os.O_APPEND)


def _begun(row: Row, maker: Maker) -> Outcome:
    """What is told of a row, however it ends."""
    hashes: dict[str, list[str]] = {}
    for file in row.references:
        hashes.setdefault(file.role.value, []).append(file.sha256)
    return Outcome(
        row.number,
        row.key,
        "",
        row.params.prompt,
        asked=row.asked,
        target=maker.target,
        model_id=maker.model_id,
        options=maker.options,
        references=hashes,
    )


def _line(outcome: Outcome) -> bytes:
    text = json.dumps(plain(outcome), ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _lines(path: Path) -> list[Outcome]:
    """The outcomes of a manifest; a line that is not whole tells nothing."""
    if not path.exists():
        return []
    found = []
    for line in path.read_bytes().splitlines():
        try:
            found.append(_OUTCOMES.validate_python(json.loads(line)))
        except ValueError:
            continue
    return found


def _is_whole(folder: Path, outcome: Outcome) -> bool:
    try:
        data = (folder / outcome.file).read_bytes()
    except OSError:
        return False
    return hashlib.sha256(data).hexdigest() == outcome.sha256


def _write_all(descriptor: int, data: bytes) -> None:
    """Writes all of it: a disk that is nearly full takes a part without an error."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _write_whole(path: Path, data: bytes) -> None:
    """Writes a file so that it is there as a whole or not at all, also after a loss of power."""
    unfinished = path.with_name(path.name + UNFINISHED)
    with unfinished.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
