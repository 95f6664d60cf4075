"""Reads a file of prompts: one a line, or JSON lines or CSV with parameters of each row."""

from __future__ import annotations

import csv
import dataclasses
import difflib
import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from skipstone_client.json_values import plain
from skipstone_shared.block_cache_json import block_cache_from_text, parse_block_cache
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import MAX_SEED, BlockCacheConfig, GenerationParams
from skipstone_shared.orchestration import CacheMode, CacheOptions

_FIELD = "--file"
_KEY_DIGITS = 12


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One request of a file.

    Attributes:
        number: Its line in the file, from 1; of CSV without the header, of JSON and text lines
            without empty ones.
        key: Tells it from every other row: a hash of all that it asks for, its name and namespace,
            so that it stays the same when rows are put before it.
        name: Stem of its output's name; empty where the file gives none.
        params: What to generate.
        cache: How to use the cache.
    """

    number: int
    key: str
    name: str
    params: GenerationParams
    cache: CacheOptions


def read_rows(
    path: Path, params: GenerationParams, cache: CacheOptions, namespace: str = ""
) -> list[Row]:
    """All rows of a file: `.jsonl` or `.ndjson`, `.csv` or `.tsv`, else a prompt a line.

    Args:
        path: The file, UTF-8.
        params: What a row does not say; its prompt is not used.
        cache: Likewise.
        namespace: Where the rows run.

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
    rows = list(_numbered(path, text, params, cache, namespace))
    if not rows:
        raise InvalidArgument(f"{path} has no row", field=_FIELD)
    _check_names(path, rows)
    return rows


def _numbered(
    path: Path, text: str, params: GenerationParams, cache: CacheOptions, namespace: str
) -> Iterator[Row]:
    times: Counter[str] = Counter()
    for number, fields in enumerate(_fields(path, text), 1):
        try:
            asked = _AskedRow.model_validate(fields)
        except ValidationError as error:
            raise InvalidArgument(f"row {number} of {path}: {_told(error)}", field=_FIELD) from None
        row_params, row_cache = asked.params(params), asked.cache(cache)
        told = [plain(row_params), plain(row_cache), asked.name, namespace]
        content = json.dumps(told, sort_keys=True)
        times[content] += 1  # rows may be equal: without a seed each gives another picture
        digest = hashlib.sha256(f"{times[content]}:{content}".encode("utf-8", "surrogatepass"))
        yield Row(number, digest.hexdigest()[:_KEY_DIGITS], asked.name, row_params, row_cache)


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


def _told(error: ValidationError) -> str:
    first = error.errors()[0]
    name = ".".join(map(str, first["loc"]))
    if first["type"] != "extra_forbidden":
        return f"{name}: {first['msg']}"
    near = difflib.get_close_matches(name, _COLUMNS, 1)
    hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(_COLUMNS)}"
    return f"{name} is no column{hint}"


def _block_cache(value: object) -> BlockCacheConfig:
    try:
        if isinstance(value, Mapping):
            return parse_block_cache(value)
        return block_cache_from_text(str(value))
    except InvalidArgument as error:
        raise ValueError(str(error)) from None


def _no_switch(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("is a number, not true or false")  # pydantic would take it for 1 or 0
    return value


_Int = Annotated[int, BeforeValidator(_no_switch)]
_Float = Annotated[float, BeforeValidator(_no_switch)]


class _AskedRow(BaseModel):
    """The columns, under the names of the options of `skipstone generate`."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    prompt: str = Field(min_length=1)
    name: str = Field(default="", pattern=r"^[\w][\w.-]{0,99}$")
    negative_prompt: str | None = None
    steps: _Int | None = Field(None, validation_alias=AliasChoices("steps", "num_inference_steps"))
    guidance: _Float | None = Field(
        None, validation_alias=AliasChoices("guidance", "guidance_scale")
    )
    guidance_scale_2: _Float | None = None
    height: _Int | None = None
    width: _Int | None = None
    num_frames: _Int | None = None
    seed: Annotated[_Int, Field(ge=0, le=MAX_SEED)] | None = None
    shift: _Float | None = None
    cache_mode: CacheMode | None = None
    cache_config: Annotated[BlockCacheConfig, BeforeValidator(_block_cache)] | None = Field(
        None, validation_alias=AliasChoices("cache_config", "block_cache")
    )

    def params(self, others: GenerationParams) -> GenerationParams:
        """What to generate, with what the row does not say taken from others."""
        said: dict[str, Any] = {
            "negative_prompt": self.negative_prompt,
            "num_inference_steps": self.steps,
            "guidance_scale": self.guidance,
            "guidance_scale_2": self.guidance_scale_2,
            "height": self.height,
            "width": self.width,
            "num_frames": self.num_frames,
            "seed": self.seed,
            "shift": self.shift,
            "block_cache": self.cache_config,
        }
        changes = {name: value for name, value in said.items() if value is not None}
        return dataclasses.replace(others, prompt=self.prompt, **changes)

    def cache(self, others: CacheOptions) -> CacheOptions:
        """How to use the cache, likewise."""
        if self.cache_mode is None:
            return others
        return dataclasses.replace(others, mode=self.cache_mode)


_COLUMNS = tuple(_AskedRow.model_fields)
