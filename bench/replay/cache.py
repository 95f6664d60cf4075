"""A cache that requests of a log go past: the product's store, eviction and reuse policy.

Only denoising is left out: a run stores four numbers in place of its clean latent. The nearest live
entries come from exact search over MiniLM's vectors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from search.vectors import Matrix
from skipstone_latent_kv.eviction import Quotas
from skipstone_latent_kv.eviction_policies import EvictionPolicy, LeastRecentlyUsed
from skipstone_latent_kv.memory_store import MemoryStore
from skipstone_orchestrator.noise_levels import Schedule
from skipstone_orchestrator.reuse_policy import Donor, Limits, ReusePolicy, judge
from skipstone_shared.errors import LatentNotFound
from skipstone_shared.latents import LatentRef, SnapshotMetadata, checksum
from skipstone_shared.orchestration import ReuseKind
from skipstone_shared.tensor_messages import array_bytes, parts_of

STEPS: Final = 50
TOP_K: Final = 8
"""Candidates per request, the orchestrator's default."""

_KEY = "0" * 32
_LATENT = np.zeros(4, np.float32)
_BYTES = array_bytes(_LATENT)
_CHECKSUM = checksum(_BYTES)
_SCHEDULE = Schedule.of(
    [1.0 - step / STEPS for step in range(STEPS + 1)], "flow", [ReuseKind.RENOISE]
)

