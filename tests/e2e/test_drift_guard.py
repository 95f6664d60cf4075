"""Real audits of real hits: measured while idle, with consequences for donor and tier."""

from __future__ import annotations

import pytest
from tests.e2e.generations import REWORDED, all_entries, generate, generate_saved
from tests.e2e.processes import PATIENT, Cluster, wait_until

from skipstone_client import OrchestratorClient
from skipstone_shared.errors import EntryNotFound
from skipstone_shared.orchestration import CacheMode, CacheOptions, DriftReport, HitTier

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

READS = CacheOptions(mode=CacheMode.READ_ONLY)
AUDIT_ALL = (
    *PATIENT,
    *("--drift-audit-share", "1", "--drift-audit-poll-s", "0.05", "--drift-min-audits", "1"),
)


def report(client: OrchestratorClient) -> DriftReport:
    drift = client.get_stats().drift
    assert drift is not None
    return drift


def audited(client: OrchestratorClient, count: int) -> DriftReport:
    wait_until(lambda: sum(report(client).audits.values()) == count, "the audit is made", 60.0)
    found = report(client)
    assert found.audits == {"measured": count}
    return found


def test_a_bad_donor_is_set_aside_and_its_tier_closed(cluster: Cluster, namespace: str) -> None:
    donor = generate_saved(cluster, namespace).provenance.saved_entry_id
    with cluster.another_orchestrator(*AUDIT_ALL, "--max-drift", "0.001") as client:
        hit = generate(client, namespace, REWORDED, seed=2, cache=READS).provenance
        assert (hit.tier, hit.donor_entry_id) == (HitTier.APPROXIMATE, donor)
        found = audited(client, 1)
        (tier,) = found.tiers
        assert (tier.tier, tier.closed) == (hit.reuse_tier, True)
        assert found.quarantined_donors == 1
        assert found.audit_steps == hit.num_inference_steps + hit.executed_steps
        with pytest.raises(EntryNotFound):
            cluster.client.get_entry(donor, namespace)
        # Another donor of the same tier is fine in itself; it is the tier that is closed. The
        # shallower ones may still serve.
        generate_saved(cluster, namespace, seed=3)
        told = generate(client, namespace, REWORDED, seed=4, cache=READS).provenance
        assert told.reuse_tier != hit.reuse_tier
        assert told.skip_steps < hit.skip_steps
    assert {entry.entry_id[0] for entry in all_entries(cluster, namespace)} == {"x"}, (
        "nothing is left of the audits"
    )


def test_a_good_audit_leaves_everything_as_it_was(cluster: Cluster, namespace: str) -> None:
    donor = generate_saved(cluster, namespace).provenance.saved_entry_id
    with cluster.another_orchestrator(*AUDIT_ALL, "--max-drift", "5") as client:
        hit = generate(client, namespace, REWORDED, seed=2).provenance
        assert hit.saved_entry_id
        found = audited(client, 1)
        (tier,) = found.tiers
        assert tier.mean is not None
        assert 0.0 < tier.mean < 2.0
        assert (tier.closed, found.quarantined_donors) == (False, 0)
        assert found.audit_steps == hit.num_inference_steps, "the hit itself is stored"
        again = generate(client, namespace, REWORDED, seed=3, cache=READS).provenance
        assert again.donor_entry_id == donor
