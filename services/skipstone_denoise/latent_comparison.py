"""How far apart two stored latents are, for those who may not touch the bytes themselves."""

from __future__ import annotations

import math

import numpy as np

from skipstone_client.torch_arrays import Array
from skipstone_denoise.latent_store import LatentStores
from skipstone_shared.errors import DataCorrupt, FingerprintMismatch
from skipstone_shared.latents import LATENTS_PART, LatentRef, checksum
from skipstone_shared.tensor_messages import arrays_from_parts


class LatentComparison:
    """Reads and compares stored latents. Threads may share it."""

    def __init__(self, stores: LatentStores) -> None:
        """Reads from `stores`."""
        self._stores = stores

    def distance(self, namespace: str, first: LatentRef, second: LatentRef) -> float:
        """The distance of two latents, as `latent_distance` measures it.

        Raises:
            LatentNotFound: a store does not have one of them.
            FingerprintMismatch: a store holds another one than named, or their shapes differ.
            DataCorrupt: the bytes of one are damaged.
            Unavailable: a store cannot be reached.
            DeadlineExceeded: the request's time is over.
        """
        one, other = self._read(namespace, first), self._read(namespace, second)
        if one.shape != other.shape:
            raise FingerprintMismatch(
                f"latents of shapes {list(one.shape)} and {list(other.shape)} do not compare"
            )
        return latent_distance(one, other)

    def _read(self, namespace: str, ref: LatentRef) -> Array:
        snapshot = self._stores(ref.store).read_latent(namespace, ref)
        digest = checksum(memoryview(snapshot.data))
        if digest != snapshot.ref.xxh3_64:
            raise DataCorrupt(f"the bytes of {ref.entry_id} do not match their checksum")
        if ref.xxh3_64 not in (0, digest) or snapshot.metadata.step_index != ref.step_index:
            raise FingerprintMismatch(f"the store holds another latent than {ref.entry_id} named")
        return arrays_from_parts(snapshot.data, snapshot.metadata.parts)[LATENTS_PART]


def latent_distance(first: Array, second: Array) -> float:
    """0 for equal latents, about 1 for two that have nothing in common; NaN when one is not finite.

    The root mean square of the difference, over what it would be for two independent latents of the
    same means and variances: the square root of the sum of both variances. So it depends neither on
    the size nor on the scale of a model's latents.
    """
    one, other = first.astype(np.float64), second.astype(np.float64)
    apart = float(np.mean((one - other) ** 2))
    spread = float(np.var(one) + np.var(other))
    if spread == 0.0:
        return 0.0 if apart == 0.0 else math.inf
    return math.sqrt(apart / spread) if math.isfinite(apart) else math.nan
