"""What an index accepts: the checks every implementation makes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from skipstone_shared.errors import InvalidArgument
from skipstone_shared.index_entries import IndexEntry, Vector, VectorEntry
from skipstone_shared.latents import NAMESPACE_PATTERN, LatentRef, checked_entry_id
from skipstone_shared.snapshot_rules import checked_spec
from skipstone_vector_index.vector_form import VectorForm

MAX_BATCH_SIZE = 1000
MAX_TOP_K = 1000
MAX_PAGE_SIZE = 1000
MAX_PROMPT_BYTES = 20_000
MAX_LABELS = 16
MAX_LABEL_BYTES = 256

_INT64 = range(-(2**63), 2**63)
_INT32 = range(2**31)
_YEAR_10000 = 253_402_300_800
"""In seconds since the epoch; a `google.protobuf.Timestamp` ends there."""


def checked_compatibility_key(key: str) -> str:
    """Returns the key.

    Raises:
        InvalidArgument: It is no name.
    """
    if not NAMESPACE_PATTERN.fullmatch(key):
        raise InvalidArgument(
            f"compatibility_key {key[:80]!r} is not a key",
            field="compatibility_key",
            allowed="1 to 64 characters of [A-Za-z0-9_.-]",
        )
    return key


def check_count(field: str, count: int, limit: int = MAX_BATCH_SIZE) -> None:
    """Checks the number of things in a call, or a number that the caller chose.

    Raises:
        InvalidArgument: It is not 1 to ``limit``.
    """
    if not 1 <= count <= limit:
        raise InvalidArgument(f"{field} is {count}", field=field, allowed=f"1 to {limit}")


def checked_entry(
    entry: VectorEntry, form: VectorForm, dimension: int | None
) -> tuple[IndexEntry, Vector]:
    """Returns an entry and its vector as it is kept.

    Args:
        entry: What the caller sent.
        form: How the index keeps vectors.
        dimension: Elements a vector of the partition has; None when it has no entries.

    Raises:
        InvalidArgument: A field of it is not allowed.
    """
    info = entry.entry
    checked_entry_id(info.entry_id)
    _check_size("prompt", info.prompt, MAX_PROMPT_BYTES)
    if len(info.labels) > MAX_LABELS:
        raise InvalidArgument(
            f"{len(info.labels)} labels", field="labels", allowed=f"at most {MAX_LABELS}"
        )
    for name, value in info.labels.items():
        _check_size("labels", name, MAX_LABEL_BYTES)
        _check_size("labels", value, MAX_LABEL_BYTES)
    _check_size("embedding_model_id", info.embedding_model_id, MAX_PROMPT_BYTES)
    if info.seed not in _INT64:
        raise InvalidArgument(
            "seed is no 64-bit integer", field="seed", allowed="-2**63 to 2**63-1"
        )
    if info.depth not in _INT32:
        raise InvalidArgument(f"depth is {info.depth}", field="depth", allowed="0 to 2**31-1")
    if not 0 <= info.create_time < _YEAR_10000:
        raise InvalidArgument(
            f"create_time is {info.create_time}",
            field="create_time",
            allowed="seconds since the epoch, 0 up to the year 9999",
        )
    _check_snapshots(info.snapshots)
    kept = form.stored(entry.vector, dimension)
    return dataclasses.replace(info, labels=dict(info.labels)), kept


def _check_snapshots(snapshots: Sequence[LatentRef]) -> None:
    steps = [ref.step_index for ref in snapshots]
    if steps != sorted(set(steps)) or min(steps, default=0) < 0:
        raise InvalidArgument(
            f"snapshots are at steps {steps[:8]}",
            field="snapshots",
            allowed="each step_index once, ascending, from 0",
        )
    for ref in snapshots:
        checked_entry_id(ref.entry_id)
        if ref.spec is not None:
            checked_spec(ref.spec)


def _check_size(field: str, text: str, limit: int) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidArgument(
            f"{field} is not valid Unicode", field=field, allowed="text without lone surrogates"
        ) from None
    if size > limit:
        raise InvalidArgument(
            f"{field} has {size} bytes", field=field, allowed=f"at most {limit} bytes"
        )


def check_min_similarity(value: float | None) -> None:
    """Checks the lower bound of a search.

    Raises:
        InvalidArgument: It is not a number.
    """
    if value is not None and math.isnan(value):
        raise InvalidArgument(
            "min_similarity is not a number", field="min_similarity", allowed="-1 to 1"
        )
