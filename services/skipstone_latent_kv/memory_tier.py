"""The bytes of snapshots that were read last, kept in memory in front of any store."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from prometheus_client import Counter, Gauge
from prometheus_client.registry import Collector

from skipstone_latent_kv.forwarding_store import ForwardingStore
from skipstone_latent_kv.store import LatentStore
from skipstone_shared.errors import FingerprintMismatch, LatentNotFound
from skipstone_shared.latents import DEFAULT_NAMESPACE, LatentRef
from skipstone_shared.stored_entries import Snapshot

_Place = tuple[str, str, int]
"""Namespace, entry id, step."""


class MemoryTier(ForwardingStore):
    """A ``LatentStore`` around another one that spares it the bytes of what is read again.

    The store beneath is asked on every read, by ``touch_latent``, which moves no bytes: what it no
    longer has is not served, however it went (overwritten, deleted, evicted, ended, also by another
    process), and every read counts as a use there. So the tier needs no word of removals; what
    it holds of removed entries gives way like all that is unused longest.

    Data of reads are read-only views of one buffer that all readers share.
    """

    def __init__(self, store: LatentStore, capacity_bytes: int) -> None:
        """Wraps a store.

        Args:
            store: Holds all snapshots.
            capacity_bytes: Most bytes to keep; larger snapshots are passed through.
        """
        super().__init__(store)
        self._capacity_bytes = capacity_bytes
        self._lock = threading.Lock()
        self._held: OrderedDict[_Place, Snapshot] = OrderedDict()
        self._held_bytes = 0
        self._reads = Counter(
            "skipstone_latent_kv_memory_tier_reads_total",
            "Reads by where their bytes came from: memory or the store.",
            ["source"],
            registry=None,
        )
        self._gauge = Gauge(
            "skipstone_latent_kv_memory_tier_bytes",
            "Bytes of snapshots that are held in memory.",
            registry=None,
        )
        self._gauge.set_function(lambda: self._held_bytes)

    @property
    def collectors(self) -> Sequence[Collector]:
        """The metrics, to be registered by the server."""
        return self._reads, self._gauge

    def read_latent(self, namespace: str, ref: LatentRef) -> Snapshot:
        """See ``LatentStore``; from memory when the store still has the same bytes."""
        place = namespace or DEFAULT_NAMESPACE, ref.entry_id, ref.step_index
        held = self._find(place)
        if held is not None:
            try:
                stored = self._store.touch_latent(namespace, ref)
            except (LatentNotFound, FingerprintMismatch):
                self._drop(place)
                raise
            if stored.ref.xxh3_64 == held.ref.xxh3_64:
                self._reads.labels("memory").inc()
                return Snapshot(stored.ref, stored.metadata, held.data)
        read = self._store.read_latent(namespace, ref)
        self._reads.labels("store").inc()
        snapshot = Snapshot(read.ref, read.metadata, memoryview(read.data).toreadonly())
        self._hold(place, snapshot)
        return snapshot

    def close(self) -> None:
        """See ``LatentStore``."""
        super().close()
        with self._lock:
            self._held.clear()
            self._held_bytes = 0

    def _find(self, place: _Place) -> Snapshot | None:
        with self._lock:
            if place in self._held:
                self._held.move_to_end(place)
            return self._held.get(place)

    def _hold(self, place: _Place, snapshot: Snapshot) -> None:
        fits = snapshot.ref.size_bytes <= self._capacity_bytes
        with self._lock:
            self._replace(place, snapshot if fits else None)
            while self._held_bytes > self._capacity_bytes:
                self._replace(next(iter(self._held)), None)

    def _drop(self, place: _Place) -> None:
        with self._lock:
            self._replace(place, None)

    def _replace(self, place: _Place, snapshot: Snapshot | None) -> None:
        before = self._held.pop(place, None)
        if before is not None:
            self._held_bytes -= before.ref.size_bytes
        if snapshot is not None:
            self._held[place] = snapshot
            self._held_bytes += snapshot.ref.size_bytes