Scores = Callable[[int, Sequence[int]], Sequence[float] | None]
"""What a gate gives the candidates (rows of the log) of a request (a row); None: no gate."""


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """What is replayed.

    Attributes:
        capacity: Entries that fit; 0: all.
        eviction: Who is evicted first.
        reuse: What decides on donors. Its `max_donor_depth` says whether resumed runs donate; those
            that do not are saved for the exact tier only.
        save_below: Runs that skipped fewer steps are saved.
        same_seed: Whether a repeated prompt comes with the seed it had (the log has none): then the
            exact tier answers.
        approximate: Whether donors are looked for.
    """

    capacity: int = 0
    eviction: EvictionPolicy = dataclasses.field(default_factory=LeastRecentlyUsed)
    reuse: ReusePolicy = dataclasses.field(default_factory=ReusePolicy)
    save_below: int = STEPS
    same_seed: bool = False
    approximate: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What became of each request, in order.

    Attributes:
        skipped: Steps of 50 that were not run; 50 for the exact tier.
        exact: Whether the exact tier answered.
        distances: Requests since its donor was served; 0 where there was none.
        depths: Resumed runs between its result and noise.
        saves: Runs that were saved.
    """

    skipped: npt.NDArray[np.int64]
    exact: npt.NDArray[np.bool_]
    distances: npt.NDArray[np.int64]
    depths: npt.NDArray[np.int64]
    saves: int

    @property
    def steps_saved(self) -> float:
        """Share of all steps that were not run."""
        return float(self.skipped.mean() / STEPS)

    @property
    def hit_share(self) -> float:
        """Share of requests that skipped something."""
        return float((self.skipped > 0).mean())


class Cache:
    """One cache over one log."""

    def __init__(
        self, prompts: Sequence[str], vectors: Matrix, settings: Settings, scores: Scores
    ) -> None:
        """Creates an empty cache.

        Args:
            prompts: Of the log.
            vectors: Theirs, unit norm.
            settings: What is replayed.
            scores: The gate.
        """
        quota = settings.capacity * len(_BYTES)
        self._store = MemoryStore(Quotas(total_bytes=quota), settings.eviction)
        self._settings = settings
        self._scores = scores
        self._prompts = prompts
        self._vectors = vectors
        self._findable = np.zeros(len(prompts), np.bool_)
        self._refs: dict[str, LatentRef] = {}
        self._rows: dict[str, int] = {}
        self._skipped = np.zeros(len(prompts), np.int64)
        self._exact = np.zeros(len(prompts), np.bool_)
        self._distances = np.zeros(len(prompts), np.int64)
        self._depths = np.zeros(len(prompts), np.int64)
        self._saves = 0

    def replay(self) -> Outcome:
        """Sends all requests, one after the other."""
        for row in range(len(self._prompts)):
            if self._settings.same_seed and self._read(self._entry_id(row)):
                self._skipped[row], self._exact[row] = STEPS, True
                continue
            donor, skip_steps = self._donor(row) if self._settings.approximate else (row, 0)
            self._skipped[row], self._distances[row] = skip_steps, row - donor
            self._depths[row] = self._depths[donor] + 1 if skip_steps else 0
            if skip_steps < self._settings.save_below:
                self._save(row)
        return Outcome(self._skipped, self._exact, self._distances, self._depths, self._saves)

    def _donor(self, row: int) -> tuple[int, int]:
        """The row whose result is reused and the steps skipped; the steps are 0 for a miss."""
        while True:
            candidates, similarities = self._nearest(row)
            taken = self._first_usable(row, candidates, similarities)
            if taken is None:
                return row, 0
            donor, skip_steps = taken
            if self._read(self._entry_id(donor)):
                return donor, skip_steps
            self._findable[donor] = False  # evicted; the index learns of it

    def _nearest(self, row: int) -> tuple[list[int], list[float]]:
        """Findable entries, the most similar first."""
        rows = np.flatnonzero(self._findable)
        similarities = self._vectors[rows] @ self._vectors[row]
        order = np.argsort(-similarities, kind="stable")[:TOP_K]
        return rows[order].tolist(), similarities[order].tolist()

    def _first_usable(
        self, row: int, candidates: Sequence[int], similarities: Sequence[float]
    ) -> tuple[int, int] | None:
        """As the orchestrator: by score, every candidate in turn."""
        scores = self._scores(row, candidates) if candidates else None
        order: Sequence[int] = range(len(candidates))
        if scores is not None:
            order = sorted(order, key=lambda place: -scores[place])
        for place in order:
            candidate = candidates[place]
            donor = Donor(
                similarity=similarities[place],
                score=None if scores is None else scores[place],
                depth=int(self._depths[candidate]),
                steps={STEPS},
                same_prompt=self._prompts[candidate] == self._prompts[row],
            )
            verdict = judge(self._settings.reuse, _SCHEDULE, donor, Limits())
            if verdict.taken:
                return candidate, verdict.skip_steps
        return None

    def _entry_id(self, row: int) -> str:
        """With seeds unknown every run is an entry of its own."""
        if self._settings.same_seed:
            return f"{checksum(self._prompts[row].encode()):016x}"
        return str(row)

    def _read(self, entry_id: str) -> bool:
        """Reads the entry's clean latent, which counts as use; False when it is gone."""
        ref = self._refs.get(entry_id)
        if ref is None:
            return False
        try:
            self._store.read_latent("", ref)
        except LatentNotFound:
            del self._refs[entry_id]
            return False
        return True

    def _save(self, row: int) -> None:
        entry_id = self._entry_id(row)
        metadata = SnapshotMetadata(
            entry_id, STEPS, STEPS, 0.0, _KEY, parts_of({"latents": _LATENT})
        )
        self._refs[entry_id] = self._store.write_latent(
            "", metadata, [_BYTES], size_bytes=len(_BYTES), xxh3_64=_CHECKSUM
        )
        self._store.commit_entry("", entry_id)
        # The same entry again takes the place of the one that was evicted, in the index too.
        self._findable[self._rows.get(entry_id, row)] = False
        self._rows[entry_id] = row
        self._findable[row] = self._depths[row] <= self._settings.reuse.max_donor_depth
        self._saves += 1


def no_gate(_: int, __: Sequence[int]) -> None:
    """Leaves the decision to the similarity, as the published table does."""


def replay(
    prompts: Sequence[str], vectors: Matrix, settings: Settings, scores: Scores = no_gate
) -> Outcome:
    """Sends a log past an empty cache."""
    return Cache(prompts, vectors, settings, scores).replay()
