"""vector_index is killed under a stream of writes: what it acknowledged is found as it was."""

from __future__ import annotations

import dataclasses
import itertools
import random
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from tests.e2e.faults.kill_rounds import ROUNDS, Callers, wait_for_kill
from tests.e2e.faults.known_states import KnownStates
from tests.e2e.processes import running_service

from skipstone_client import VectorIndexClient
from skipstone_shared.index_entries import IndexEntry, SearchHit, Vector, VectorEntry

pytestmark = pytest.mark.e2e

_KEY = "a1" * 16
_CALLERS = ("a", "b")
_DIMENSION = 64
_BATCHES = (1, 4, 32)
_KEPT_PER_CALLER = 200
_FLAGS = ("--exact-search-limit", "100", "--graph-save-share", "0.05")
"""So that graphs are built and saved all the time, and kills fall into that too."""

_TOP_K = 5
_PAGE_SIZE = 1000


@dataclasses.dataclass(frozen=True)
class Saved:
    """What is stored of an entry; its vector is drawn from the seed, which every write changes."""

    seed: int

    @property
    def vector(self) -> Vector:
        return np.random.default_rng(self.seed).standard_normal(_DIMENSION).astype(np.float32)


class WritingCaller:
    """Adds, replaces and deletes entries of its own, in batches of any size."""

    def __init__(
        self, index: VectorIndexClient, states: KnownStates[Saved], name: str, number: int
    ) -> None:
        self._index = index
        self._states = states
        self._prefix = f"{name}-"
        self._ids = (f"{self._prefix}{number}-{count}" for count in itertools.count())
        self._rng = random.Random(f"{name}{number}")

    def change(self) -> None:
        mine = self._states.present(self._prefix)
        size = self._rng.choice(_BATCHES)
        if len(mine) > _KEPT_PER_CALLER:
            self._delete(mine[: len(mine) // 2])
        elif len(mine) > size and self._rng.random() < 0.3:
            self._upsert(self._rng.sample(mine, size))
        else:
            self._upsert(list(itertools.islice(self._ids, size)))

    def _upsert(self, entry_ids: list[str]) -> None:
        saved = {entry_id: Saved(self._rng.getrandbits(62)) for entry_id in entry_ids}
        entries = [
            VectorEntry(IndexEntry(entry_id, prompt=f"of {entry_id}", seed=new.seed), new.vector)
            for entry_id, new in saved.items()
        ]
        with self._states.changing(saved):
            assert self._index.upsert_entries("", _KEY, entries) == [None] * len(entries)

    def _delete(self, entry_ids: list[str]) -> None:
        with self._states.changing(dict.fromkeys(entry_ids)):
            assert all(self._index.delete_entries("", entry_ids))


def check_all(index: VectorIndexClient, states: KnownStates[Saved]) -> None:
    """Lists and searches everything that is there and compares it with what was acknowledged."""
    found: dict[str, Saved] = {}
    token = ""
    while True:
        page = index.list_entries("", _KEY, _PAGE_SIZE, token)
        for entry in page.entries:
            assert entry.prompt == f"of {entry.entry_id}"
            assert found.setdefault(entry.entry_id, Saved(entry.seed)) == Saved(entry.seed)
        token = page.next_page_token
        if not token:
            break
    states.settle(found)
    assert index.get_stats().entry_count == len(found)
    wanted = list(found.items())
    missed = 0
    for start in range(0, len(wanted), 100):
        part = wanted[start : start + 100]
        answers = index.search_entries("", _KEY, [saved.vector for _, saved in part], _TOP_K)
        for (entry_id, saved), hits in zip(part, answers, strict=True):
            _check_hits(hits, saved, found)
            missed += hits[0].entry.entry_id != entry_id
    # A graph may miss a vector now and then; one that lost some would miss them all.
    assert missed <= len(found) // 50


def _check_hits(hits: list[SearchHit], query: Saved, found: dict[str, Saved]) -> None:
    """Every hit is an entry that is there, compared by the vector that it was saved with."""
    for hit in hits:
        vector = found[hit.entry.entry_id].vector
        assert Saved(hit.entry.seed) == found[hit.entry.entry_id]
        cosine = vector @ query.vector / np.linalg.norm(vector) / np.linalg.norm(query.vector)
        assert hit.similarity == pytest.approx(float(cosine), abs=1e-4)


@pytest.mark.parametrize("rounds", ROUNDS)
def test_what_was_acknowledged_survives_every_kill(tmp_path: Path, rounds: int) -> None:
    states: KnownStates[Saved] = KnownStates()
    rng = random.Random(rounds)
    for number in range(rounds):
        # A client outlives its server: the callers meet a dead service, not a closed client.
        with ExitStack() as clients:
            with running_service("vector_index", "--data-dir", str(tmp_path), *_FLAGS) as target:
                index = clients.enter_context(VectorIndexClient(target))
                check_all(index, states)
                callers = Callers(
                    [WritingCaller(index, states, name, number).change for name in _CALLERS]
                )
                wait_for_kill(states, rng)
            callers.finish()
    with running_service("vector_index", "--data-dir", str(tmp_path), *_FLAGS) as target:
        with VectorIndexClient(target) as index:
            check_all(index, states)
    assert states.acknowledged > rounds
    assert not (tmp_path / "records.mdb.damaged").exists()
    assert list(tmp_path.glob("graphs/*.graph")), "no kill fell into the time of a graph"
