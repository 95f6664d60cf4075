"""A client and services of this version beside those of the next minor one: no call fails.

Every message between all parts carries fields that nobody here knows; nothing may notice.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.e2e.future_peer import CONTRACTS, FuturePeer, future_peer
from tests.e2e.generations import OFF, PROMPT, REWORDED, STEPS, generate, picture
from tests.e2e.processes import PATIENT, Cluster, running_service, wait_until

from skipstone_client import LatentKVClient, OrchestratorClient
from skipstone_shared.errors import EntryNotFound, InvalidArgument
from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import HitTier

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_every_message_of_the_contracts_can_grow() -> None:
    for contract in CONTRACTS:
        for message in contract.DESCRIPTOR.message_types_by_name.values():
            assert "future_text" not in message.fields_by_name


@pytest.mark.long
def test_a_deployment_whose_parts_are_a_version_apart_works_as_one(
    cluster: Cluster, tiny_model: Path, namespace: str
) -> None:
    whole = generate(cluster.client, namespace, cache=OFF)
    peers: list[FuturePeer] = []
    with ExitStack() as stack:

        def ahead(target: str) -> str:
            peer = stack.enter_context(future_peer(target))
            peers.append(peer)
            return peer.target

        store = ahead(cluster.targets["latent_kv"])
        executor = stack.enter_context(
            running_service("denoise", "--model", str(tiny_model), "--latent-kv-target", store)
        )
        front = stack.enter_context(
            running_service(
                "orchestrator",
                *PATIENT,
                f"--embedding-target={ahead(cluster.targets['embedding'])}",
                f"--vector-index-target={ahead(cluster.targets['vector_index'])}",
                f"--latent-kv-target={store}",
                f"--denoise-target={ahead(executor)}",
                "--drift-audit-share=0",
            )
        )
        client = stack.enter_context(OrchestratorClient(ahead(front)))
        wait_until(lambda: client.get_capabilities().model_id != "", "it is connected")

        first = generate(client, namespace)
        assert first.provenance.fallbacks == ()
        assert picture(first) == picture(whole)
        wait_until(lambda: has(client, namespace, first.provenance.saved_entry_id), "it is saved")
        again = generate(client, namespace)
        near = generate(client, namespace, REWORDED, seed=2)
        tiers = (again.provenance.tier, near.provenance.tier)
        assert tiers == (HitTier.EXACT, HitTier.APPROXIMATE)
        assert again.provenance.fallbacks == near.provenance.fallbacks == ()
        assert picture(again) == picture(first)
        asked = GenerationParams(REWORDED, num_inference_steps=STEPS, seed=5)
        candidates = client.explain(asked, namespace=namespace).decision.candidates
        assert PROMPT in [candidate.entry.prompt for candidate in candidates]
        assert client.get_stats(namespace).entry_count >= 1
        check_snapshots(store, cluster.store, namespace, first.provenance.saved_entry_id)
        with pytest.raises(InvalidArgument, match="num_inference_steps"):
            generate(client, namespace, steps=100_000)
        assert all(peer.carried > 0 for peer in peers)


def has(client: OrchestratorClient, namespace: str, entry_id: str) -> bool:
    try:
        return client.get_entry(entry_id, namespace).entry_id == entry_id
    except EntryNotFound:
        return False


def check_snapshots(store: str, of_now: LatentKVClient, namespace: str, entry_id: str) -> None:
    """Chunks of latents are read past the usual messages, for speed: they too may grow."""
    with LatentKVClient(store) as ahead:
        refs = [stored.ref for stored in ahead.get_entry(namespace, entry_id).snapshots]
        assert refs
        for ref in refs:
            read = ahead.read_latent(namespace, ref)
            assert bytes(read.data) == bytes(of_now.read_latent(namespace, ref).data)
