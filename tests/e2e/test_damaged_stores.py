"""A store loses or falsifies what it keeps: it is not served, and it is repaired."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.e2e.generations import (
    OFF,
    REWORDED,
    STEPS,
    generate,
    generate_saved,
    is_saved,
    picture,
    wait_saved,
)
from tests.e2e.processes import Cluster, wait_until

from skipstone_shared.errors import DataCorrupt
from skipstone_shared.lmdb_file import DamagedFile
from skipstone_shared.orchestration import CacheOptions, HitTier, ReuseKind

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PAGE = 4096


def falsify(cluster: Cluster, namespace: str, entry_id: str) -> None:
    """Flips one bit of every stored latent of an entry, in the file of the stopped store."""
    refs = [snapshot.ref for snapshot in cluster.store.get_entry(namespace, entry_id).snapshots]
    latents = [bytes(cluster.store.read_latent(namespace, ref).data) for ref in refs]
    cluster.kill("latent_kv")
    database = cluster.folder / "latent_kv" / "data.mdb"
    content = bytearray(database.read_bytes())
    for latent in latents:
        # A value that fills pages of its own lies in one piece; every copy is falsified.
        place, found = content.find(latent), 0
        while place >= 0:
            content[place + len(latent) // 2] ^= 1
            found += 1
            place = content.find(latent, place + 1)
        assert found, "the latent is not in the file as it is"
    database.write_bytes(content)
    cluster.restart("latent_kv")


def test_a_falsified_result_is_not_served_and_is_made_anew(
    cluster: Cluster, namespace: str
) -> None:
    first = generate_saved(cluster, namespace)
    falsify(cluster, namespace, first.provenance.saved_entry_id)
    again = generate(cluster.client, namespace)
    assert picture(again) == picture(first)
    assert (again.provenance.tier, again.provenance.reason) == (HitTier.MISS, "RESUME_REFUSED")
    (fallback,) = again.provenance.fallbacks
    assert (fallback.stage, fallback.service) == ("resume", "latent_kv")
    wait_saved(cluster, namespace, again)

    def is_exact() -> bool:
        return generate(cluster.client, namespace).provenance.tier is HitTier.EXACT

    wait_until(is_exact, "the entry is repaired")
    assert picture(generate(cluster.client, namespace)) == picture(first)


@pytest.mark.parametrize("kind", ReuseKind)
def test_a_falsified_donor_is_not_resumed_from(
    cluster: Cluster, namespace: str, kind: ReuseKind
) -> None:
    options = CacheOptions(reuse_kind=kind)
    donor = generate_saved(cluster, namespace, cache=options)
    falsify(cluster, namespace, donor.provenance.saved_entry_id)
    full_run = generate(cluster.client, namespace, REWORDED, seed=2, cache=OFF)
    result = generate(cluster.client, namespace, REWORDED, seed=2, cache=options)
    assert picture(result) == picture(full_run)
    assert result.provenance.tier is HitTier.MISS
    assert [fallback.service for fallback in result.provenance.fallbacks] == ["latent_kv"]


def zero_a_page(file: Path, namespace: str) -> None:
    """Zeroes the page with the entries of a namespace, where the rest can still be found."""
    content = file.read_bytes()
    for start in range(2 * PAGE, len(content), PAGE):
        # Pages also hold bytes of what they were used for before.
        if namespace.encode() in content[start : start + PAGE]:
            file.write_bytes(content[:start] + bytes(PAGE) + content[start + PAGE :])
            if lost_only_entries(file, namespace):
                return
    raise AssertionError("no page hangs on the tree with entries of the namespace")


def lost_only_entries(file: Path, namespace: str) -> bool:
    try:
        entries = dict(DamagedFile(file).rows("entries"))
    except DataCorrupt:
        return False
    return not any(key.startswith(namespace.encode()) for key in entries)


def test_a_page_that_is_gone_costs_its_entries_and_the_index_forgets_them(
    cluster: Cluster, namespace: str
) -> None:
    first = generate_saved(cluster, namespace)
    entry_id = first.provenance.saved_entry_id
    cluster.kill("latent_kv")
    zero_a_page(cluster.folder / "latent_kv" / "data.mdb", namespace)
    cluster.restart("latent_kv")
    wait_until(lambda: not is_saved(cluster, namespace, entry_id), "its vector leaves the index")
    again = generate_saved(cluster, namespace, cache=CacheOptions(reproducible=True))
    assert again.provenance.tier is HitTier.MISS
    assert picture(again) == picture(first)
    assert generate(cluster.client, namespace).provenance.tier is HitTier.EXACT


def test_a_store_that_lost_everything_is_a_miss_and_the_index_forgets_too(
    cluster: Cluster, namespace: str
) -> None:
    donor = generate_saved(cluster, namespace)
    cluster.kill("latent_kv")
    shutil.rmtree(cluster.folder / "latent_kv")
    cluster.restart("latent_kv")
    near = generate(cluster.client, namespace, REWORDED, seed=2)
    assert near.provenance.tier is HitTier.MISS
    # Whichever comes first: a request that finds the entry stale, or the pass that removes it.
    assert near.provenance.reason in ("STALE_DONOR", "NO_CANDIDATE")
    assert picture(near) == picture(
        generate(cluster.client, namespace, REWORDED, seed=2, cache=OFF)
    )
    entry_id = donor.provenance.saved_entry_id
    wait_until(
        lambda: not is_saved(cluster, namespace, entry_id), "the stale entry leaves the index"
    )
    again = generate_saved(cluster, namespace, cache=CacheOptions(reproducible=True))
    assert picture(again) == picture(donor)
    assert generate(cluster.client, namespace).provenance.tier is HitTier.EXACT


def test_an_index_that_lost_everything_keeps_the_exact_tier(
    cluster: Cluster, namespace: str
) -> None:
    first = generate_saved(cluster, namespace)
    cluster.kill("vector_index")
    shutil.rmtree(cluster.folder / "vector_index")
    cluster.restart("vector_index")
    assert generate(cluster.client, namespace).provenance.tier is HitTier.EXACT
    near = generate(cluster.client, namespace, REWORDED, seed=2).provenance
    assert (near.tier, near.reason) == (HitTier.MISS, "NO_CANDIDATE")
    assert picture(generate(cluster.client, namespace)) == picture(first)


@pytest.mark.parametrize("store", ["latent_kv", "vector_index"])
def test_a_data_directory_removed_under_a_running_store_fails_no_request(
    cluster: Cluster, namespace: str, store: str
) -> None:
    first = generate_saved(cluster, namespace)
    shutil.rmtree(cluster.folder / store)
    again = generate(cluster.client, namespace, cache=CacheOptions(reproducible=True))
    assert picture(again) == picture(first)
    full_run = generate(cluster.client, namespace, REWORDED, seed=2, cache=OFF)
    options = CacheOptions(reproducible=True)
    fresh = generate(cluster.client, namespace, REWORDED, seed=2, cache=options)
    assert picture(fresh) == picture(full_run)
    assert fresh.provenance.executed_steps == STEPS
    cluster.restart(store)
    assert picture(generate(cluster.client, namespace, cache=options)) == picture(first)
