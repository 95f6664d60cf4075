"""Fills the cache: makes sure that what a row asks for is stored as a full run of its own."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from skipstone_client.batch.rows import Row
from skipstone_client.orchestrator import OrchestratorClient
from skipstone_shared.errors import DeadlineExceeded, EntryNotFound
from skipstone_shared.orchestration import CacheMode, CacheOptions, Entry, HitTier

_FULL_RUNS_ALONE = CacheOptions(mode=CacheMode.READ_ONLY, reproducible=True)
_SAVED_ONLY = CacheOptions(mode=CacheMode.WRITE_ONLY)
"""From noise, whatever could be reused: what was resumed donates nothing by itself."""

_POLL_S = 0.05


@dataclasses.dataclass(frozen=True, slots=True)
class Warmed:
    """What it took to have one row in the cache.

    Attributes:
        entry_id: The entry.
        was_there: Whether a full run of it was stored before.
        steps: Steps run.
        denoise_s: Seconds of the executor.
        stored_bytes: Bytes of its snapshots.
    """

    entry_id: str
    was_there: bool
    steps: int = 0
    denoise_s: float = 0.0
    stored_bytes: int = 0


def without_repeated(rows: Sequence[Row]) -> list[Row]:
    """The first of the rows that one entry serves, in their order.

    How rows would use the cache does not matter, as all are run in full, nor what a video is sent
    as: entries hold what it is made from.
    """
    first: dict[tuple[object, ...], Row] = {}
    for row in rows:
        params = dataclasses.replace(row.params, video_format=None)
        contents = tuple((file.role, file.sha256) for file in row.references)
        first.setdefault((params, contents, row.cache.key_steps), row)
    return list(first.values())


class Warming:
    """Warms rows one by one; may be called from any thread."""

    def __init__(
        self, client: OrchestratorClient, namespace: str, *, check_timeout_s: float, save_s: float
    ) -> None:
        """Takes what all rows have in common.

        Args:
            client: Whose cache.
            namespace: Whose entries.
            check_timeout_s: Deadline of the question whether an entry is there, in seconds.
            save_s: Seconds that an entry has to become findable after its run.
        """
        self._client = client
        self._namespace = namespace
        self._check_timeout_s = check_timeout_s
        self._save_s = save_s

    def warm(self, row: Row) -> Warmed:
        """Runs a row unless it is stored, and waits until its entry is found.

        Raises:
            DeadlineExceeded: the run ended and its entry was not stored; names the reasons.
            SkipstoneError: as `OrchestratorClient.generate` and `explain`.
        """
        params = row.whole_params()
        told = self._client.explain(
            params, _FULL_RUNS_ALONE, self._namespace, timeout_s=self._check_timeout_s
        )
        if told.decision.tier is HitTier.EXACT:
            return Warmed(told.decision.entry_id, was_there=True)
        saved_only = dataclasses.replace(_SAVED_ONLY, key_steps=row.cache.key_steps)
        provenance = self._client.generate(params, saved_only, self._namespace).provenance
        entry = self._stored(provenance.saved_entry_id)
        if entry is None:
            failures = [f"{f.stage}: {f.service} {f.reason}" for f in provenance.fallbacks]
            failures += [f"step {s}: {why}" for s, why in provenance.snapshot_failures.items()]
            raise DeadlineExceeded(
                f"the picture was made and its entry was not stored ({', '.join(failures)})"
                if failures
                else f"the picture was made and its entry was not stored within {self._save_s:g} s"
            )
        return Warmed(
            entry.entry_id,
            was_there=False,
            steps=provenance.executed_steps,
            denoise_s=provenance.stage_times_s.get("denoise", 0.0),
            stored_bytes=sum(ref.size_bytes for ref in entry.snapshots),
        )

    def _stored(self, entry_id: str) -> Entry | None:
        """The entry, once it is found; saves happen after the answer."""
        end = time.monotonic() + self._save_s
        while entry_id and time.monotonic() < end:
            try:
                return self._client.get_entry(entry_id, self._namespace)
            except EntryNotFound:
                time.sleep(_POLL_S)
        return None
