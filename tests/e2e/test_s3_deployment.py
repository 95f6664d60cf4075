"""A whole deployment that keeps its latents in S3, a real server that is killed and comes back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.generations import (
    OFF,
    PROMPT,
    REWORDED,
    UNRELATED,
    generate,
    generate_saved,
    picture,
)
from tests.e2e.processes import PATIENT, Cluster, service_environment, wait_until
from tests.servers.seaweedfs import SeaweedFS, running_seaweedfs

from backends.seaweedfs_process import BUCKET, as_flags
from skipstone_shared.orchestration import HitTier, Provenance

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(600)]

PREFIX = "deployment"


@pytest.fixture(scope="module")
def server() -> Iterator[SeaweedFS]:
    with running_seaweedfs() as server:
        yield server


@pytest.fixture(scope="module")
def _on_s3(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, server: SeaweedFS
) -> Iterator[Cluster]:
    settings = {**server.settings, "s3_prefix": PREFIX, "s3_timeout_s": 2.0, "s3_attempts": 1}
    flags = {
        "latent_kv": as_flags(settings),
        "orchestrator": (*PATIENT, "--drift-audit-share", "0"),
    }
    with Cluster(tmp_path_factory.mktemp("on-s3"), tiny_model, flags) as cluster:
        yield cluster


@pytest.fixture
def on_s3(_on_s3: Cluster) -> Cluster:
    """Five running services; latents are in S3."""
    _on_s3.heal()
    return _on_s3


def objects_of(server: SeaweedFS, namespace: str, entry_id: str) -> int:
    """Objects in the bucket that hold bytes of an entry."""
    below = f"{PREFIX}/values/ns-{namespace}/entry-{entry_id}/"
    return int(server.client.list_objects_v2(Bucket=BUCKET, Prefix=below)["KeyCount"])


def command(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs the command line."""
    return subprocess.run(
        [sys.executable, "-m", "skipstone_client", *words],
        env=service_environment(SKIPSTONE_TARGET=cluster.targets["orchestrator"]),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def assert_uncached(told: Provenance) -> None:
    assert told.tier is HitTier.MISS
    assert told.executed_steps == told.num_inference_steps


def test_entries_are_used_over_a_kill_of_latent_kv_and_of_s3(
    on_s3: Cluster, server: SeaweedFS, namespace: str
) -> None:
    first = generate_saved(on_s3, namespace)
    entry_id = first.provenance.saved_entry_id
    assert on_s3.store.get_capabilities().engine == "s3"
    assert objects_of(server, namespace, entry_id) > 0

    def assert_used() -> None:
        again = generate(on_s3.client, namespace)
        told = again.provenance
        assert (told.tier, told.donor_entry_id, told.fallbacks) == (HitTier.EXACT, entry_id, ())
        assert picture(again) == picture(first)

    assert_used()
    near = generate(on_s3.client, namespace, REWORDED, seed=2).provenance
    assert (near.tier, near.donor_entry_id) == (HitTier.APPROXIMATE, entry_id)

    on_s3.kill("latent_kv")
    on_s3.restart("latent_kv")
    assert_used()

    full = {seed: generate(on_s3.client, namespace, seed=seed, cache=OFF) for seed in (1, 3)}
    server.kill()
    try:
        for seed, uncached in full.items():
            result = generate(on_s3.client, namespace, seed=seed)
            assert_uncached(result.provenance)
            assert picture(result) == picture(uncached)
            troubled = {fallback.service for fallback in result.provenance.fallbacks}
            assert troubled == {"latent_kv"}, result.provenance.fallbacks
    finally:
        server.start()
    wait_until(
        lambda: generate(on_s3.client, namespace).provenance.tier is HitTier.EXACT,
        "the entry is used again",
    )
    assert_used()
    generate_saved(on_s3, namespace, UNRELATED)
    assert on_s3.is_running("latent_kv")


def test_nobody_is_told_of_a_deletion_before_it_is_true(
    on_s3: Cluster, server: SeaweedFS, namespace: str
) -> None:
    of_prompt = ("--prompt", PROMPT, "--namespace", namespace)
    entry_id = generate_saved(on_s3, namespace).provenance.saved_entry_id
    kept = generate_saved(on_s3, namespace, UNRELATED).provenance.saved_entry_id
    proof = command(on_s3, "entries", "verify-deleted", *of_prompt)
    assert (proof.returncode, entry_id in proof.stdout) == (1, True), proof.stderr

    server.hang()
    try:
        deleted = command(on_s3, "entries", "delete-prompt", *of_prompt)
        assert deleted.returncode != 0, deleted.stdout
        proof = command(on_s3, "entries", "verify-deleted", entry_id, "--namespace", namespace)
        assert proof.returncode != 0, proof.stdout
        assert "nothing is left" not in proof.stdout
    finally:
        server.go_on()

    def delete() -> bool:
        # A breaker that opened meanwhile refuses a moment longer.
        ids = ("entries", "delete", entry_id, "--namespace", namespace)
        return command(on_s3, *ids).returncode == 0

    wait_until(delete, "the entry is deleted")
    for what in (of_prompt, (entry_id, "--namespace", namespace)):
        proof = command(on_s3, "entries", "verify-deleted", *what)
        assert proof.returncode == 0, proof.stdout + proof.stderr
        assert proof.stdout.startswith("nothing is left")
    assert objects_of(server, namespace, entry_id) == 0
    assert objects_of(server, namespace, kept) > 0
    assert_uncached(generate(on_s3.client, namespace).provenance)
    assert generate(on_s3.client, namespace, UNRELATED).provenance.tier is HitTier.EXACT
