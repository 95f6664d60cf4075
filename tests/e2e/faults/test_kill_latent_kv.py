"""latent_kv is killed under a stream of saves: what it acknowledged is read back identical."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from tests.contract.latent_store_cases import latents, list_all, metadata
from tests.e2e.faults.kill_rounds import ROUNDS, Callers, wait_for_kill
from tests.e2e.faults.known_states import KnownStates
from tests.e2e.processes import running_service

from skipstone_client import LatentKVClient
from skipstone_latent_kv.data_check import verify
from skipstone_shared.latents import LatentRef, checksum
from skipstone_shared.tensor_messages import Array, array_bytes

pytestmark = pytest.mark.e2e

_CALLERS = ("a", "b", "c")
_STEPS = (0, 3, 7, 11, 19)
_SIZES = (2048, 100_000, 300_000, (1 << 20) + 4096)
"""From less than a page to more than one chunk."""

_KEPT_PER_CALLER = 6
_LEASE_S = 86_400.0


@dataclasses.dataclass(frozen=True)
class EntryOnDisk:
    """An entry as a caller sees it: the checksum of the bytes of each step."""

    snapshots: frozenset[tuple[int, int]] = frozenset()
    committed: bool = False

    def with_snapshot(self, step: int, xxh3_64: int) -> EntryOnDisk:
        others = {(s, x) for s, x in self.snapshots if s != step}
        return dataclasses.replace(self, snapshots=frozenset({*others, (step, xxh3_64)}))


class SavingCaller:
    """Saves entries of its own, step by step, and overwrites, abandons and deletes others."""

    def __init__(
        self, store: LatentKVClient, states: KnownStates[EntryOnDisk], name: str, seed: int
    ) -> None:
        self._store = store
        self._states = states
        self._prefix = f"{name}-"
        self._ids = (f"{self._prefix}{seed}-{number}" for number in itertools.count())
        self._rng = random.Random(f"{name}{seed}")

    def change(self) -> None:
        """Saves one entry whole; sometimes something else instead."""
        mine = self._states.present(self._prefix)
        if len(mine) > _KEPT_PER_CALLER:
            self._delete(mine[0])
        elif mine and self._rng.random() < 0.2:
            self._write(self._rng.choice(mine), self._rng.choice(_STEPS))
        else:
            self._save(next(self._ids))

    def _save(self, entry_id: str) -> None:
        for step in _STEPS:
            self._write(entry_id, step)
        if self._rng.random() < 0.2:
            return  # Left to its lease.
        state = self._states.state(entry_id) or EntryOnDisk()
        with self._states.changing({entry_id: dataclasses.replace(state, committed=True)}):
            self._store.commit_entry("", entry_id)

    def _write(self, entry_id: str, step: int) -> None:
        array = _latents(self._rng)
        state = self._states.state(entry_id) or EntryOnDisk()
        after = state.with_snapshot(step, checksum(array_bytes(array)))
        about = metadata(entry_id, {"latents": array}, step)
        with self._states.changing({entry_id: after}):
            self._store.write_arrays("", about, {"latents": array}, lease_s=_LEASE_S)

    def _delete(self, entry_id: str) -> None:
        with self._states.changing({entry_id: None}):
            assert self._store.delete_entries("", [entry_id]) == [True]


@functools.cache
def _pool() -> Array:
    return latents(size_bytes=8 << 20)[0]


def _latents(rng: random.Random) -> Array:
    """Latents that no other write has, without the time that drawing them would take."""
    pool, count = _pool(), rng.choice(_SIZES) // 2
    start = rng.randrange(len(pool) - count)
    return np.roll(pool[start : start + count], rng.randrange(count))[None]


def check_all(store: LatentKVClient, states: KnownStates[EntryOnDisk]) -> None:
    """Reads everything that is there and compares it with what was acknowledged."""
    committed = {entry.entry_id for entry in list_all(store)}
    listed = store.list_entries("", 1000, include_uncommitted=True).entries
    found = {}
    for entry in listed:
        steps = frozenset(_read(store, snapshot.ref) for snapshot in entry.snapshots)
        found[entry.entry_id] = EntryOnDisk(steps, entry.committed)
        assert entry.committed == (entry.entry_id in committed)
    states.settle(found)
    for entry_id in committed:
        assert {step for step, _ in found[entry_id].snapshots} == set(_STEPS)
    stats = store.get_stats()
    assert (stats.entry_count, stats.uncommitted_count, stats.snapshot_count) == (
        len(committed),
        len(found) - len(committed),
        sum(len(entry.snapshots) for entry in listed),
    )
    assert stats.size_bytes == sum(s.ref.size_bytes for e in listed for s in e.snapshots)


def _read(store: LatentKVClient, ref: LatentRef) -> tuple[int, int]:
    return ref.step_index, checksum(store.read_latent("", ref).data)


@pytest.mark.parametrize("rounds", ROUNDS)
def test_what_was_acknowledged_survives_every_kill(tmp_path: Path, rounds: int) -> None:
    states: KnownStates[EntryOnDisk] = KnownStates()
    rng = random.Random(rounds)
    for number in range(rounds):
        # A client outlives its server: the callers meet a dead service, not a closed client.
        with ExitStack() as clients:
            with running_service("latent_kv", "--data-dir", str(tmp_path)) as target:
                store = clients.enter_context(LatentKVClient(target))
                check_all(store, states)
                callers = Callers(
                    [SavingCaller(store, states, name, number).change for name in _CALLERS]
                )
                wait_for_kill(states, rng)
            callers.finish()
    with running_service("latent_kv", "--data-dir", str(tmp_path)) as target:
        with LatentKVClient(target) as store:
            check_all(store, states)
    assert not (tmp_path / "data.mdb.damaged").exists()
    report = verify(tmp_path)
    assert report.problems == ()
    assert report.unused_values == 0
    assert states.acknowledged > rounds
