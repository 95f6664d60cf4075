"""What a write must pass before a store keeps it: arguments, number of bytes, checksum, finiteness.

Every store uses these functions, so that no store keeps what another refuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from skipstone_shared.errors import DataCorrupt, InvalidArgument
from skipstone_shared.latents import (
    DType,
    LatentRef,
    SnapshotMetadata,
    TensorPart,
    checked_entry_id,
    checked_namespace,
    checksum,
)
from skipstone_shared.snapshot_rules import checked_metadata
from skipstone_shared.stored_entries import DEFAULT_LEASE_S, StoreCapabilities

# A floating number is NaN or infinite exactly when all bits of its exponent are set. Comparing bit
# patterns needs one pass of integer work; numpy's isfinite has no fast path for float16 and none
# at all for bfloat16 without widening to 32 bits.
_PATTERNS: dict[DType, tuple[str, int, int]] = {
    DType.FLOAT16: ("<u2", 0x7FFF, 0x7C00),
    DType.BFLOAT16: ("<u2", 0x7FFF, 0x7F80),
    DType.FLOAT32: ("<u4", 0x7FFF_FFFF, 0x7F80_0000),
    DType.FLOAT64: ("<u8", 0x7FFF_FFFF_FFFF_FFFF, 0x7FF0_0000_0000_0000),
}
_FINITE_BLOCK_BYTES = 1 << 18
"""The finite check works in blocks that stay in the processor's cache."""


def receive(
    metadata: SnapshotMetadata, data: Iterable[bytes | memoryview], size_bytes: int, xxh3_64: int
) -> memoryview:
    """Collects the bytes of one snapshot and checks them.

    The buffer is not zeroed, so that it takes memory only as its bytes arrive: a caller that
    declares much and sends nothing costs nothing.

    Raises:
        InvalidArgument: more or fewer bytes than declared, or a value is not finite.
        DataCorrupt: the bytes do not match the checksum.
    """
    received = np.empty(size_bytes, np.uint8).data
    filled = 0
    for chunk in data:
        end = filled + len(chunk)
        if end > size_bytes:
            raise InvalidArgument(
                f"more than the declared {size_bytes} bytes arrived",
                field="data",
                allowed=f"exactly size_bytes ({size_bytes})",
            )
        received[filled:end] = chunk
        filled = end
    if filled < size_bytes:
        raise InvalidArgument(
            f"{filled} of the declared {size_bytes} bytes arrived",
            field="data",
            allowed=f"exactly size_bytes ({size_bytes})",
        )
    if checksum(received) != xxh3_64:
        raise DataCorrupt("the bytes that arrived do not match xxh3_64; send them again")
    _check_finite(received, metadata.parts)
    return received


def check_header(
    metadata: SnapshotMetadata,
    size_bytes: int,
    lease_s: float | None,
    capabilities: StoreCapabilities,
) -> float:
    """Checks the arguments of a write and returns its lease in seconds.

    Raises:
        InvalidArgument: one of them is wrong.
    """
    checked_metadata(metadata)
    if size_bytes != metadata.size_bytes:
        raise InvalidArgument(
            f"size_bytes {size_bytes} where the parts need {metadata.size_bytes}",
            field="size_bytes",
            allowed="the bytes of all parts together",
        )
    if size_bytes > capabilities.max_snapshot_bytes:
        raise InvalidArgument(
            f"size_bytes {size_bytes} is above the largest snapshot",
            field="size_bytes",
            allowed=f"up to {capabilities.max_snapshot_bytes}",
        )
    return check_lease(DEFAULT_LEASE_S if lease_s is None else lease_s, capabilities)


def check_lease(lease_s: float, capabilities: StoreCapabilities) -> float:
    """Returns the lease.

    Raises:
        InvalidArgument: it is out of range.
    """
    if not capabilities.min_lease_s <= lease_s <= capabilities.max_lease_s:
        raise InvalidArgument(
            f"a lease of {lease_s} s",
            field="lease",
            allowed=f"{capabilities.min_lease_s:g} to {capabilities.max_lease_s:g} s",
        )
    return lease_s


def check_ref(namespace: str, ref: LatentRef) -> str:
    """Checks the arguments of a read and returns the namespace.

    Raises:
        InvalidArgument: one of them is wrong.
    """
    namespace = checked_namespace(namespace)
    checked_entry_id(ref.entry_id)
    if ref.namespace and ref.namespace != namespace:
        raise InvalidArgument(
            f"the reference is of namespace {ref.namespace[:80]!r}",
            field="ref.namespace",
            allowed=f"empty or {namespace!r}, the namespace of the call",
        )
    if ref.step_index < 0:
        raise InvalidArgument("step_index is negative", field="ref.step_index", allowed="0 and up")
    return namespace


def check_batch(entry_ids: Sequence[str], capabilities: StoreCapabilities) -> None:
    """Checks the ids of a batch.

    Raises:
        InvalidArgument: none, too many, or a bad one.
    """
    if not 1 <= len(entry_ids) <= capabilities.max_batch_size:
        raise InvalidArgument(
            f"{len(entry_ids)} ids in one call",
            field="entry_ids",
            allowed=f"1 to {capabilities.max_batch_size}",
        )
    for entry_id in entry_ids:
        checked_entry_id(entry_id)


def check_page(page_size: int, page_token: str) -> None:
    """Checks the place and size of a page; a token is the id of the last entry before it.

    Raises:
        InvalidArgument: one of them is wrong.
    """
    if not 1 <= page_size <= 1000:
        raise InvalidArgument(f"page_size {page_size}", field="page_size", allowed="1 to 1000")
    if page_token:
        try:
            checked_entry_id(page_token)
        except InvalidArgument:
            raise InvalidArgument(
                "page_token is not one that a listing returned",
                field="page_token",
                allowed="next_page_token of the page before, or empty",
            ) from None


def _check_finite(data: memoryview, parts: Sequence[TensorPart]) -> None:
    start = 0
    for part in parts:
        end = start + part.spec.size_bytes
        if part.spec.dtype.is_floating and not _is_finite(data[start:end], part.spec.dtype):
            raise InvalidArgument(
                f"part {part.name!r} holds NaN or infinity", field="data", allowed="finite numbers"
            )
        start = end


def _is_finite(view: memoryview, dtype: DType) -> bool:
    unsigned, magnitude, infinity = _PATTERNS[dtype]
    for start in range(0, len(view), _FINITE_BLOCK_BYTES):
        bits = np.frombuffer(view[start : start + _FINITE_BLOCK_BYTES], dtype=unsigned)
        if int((bits & bits.dtype.type(magnitude)).max()) >= infinity:
            return False
    return True
