"""The label of metrics that tells which store they are about."""

from __future__ import annotations

import hashlib


def store_label(kind: str, *place: object) -> str:
    """A short name of a store, the same in all processes that share it and in no others.

    Replicas of a service that share one store tell the whole of it each, so that whoever adds up
    takes each store once.

    Args:
        kind: Of store, with which the name begins.
        place: Where it is, without secrets, each part with a text of its own; of a store that
            only one process may have open, the process.

    Returns:
        Such as ``redis-1f0c9a2e``.
    """
    return f"{kind}-{hashlib.sha256(repr(place).encode()).hexdigest()[:8]}"
