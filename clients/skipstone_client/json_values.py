"""What Skipstone answers, as JSON can hold it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any


def plain(value: Any) -> Any:
    """A value as JSON can hold it.

    Dataclasses become objects, enums their values, paths texts, bytes their size, numbers that are
    not finite null.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, bytes):
        return {"size_bytes": len(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
