"""What latent_kv removes leaves vector_index too, also what is removed while others are down."""

from __future__ import annotations

import pytest
from tests.e2e.generations import generate_saved, is_saved
from tests.e2e.processes import Cluster, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_what_is_removed_from_latent_kv_leaves_the_index(cluster: Cluster, namespace: str) -> None:
    entry_id = generate_saved(cluster, namespace).provenance.saved_entry_id
    assert cluster.store.delete_entries(namespace, [entry_id]) == [True]
    wait_until(lambda: not is_saved(cluster, namespace, entry_id), "its vector is removed")


def test_what_is_removed_while_the_index_is_down_leaves_it_afterwards(
    cluster: Cluster, namespace: str
) -> None:
    entry_id = generate_saved(cluster, namespace).provenance.saved_entry_id
    cluster.kill("vector_index")
    assert cluster.store.delete_entries(namespace, [entry_id]) == [True]
    cluster.restart("vector_index")
    wait_until(lambda: not is_saved(cluster, namespace, entry_id), "its vector is removed")


def test_what_is_removed_while_the_orchestrator_is_down_leaves_the_index_afterwards(
    cluster: Cluster, namespace: str
) -> None:
    """Nobody has seen the removal, so the first pass of the new orchestrator has to find it."""
    entry_id = generate_saved(cluster, namespace).provenance.saved_entry_id
    cluster.kill("orchestrator")
    assert cluster.store.delete_entries(namespace, [entry_id]) == [True]
    cluster.restart("orchestrator")
    wait_until(lambda: not is_saved(cluster, namespace, entry_id), "its vector is removed")
