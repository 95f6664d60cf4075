"""Reads entries of records of format versions 1 and 2, which older releases wrote, from JSON.

A snapshot's reference is a list of its fields in the order that `LatentRef` had then.
"""

from __future__ import annotations

import json
from typing import Any

from skipstone_shared.index_entries import IndexEntry
from skipstone_shared.latents import DType, LatentRef, TensorSpec


def entry_from_json(entry_id: str, embedding_model_id: str, stored: bytes) -> IndexEntry:
    """Returns an entry.

    Args:
        entry_id: Its id, which the JSON has not.
        embedding_model_id: Model of its vector, which the JSON has not.
        stored: Its other fields.
    """
    fields: dict[str, Any] = json.loads(stored)
    return IndexEntry(
        entry_id=entry_id,
        prompt=fields["prompt"],
        seed=fields["seed"],
        snapshots=tuple(_ref(item) for item in fields["snapshots"]),
        depth=fields["depth"],
        create_time=fields["create_time"],
        embedding_model_id=embedding_model_id,
        labels=fields["labels"],
    )


def _ref(fields: list[Any]) -> LatentRef:
    namespace, entry_id, step_index, store, spec, xxh3_64, size_bytes, sigma, key = fields
    return LatentRef(
        namespace=namespace,
        entry_id=entry_id,
        step_index=step_index,
        store=store,
        spec=spec and TensorSpec(DType(spec[0]), tuple(spec[1:])),
        xxh3_64=xxh3_64,
        size_bytes=size_bytes,
        sigma=sigma,
        compatibility_key=key,
    )
