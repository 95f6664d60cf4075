"""Whatever the backends are, requests are served the same; and a deployment moves between them."""

from __future__ import annotations

import dataclasses
import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.generations import (
    LOOSELY_REWORDED,
    PROMPT,
    REWORDED,
    UNRELATED,
    generate,
    generate_saved,
    is_saved,
    picture,
    wait_saved,
)
from tests.e2e.processes import service_environment, wait_until
from tests.e2e.switchable import (
    INDEXES,
    STORES,
    Settings,
    SwitchableCluster,
    hnswlib,
    lmdb,
    milvus,
    redis_cluster,
    write_settings,
)

from skipstone_shared.errors import EntryNotFound, SkipstoneError
from skipstone_shared.orchestration import GenerateResult, HitTier

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

Told = list[dict[str, Any]]

SUBJECTS = (
    "a green square on a white table",
    "seven sailors rowing a wooden boat at night",
    "an old lighthouse in thick fog",
)


@pytest.fixture(scope="module")
def _switchable(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path
) -> Iterator[SwitchableCluster]:
    with SwitchableCluster(tmp_path_factory.mktemp("switchable"), tiny_model) as cluster:
        yield cluster


@pytest.fixture
def switchable(_switchable: SwitchableCluster) -> SwitchableCluster:
    """Five running services of this module, whose backends a test may choose."""
    _switchable.heal()
    return _switchable


@pytest.fixture(scope="module")
def on_defaults(_switchable: SwitchableCluster) -> Told:
    """What requests are told on LMDB and hnswlib."""
    return _told(_switchable, "matrix-lmdb-hnswlib", lmdb(), hnswlib())


@pytest.mark.parametrize(
    ("store", "index"),
    [
        pytest.param("redis", "milvus"),
        pytest.param("s3", "hnswlib"),
        pytest.param("redis", "hnswlib", marks=pytest.mark.long),
        pytest.param("redis", "pgvector", marks=pytest.mark.long),
        pytest.param("lmdb", "pgvector", marks=pytest.mark.long),
        pytest.param("lmdb", "milvus", marks=pytest.mark.long),
        pytest.param("s3", "milvus", marks=pytest.mark.long),
    ],
)
def test_a_request_takes_the_same_path_result_and_provenance_on_every_backend_combination(
    switchable: SwitchableCluster, on_defaults: Told, store: str, index: str
) -> None:
    """Tiers, steps, donors, similarities, pictures: everything but request ids and times."""
    told = _told(switchable, f"matrix-{store}-{index}", STORES[store](), INDEXES[index]())
    assert switchable.store.get_capabilities().engine.startswith(store)
    assert switchable.index.get_capabilities().engine.startswith(index.removesuffix("lib"))
    assert [answer["tier"] for answer in told] == [
        *(HitTier.MISS, HitTier.EXACT, HitTier.APPROXIMATE, HitTier.APPROXIMATE),
        *(HitTier.MISS, HitTier.EXACT, HitTier.EXACT, HitTier.MISS),
    ], [answer["fallbacks"] for answer in told]
    for number, (here, there) in enumerate(zip(told, on_defaults, strict=True)):
        assert here == there, f"request {number}"


def _told(cluster: SwitchableCluster, namespace: str, store: Settings, index: Settings) -> Told:
    """What the requests of the matrix are told on these backends, in a new namespace."""
    cluster.switch(latent_kv=store, vector_index=index)
    requests = [
        (PROMPT, 1, namespace),
        (PROMPT, 1, namespace),
        (REWORDED, 2, namespace),
        (LOOSELY_REWORDED, 3, namespace),
        (UNRELATED, 4, namespace),
        (REWORDED, 2, namespace),
        (UNRELATED, 4, namespace),
        (PROMPT, 1, f"{namespace}-other"),
    ]
    told = []
    for prompt, seed, where in requests:
        result = generate(cluster.client, where, prompt, seed=seed)
        if result.provenance.saved_entry_id:
            wait_saved(cluster, where, result)
        answer = dataclasses.asdict(result.provenance)
        del answer["request_id"]
        answer["stage_times_s"] = sorted(answer["stage_times_s"])
        told.append(answer | {"picture": picture(result)})
    return told


def test_a_running_deployment_moves_without_losing_an_entry_or_failing_a_request(
    switchable: SwitchableCluster, namespace: str, tmp_path: Path
) -> None:
    """LMDB to a Redis Cluster and hnswlib to Milvus, under load; what was deleted stays so."""
    _move(switchable, namespace, tmp_path, interrupted=False)


@pytest.mark.long
def test_a_move_whose_services_are_killed_meanwhile_is_taken_up_again(
    switchable: SwitchableCluster, namespace: str, tmp_path: Path
) -> None:
    _move(switchable, namespace, tmp_path, interrupted=True)


