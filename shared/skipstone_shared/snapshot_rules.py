"""What the metadata of a snapshot must satisfy, before a store keeps it and after a wire.

The bounds keep a whole entry small enough to be listed: without them one writer could store what
no message carries back. ``latent.proto`` states them too.
"""

from __future__ import annotations

import json
import math
import re

from skipstone_shared.errors import InvalidArgument
from skipstone_shared.latents import (
    LATENTS_PART,
    PART_NAME_PATTERN,
    SnapshotMetadata,
    TensorPart,
    TensorSpec,
    checked_entry_id,
)

COMPATIBILITY_KEY_PATTERN = re.compile(r"[0-9a-f]{32}")
MAX_PARTS = 64
MAX_DIMENSIONS = 32
"""As many as numpy 1 can have; numpy 2 has 64."""

MAX_SCHEDULER_STATE_BYTES = 16 << 10


def checked_metadata(metadata: SnapshotMetadata) -> SnapshotMetadata:
    """The metadata.

    Raises:
        InvalidArgument: a field is out of its range.
    """
    checked_entry_id(metadata.entry_id)
    if metadata.num_inference_steps < 1:
        raise InvalidArgument(
            f"num_inference_steps is {metadata.num_inference_steps}",
            field="metadata.num_inference_steps",
            allowed="1 and up",
        )
    if not 0 <= metadata.step_index <= metadata.num_inference_steps:
        raise InvalidArgument(
            f"step_index {metadata.step_index} lies outside the run",
            field="metadata.step_index",
            allowed=f"0 to num_inference_steps ({metadata.num_inference_steps})",
        )
    if not 0 <= metadata.sigma < math.inf:
        raise InvalidArgument(
            f"sigma {metadata.sigma} is not a noise level",
            field="metadata.sigma",
            allowed="finite, 0 and up",
        )
    if metadata.depth < 0:
        raise InvalidArgument("depth is negative", field="metadata.depth", allowed="0 and up")
    if not COMPATIBILITY_KEY_PATTERN.fullmatch(metadata.compatibility_key):
        raise InvalidArgument(
            f"compatibility_key {metadata.compatibility_key[:80]!r} is not a key",
            field="metadata.compatibility_key",
            allowed="32 hexadecimal digits in lower case",
        )
    _check_parts(metadata.parts)
    _check_scheduler_state(metadata.scheduler_state_json)
    return metadata


def checked_spec(spec: TensorSpec) -> TensorSpec:
    """The spec.

    Raises:
        InvalidArgument: a dimension is below 1, or there are too many.
    """
    if len(spec.shape) > MAX_DIMENSIONS:
        raise InvalidArgument(
            f"shape of {len(spec.shape)} dimensions",
            field="shape",
            allowed=f"up to {MAX_DIMENSIONS} dimensions",
        )
    if any(size < 1 for size in spec.shape):
        raise InvalidArgument(
            f"shape {spec.shape} has a dimension below 1",
            field="shape",
            allowed="sizes of at least 1",
        )
    return spec


def _check_parts(parts: tuple[TensorPart, ...]) -> None:
    names = [part.name for part in parts]
    if not (
        1 <= len(names) <= MAX_PARTS
        and names[0] == LATENTS_PART
        and len(set(names)) == len(names)
        and all(PART_NAME_PATTERN.fullmatch(name) for name in names)
    ):
        raise InvalidArgument(
            f"{len(names)} parts named {[name[:80] for name in names[:8]]}",
            field="metadata.parts",
            allowed=f"1 to {MAX_PARTS}, unique names of 1 to 128 of [a-z0-9_.], the first one "
            f"{LATENTS_PART!r}",
        )
    if not parts[0].spec.dtype.is_floating:
        raise InvalidArgument(
            "latents are integers",
            field="metadata.parts[0].spec.dtype",
            allowed="a floating element type",
        )
    for part in parts:
        checked_spec(part.spec)


def _check_scheduler_state(text: str) -> None:
    if text and not _is_small_json_object(text):
        raise InvalidArgument(
            f"scheduler_state_json of {len(text)} characters",
            field="metadata.scheduler_state_json",
            allowed=f"a JSON object of up to {MAX_SCHEDULER_STATE_BYTES} bytes, or empty",
        )


def _is_small_json_object(text: str) -> bool:
    if len(text.encode("utf-8", "replace")) > MAX_SCHEDULER_STATE_BYTES:
        return False
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):  # RecursionError: deeply nested
        return False
