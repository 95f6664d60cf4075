"""The names of a partition <-> the bytes of its row: JSON [namespace, compatibility key, checksum].

The checksum covers the partition's number too. Rows of earlier versions have none.
"""

from __future__ import annotations

import json

from skipstone_shared.errors import DataCorrupt
from skipstone_shared.latents import checksum

Names = tuple[str, str]
"""Namespace and compatibility key."""


def encode_partition(number: int, names: Names) -> bytes:
    """Returns the row of a partition."""
    return json.dumps([*names, _digest(number, names)]).encode()


def decode_partition(number: int, row: bytes) -> Names:
    """Returns the names in a row.

    Raises:
        DataCorrupt: It is damaged; what was another partition's must not be offered under its name.
    """
    try:
        namespace, key, *digest = json.loads(row)
    except (ValueError, TypeError) as error:
        raise DataCorrupt(f"the names of partition {number} cannot be read") from error
    names = str(namespace), str(key)
    if digest and digest != [_digest(number, names)]:
        raise DataCorrupt(f"the names of partition {number} fail their checksum")
    return names


def _digest(number: int, names: Names) -> str:
    return f"{checksum(json.dumps([number, *names]).encode()):016x}"