def _move(cluster: SwitchableCluster, namespace: str, folder: Path, *, interrupted: bool) -> None:
    cluster.switch(latent_kv=lmdb(), vector_index=hnswlib())
    saved = {subject: generate_saved(cluster, namespace, subject, seed=7) for subject in SUBJECTS}
    deleted = generate_saved(cluster, namespace, PROMPT, seed=7).provenance.saved_entry_id
    pinned = saved[SUBJECTS[0]].provenance.saved_entry_id
    cluster.store.pin_entries(namespace, [pinned], True)
    new_store = write_settings(folder / "kv.toml", "latent_kv", store := redis_cluster())
    new_index = write_settings(folder / "index.toml", "vector_index", index := milvus())

    with _load(cluster, namespace) as load:
        cluster.switch(
            latent_kv={**lmdb(), "migrate_to": str(new_store)},
            vector_index={**hnswlib(), "migrate_to": str(new_index)},
        )
        assert (cluster.store.get_capabilities().engine) == "lmdb"
        for service, command in (("latent_kv", "kv"), ("vector_index", "index")):
            rate = ("--max-mib-per-s", "0.005") if interrupted else ()
            logged = len(cluster.log(service))
            moving = _migrate(cluster, service, command, *rate)
            if interrupted:
                _wait_for_copies(cluster, service, logged)
                cluster.kill(service)
                cluster.restart(service)
            if command == "kv":
                cluster.client.delete_entries([deleted], namespace)
            report = _report(moving)
            assert report["in_step"], json.dumps(report)
            assert not report["refused"]
        load.wait_for_requests(3)
        before = _findable(cluster, namespace)
        cluster.switch(latent_kv=store, vector_index=index)
        load.wait_for_requests(3)

    assert load.errors == []
    assert cluster.store.get_capabilities().engine == "redis-cluster"
    assert cluster.index.get_capabilities().engine == "milvus"
    assert len(before) >= len(SUBJECTS)
    assert before <= _findable(cluster, namespace), "every entry is there"
    assert cluster.store.get_entry(namespace, pinned).pinned
    _check_used(cluster, namespace, saved)
    assert not is_saved(cluster, namespace, deleted)
    with pytest.raises(EntryNotFound):
        cluster.store.get_entry(namespace, deleted)
    again = generate(cluster.client, namespace, PROMPT, seed=7).provenance
    assert (again.tier, again.executed_steps) == (HitTier.MISS, again.num_inference_steps)


def _check_used(
    cluster: SwitchableCluster, namespace: str, saved: dict[str, GenerateResult]
) -> None:
    """Every entry is found, by its own request and by a similar one, and gives the same picture."""
    for subject, first in saved.items():
        entry_id = first.provenance.saved_entry_id
        exact = generate(cluster.client, namespace, subject, seed=7)
        told = exact.provenance
        assert (told.tier, told.donor_entry_id, told.fallbacks) == (HitTier.EXACT, entry_id, ())
        assert picture(exact) == picture(first)
        near = generate(cluster.client, namespace, f"there is {subject}", seed=8).provenance
        assert (near.tier, near.fallbacks) == (HitTier.APPROXIMATE, ())
        assert near.donor_prompt == subject


def _findable(cluster: SwitchableCluster, namespace: str) -> set[str]:
    """Entries whose save is whole: in the store and in the index."""
    stored = cluster.store.list_entries(namespace, 1000).entries
    indexed = cluster.index.list_entries(namespace, page_size=1000, timeout_s=30.0).entries
    return {e.entry_id for e in stored} & {e.entry_id for e in indexed}


class _Load:
    """Requests one after the other, old and new ones, until it is told to stop."""

    def __init__(self, cluster: SwitchableCluster, namespace: str) -> None:
        self.errors: list[SkipstoneError] = []
        self.done = 0
        self._cluster = cluster
        self._namespace = namespace
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def wait_for_requests(self, count: int) -> None:
        end = self.done + count
        wait_until(lambda: self.done >= end, f"{count} more requests are answered")

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _work(self) -> None:
        for number in itertools.count():
            if self._stopping.is_set():
                return
            prompt, seed = SUBJECTS[number % len(SUBJECTS)], (7, 1000 + number)[number % 3 == 0]
            try:
                generate(self._cluster.client, self._namespace, prompt, seed=seed)
            except SkipstoneError as error:
                self.errors.append(error)
            self.done += 1


@contextmanager
def _load(cluster: SwitchableCluster, namespace: str) -> Iterator[_Load]:
    load = _Load(cluster, namespace)
    try:
        yield load
    finally:
        load.stop()


def _migrate(
    cluster: SwitchableCluster, service: str, command: str, *flags: str
) -> subprocess.Popen[str]:
    target = "--target" if command == "kv" else "--vector-index-target"
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "skipstone_client", command, "migrate", "--json"),
            *(target, cluster.targets[service], *flags),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=service_environment(),
    )


def _wait_for_copies(cluster: SwitchableCluster, service: str, after: int) -> None:
    wait_until(
        lambda: any(line.get("copied", 0) for line in cluster.log(service)[after:]),
        f"{service} has copied entries",
    )


def _report(moving: subprocess.Popen[str]) -> dict[str, Any]:
    output, errors = moving.communicate(timeout=120)
    assert output, errors
    report: dict[str, Any] = json.loads(output)
    return report
