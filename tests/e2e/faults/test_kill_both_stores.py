"""Stores and orchestrator are killed under a stream of saves; a reconcile pass makes them agree."""

from __future__ import annotations

import dataclasses
import itertools
import random
from contextlib import ExitStack

import pytest
from tests.contract.latent_store_cases import latents, list_all, metadata
from tests.e2e.faults.kill_rounds import ROUNDS, Callers, wait_for_kill
from tests.e2e.faults.known_states import KnownStates
from tests.e2e.processes import START_TIMEOUT_S, Cluster, running_service, wait_until
from tests.unit.orchestrator.fakes import fingerprint

from skipstone_client import LatentKVClient, OrchestratorClient, VectorIndexClient
from skipstone_shared.generation import GenerationParams
from skipstone_shared.latents import checksum, compatibility_key
from skipstone_shared.tensor_messages import array_bytes

pytestmark = pytest.mark.e2e

_PRINT = fingerprint(GenerationParams("of no meaning here"))
_KEY = compatibility_key(_PRINT)
_STEPS = (2, 5, 9)
_CALLERS = ("a", "b", "c")
_KEPT_PER_CALLER = 5
_VICTIMS = (
    ("latent_kv",),
    ("vector_index",),
    ("orchestrator",),
    ("latent_kv", "vector_index"),
    ("latent_kv", "vector_index", "orchestrator"),
)
_SAVING = ("--call-timeout-s=30", "--no-reconcile-removes-entries")
"""A save that is under way must not be taken for an orphan of the last kill."""

_RECONCILING = ("--call-timeout-s=30", "--reconcile-grace-s=0.1", "--reconcile-entries-per-s=1e6")

Snapshots = frozenset[tuple[int, int]]
"""Step and checksum of all snapshots of an entry that can be reused."""


class Stores:
    """Clients of what is running now; they outlive the services."""

    def __init__(self, cluster: Cluster, stack: ExitStack) -> None:
        self.store = stack.enter_context(LatentKVClient(cluster.targets["latent_kv"]))
        self.index = stack.enter_context(VectorIndexClient(cluster.targets["vector_index"]))

    def stored(self, namespace: str) -> dict[str, Snapshots]:
        """What latent_kv has, every byte of it read."""
        return {
            entry.entry_id: frozenset(
                (s.ref.step_index, checksum(self.store.read_latent(namespace, s.ref).data))
                for s in entry.snapshots
            )
            for entry in list_all(self.store, namespace)
        }

    def indexed(self, namespace: str) -> set[str]:
        page = self.index.list_entries(namespace, page_size=1000)
        assert not page.next_page_token
        return {entry.entry_id for entry in page.entries}


class SavingCaller:
    """Writes snapshots and has them saved, as an engine outside does; deletes old entries."""

    def __init__(
        self,
        stores: Stores,
        orchestrator: OrchestratorClient,
        states: KnownStates[Snapshots],
        namespace: str,
        name: str,
        number: int,
    ) -> None:
        self._store = stores.store
        self._orchestrator = orchestrator
        self._states = states
        self._namespace = namespace
        self._prefix = f"{name}-"
        self._ids = (f"{self._prefix}{number}-{count}" for count in itertools.count())
        self._rng = random.Random(f"{name}{number}")

    def change(self) -> None:
        mine = self._states.present(self._prefix)
        if len(mine) > _KEPT_PER_CALLER:
            with self._states.changing({mine[0]: None}):
                assert self._store.delete_entries(self._namespace, [mine[0]]) == [True]
        else:
            self._save(next(self._ids))

    def _save(self, entry_id: str) -> None:
        written = set()
        for step in _STEPS:
            array = latents(self._rng.getrandbits(32), 10_000)
            written.add((step, checksum(array_bytes(array))))
            about = metadata(entry_id, {"latents": array}, step)
            about = dataclasses.replace(about, compatibility_key=_KEY)
            self._store.write_arrays(self._namespace, about, {"latents": array})
        with self._states.changing({entry_id: frozenset(written)}):
            self._orchestrator.save(
                entry_id, f"prompt of {entry_id}", 1, _PRINT, namespace=self._namespace
            )


def kill_once(
    cluster: Cluster,
    namespace: str,
    states: KnownStates[Snapshots],
    rng: random.Random,
    number: int,
) -> None:
    """Saves, kills some of the three in the middle, starts them again and looks at the rest."""
    victims = rng.choice(_VICTIMS)
    with ExitStack() as clients:
        stores = Stores(cluster, clients)
        with running_service("orchestrator", *cluster.backend_flags(), *_SAVING) as target:
            orchestrator = clients.enter_context(OrchestratorClient(target, timeout_s=60.0))
            callers = Callers(
                [
                    SavingCaller(stores, orchestrator, states, namespace, name, number).change
                    for name in _CALLERS
                ]
            )
            wait_for_kill(states, rng, max_changes=8)
            for name in victims:
                if name != "orchestrator":
                    cluster.kill(name)
            if "orchestrator" not in victims:
                callers.finish()
        callers.finish()
    stopped = [name for name in victims if name != "orchestrator"]
    if stopped:
        cluster.restart(*stopped)
    with ExitStack() as clients:
        stores = Stores(cluster, clients)
        stored, indexed = stores.stored(namespace), stores.indexed(namespace)
        for entry_id, snapshots in stored.items():
            assert {step for step, _ in snapshots} == set(_STEPS), f"{entry_id} is half there"
        states.settle({i: snapshots for i, snapshots in stored.items() if i in indexed})


def check_agreement(cluster: Cluster, namespace: str, states: KnownStates[Snapshots]) -> None:
    """Lets one pass compare both stores; all that can be reused is left, and nothing else."""
    with ExitStack() as clients:
        stores = Stores(cluster, clients)
        wanted = set(states.present())

        def agree() -> bool:
            stored = {entry.entry_id for entry in list_all(stores.store, namespace)}
            return stored == stores.indexed(namespace) == wanted

        with running_service("orchestrator", *cluster.backend_flags(), *_RECONCILING):
            # A pass that a service did not answer in time is made again 10 s later.
            wait_until(agree, "both stores have the same entries", START_TIMEOUT_S)


# Each store alone is killed 20 times already.
@pytest.mark.parametrize("rounds", [pytest.param(5, marks=pytest.mark.timeout(600)), ROUNDS[-1]])
def test_index_and_store_agree_after_every_kill(
    cluster: Cluster, namespace: str, rounds: int
) -> None:
    states: KnownStates[Snapshots] = KnownStates()
    rng = random.Random(rounds)
    for number in range(rounds):
        kill_once(cluster, namespace, states, rng, number)
        if number % 4 == 3:
            check_agreement(cluster, namespace, states)
    assert states.acknowledged > rounds
