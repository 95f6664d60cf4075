"""Reads a file of prompts: one a line, or JSON lines or CSV with parameters of each row."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from skipstone_client.batch.columns import AskedRow, read_columns
from skipstone_client.json_values import plain
from skipstone_client.reference_files import ReferenceFile, ReferenceFiles, check_together
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import GenerationParams, ReferenceRole
from skipstone_shared.orchestration import CacheOptions

_FIELD = "--file"
_KEY_DIGITS = 12
_ROLES = tuple(ReferenceRole)
"""In the order in which pipelines take them."""


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One request of a file.

    Attributes:
        number: Its line in the file, from 1; of CSV without the header, of JSON and text lines
            without empty ones.
        key: Tells it from every other row: a hash of what the file says of it, so that it stays the
            same when rows are put before it and when options are changed.
        name: Stem of its output's name; empty where the file gives none.
        params: What to generate, without its files.
        cache: How to use the cache.
        asked: Hash of all that it asks for, options and namespace included.
        references: The files that condition it.
    """

    number: int
    key: str
    name: str
    params: GenerationParams
    cache: CacheOptions
    asked: str = ""
    references: tuple[ReferenceFile, ...] = ()

    def whole_params(self) -> GenerationParams:
        """What to generate; its files are read now, so that waiting rows hold none of them.

        Raises:
            InvalidArgument: A file is not what it was when the rows were read.
        """
        inputs = tuple(file.read() for file in self.references)
        return dataclasses.replace(self.params, reference_inputs=inputs)


def read_rows(
    path: Path,
    params: GenerationParams,
    cache: CacheOptions,
    namespace: str = "",
    references: Sequence[ReferenceFile] = (),
) -> list[Row]:
    """All rows of a file: `.jsonl` or `.ndjson`, `.csv` or `.tsv`, else a prompt a line.

    Args:
        path: The file, UTF-8. Files that rows name are relative to its folder.
        params: What a row does not say; its prompt is not used.
        cache: Likewise.
        namespace: Where the rows run.
        references: Files of rows that name none of the same role.

    Raises:
        InvalidArgument: The file cannot be read or has no row, or one has an unknown column or an
            impossible value; names the row.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidArgument(f"cannot read {path}: {error.strerror}", field=_FIELD) from None
    except UnicodeDecodeError:
        raise InvalidArgument(f"{path} is not UTF-8", field=_FIELD) from None
    others = _Others(params, cache, namespace, tuple(references))
    rows = list(_numbered(path, text, others))
    if not rows:
        raise InvalidArgument(f"{path} has no row", field=_FIELD)
    _check_names(path, rows)
    return rows


@dataclasses.dataclass(frozen=True, slots=True)
class _Others:
    """What holds where a row says nothing."""

    params: GenerationParams
    cache: CacheOptions
    namespace: str
    references: tuple[ReferenceFile, ...]


def _numbered(path: Path, text: str, others: _Others) -> Iterator[Row]:
    times: Counter[str] = Counter()
    files = ReferenceFiles()
    for number, fields in enumerate(_fields(path, text), 1):
        try:
            said = read_columns(fields)
            own = _own_files(said, path.parent, files)
            references = _references(said, own, others.references)
        except InvalidArgument as error:
            raise InvalidArgument(f"row {number} of {path}: {error}", field=_FIELD) from None
        content = _text([said.told(), _hashes(own)])
        times[content] += 1  # rows may be equal: without a seed each gives another picture
        params, cache = said.params(others.params), said.cache(others.cache)
        asked = [_given(params), _given(cache), others.namespace, _hashes(references)]
        yield Row(
            number,
            _digest(f"{times[content]}:{content}")[:_KEY_DIGITS],
            said.name or "",
            params,
            cache,
            _digest(_text(asked)),
            references,
        )


def _own_files(said: AskedRow, folder: Path, files: ReferenceFiles) -> list[ReferenceFile]:
    return [
        files.look_at(role, folder / name, role.value)
        for role, names in said.files().items()
        for name in names
    ]


def _references(
    said: AskedRow, own: Sequence[ReferenceFile], others: Sequence[ReferenceFile]
) -> tuple[ReferenceFile, ...]:
    """The files of a row in the order in which pipelines take them."""
    kept = [file for file in others if file.role not in said.files()]
    both = sorted([*kept, *own], key=lambda file: _ROLES.index(file.role))
    check_together(both, "image")
    return tuple(both)


def _given(group: object) -> dict[str, Any]:
    """What is not left to the server: so that options which later versions have change no hash."""
    return {name: value for name, value in plain(group).items() if value not in (None, "", [])}


def _hashes(references: Sequence[ReferenceFile]) -> list[list[str]]:
    return [[file.role.value, file.sha256] for file in references]


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _fields(path: Path, text: str) -> Iterator[Mapping[str, Any]]:
    suffix = path.suffix.lower()
    # Not `splitlines`, which ends lines at signs that a JSON text may hold.
    lines = (line.strip() for line in text.split("\n") if line.strip())
    if suffix in (".csv", ".tsv"):
        yield from _csv_rows(path, text, "\t" if suffix == ".tsv" else ",")
    elif suffix in (".jsonl", ".ndjson"):
        for number, line in enumerate(lines, 1):
            yield _object(path, number, line)
    else:
        for line in lines:
            yield {"prompt": line}


def _csv_rows(path: Path, text: str, delimiter: str) -> Iterator[Mapping[str, Any]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        for number, row in enumerate(reader, 1):
            if None in row:
                raise InvalidArgument(
                    f"row {number} of {path} has more cells than the header", field=_FIELD
                )
            # An empty cell says nothing.
            yield {name: cell for name, cell in row.items() if cell}
    except csv.Error as error:
        raise InvalidArgument(f"{path}: {error}", field=_FIELD) from None


def _object(path: Path, number: int, line: str) -> Mapping[str, Any]:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise InvalidArgument(f"row {number} of {path} is no JSON: {error}", field=_FIELD) from None
    if not isinstance(value, dict):
        raise InvalidArgument(f"row {number} of {path} is no JSON object", field=_FIELD)
    return {name: item for name, item in value.items() if item is not None}


def _check_names(path: Path, rows: list[Row]) -> None:
    twice = [name for name, times in Counter(row.name for row in rows).items() if times > 1]
    if any(twice):
        name = next(filter(None, twice))
        raise InvalidArgument(f"{path}: several rows have the name {name!r}", field=_FIELD)
