"""May a stored snapshot be resumed from: what the executor and every other engine check of a donor.

What is read is checked once more although the store checks too: a wrong latent gives a wrong
picture without any error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from skipstone_shared import errors
from skipstone_shared.latents import LatentRef, TensorSpec, checksum
from skipstone_shared.stored_entries import Snapshot
from skipstone_shared.tensor_messages import Array, arrays_from_parts, is_finite

READ_REASONS: Mapping[type[errors.SkipstoneError], str] = MappingProxyType(
    {
        errors.LatentNotFound: "LATENT_NOT_FOUND",
        errors.EntryNotFound: "LATENT_NOT_FOUND",
        errors.DataCorrupt: "LATENT_CORRUPT",
        errors.FingerprintMismatch: "SPEC_MISMATCH",
        errors.CompatibilityMismatch: "COMPATIBILITY_MISMATCH",
        errors.Unavailable: "STORE_UNAVAILABLE",
        errors.DeadlineExceeded: "STORE_TIMEOUT",
    }
)
"""Why a donor that could not be read is not used, by what the store raised."""

WRITE_REASONS: Mapping[type[errors.SkipstoneError], str] = MappingProxyType(
    {errors.Unavailable: "STORE_UNAVAILABLE", errors.DeadlineExceeded: "STORE_TIMEOUT"}
)
"""Why a snapshot is not stored, by what the store raised; others have reasons of their own."""


class DonorRefused(Exception):
    """A donor is not used; ``reason`` is the word of the contract."""

    def __init__(self, reason: str, message: str) -> None:
        """Says why."""
        super().__init__(message)
        self.reason = reason


@dataclasses.dataclass(frozen=True, slots=True)
class DonorNeeds:
    """What a run needs of its donor.

    Attributes:
        compatibility_key: Key of the run.
        num_inference_steps: Steps of the run.
        latents: Element type and shape of its latents; None where they are not known yet.
    """

    compatibility_key: str
    num_inference_steps: int
    latents: TensorSpec | None


def check_donor_key(key: str, needs: DonorNeeds) -> None:
    """Checks a key that a reference or a snapshot tells; an empty one tells nothing.

    Raises:
        DonorRefused: it is not the run's.
    """
    if key and key != needs.compatibility_key:
        raise DonorRefused(
            "COMPATIBILITY_MISMATCH",
            f"the donor has compatibility key {key}, this run {needs.compatibility_key}",
        )


def checked_arrays(snapshot: Snapshot, ref: LatentRef, needs: DonorNeeds) -> dict[str, Array]:
    """The tensors of a donor, if they are what the reference names and the run needs.

    Args:
        snapshot: As read.
        ref: What was asked for.
        needs: What the run needs.

    Returns:
        The parts by name over the snapshot's own bytes, ``latents`` first.

    Raises:
        DonorRefused: they are not.
    """
    metadata = snapshot.metadata
    check_donor_key(metadata.compatibility_key, needs)
    digest = checksum(memoryview(snapshot.data))
    if digest != snapshot.ref.xxh3_64:
        raise DonorRefused("LATENT_CORRUPT", "the donor's bytes do not match their checksum")
    overwritten = ref.xxh3_64 not in (0, digest) or metadata.step_index != ref.step_index
    if overwritten or metadata.num_inference_steps != needs.num_inference_steps:
        raise DonorRefused("SPEC_MISMATCH", "the store holds another snapshot than the one named")
    try:
        arrays = arrays_from_parts(snapshot.data, metadata.parts)
    except errors.DataCorrupt as error:
        raise DonorRefused("LATENT_CORRUPT", f"the donor's bytes: {error}") from None
    wanted, found = needs.latents, metadata.parts[0].spec
    if wanted is not None and found != wanted:
        raise DonorRefused(
            "SPEC_MISMATCH",
            f"the donor is {found.dtype.value}{list(found.shape)}, "
            f"this run needs {wanted.dtype.value}{list(wanted.shape)}",
        )
    if not all(is_finite(array) for array in arrays.values()):
        raise DonorRefused("NOT_FINITE", "the donor has NaN or infinite values")
    return arrays
