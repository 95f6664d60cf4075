"""Requests that the end-to-end tests send, and waiting for what happens after an answer."""

from __future__ import annotations

import hashlib

from tests.e2e.processes import Cluster, wait_until

from skipstone_client import OrchestratorClient
from skipstone_shared.errors import EntryNotFound
from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import CacheMode, CacheOptions, GenerateResult
from skipstone_shared.stored_entries import StoredEntry

# Scores against PROMPT are those of the bundled gate.
PROMPT = "a small red circle on a blue background"
REWORDED = "there is a small red circle on a blue background"
"""0.99: the deepest row of the table."""
LOOSELY_REWORDED = "a picture of a small shiny red circle against blue"
"""0.74: a detail that the donor lacks, the last row."""
UNRELATED = "seven sailors rowing a wooden boat at night"
"""0: refused."""

STEPS = 20
OFF = CacheOptions(mode=CacheMode.OFF)


def generate(
    client: OrchestratorClient,
    namespace: str,
    prompt: str = PROMPT,
    *,
    seed: int | None = 1,
    steps: int = STEPS,
    cache: CacheOptions | None = None,
) -> GenerateResult:
    """Sends one request and waits for its picture."""
    params = GenerationParams(prompt, num_inference_steps=steps, seed=seed)
    return client.generate(params, cache, namespace, timeout_s=60.0)


def generate_saved(
    cluster: Cluster,
    namespace: str,
    prompt: str = PROMPT,
    *,
    seed: int | None = 1,
    steps: int = STEPS,
    cache: CacheOptions | None = None,
) -> GenerateResult:
    """Sends one request and waits until its entry can be found."""
    result = generate(cluster.client, namespace, prompt, seed=seed, steps=steps, cache=cache)
    assert result.provenance.saved_entry_id, result.provenance
    wait_saved(cluster, namespace, result)
    return result


def wait_saved(cluster: Cluster, namespace: str, result: GenerateResult) -> None:
    """Waits until the entry of an answer can be found."""
    entry_id = result.provenance.saved_entry_id
    wait_until(lambda: is_saved(cluster, namespace, entry_id), f"entry {entry_id} is saved")


def picture(result: GenerateResult) -> str:
    """A digest of a picture's bytes: pytest would spend minutes on the difference of the bytes."""
    return hashlib.sha256(result.artifact.data).hexdigest()


def is_saved(cluster: Cluster, namespace: str, entry_id: str) -> bool:
    """Whether an entry can be found."""
    try:
        cluster.client.get_entry(entry_id, namespace)
    except EntryNotFound:
        return False
    return True


def all_entries(cluster: Cluster, namespace: str) -> tuple[StoredEntry, ...]:
    """Entries of a namespace in the store, uncommitted ones too."""
    return cluster.store.list_entries(namespace, 1000, include_uncommitted=True).entries


def entry_count(cluster: Cluster, namespace: str) -> int:
    """Number of entries of a namespace in the store, uncommitted ones too."""
    return len(all_entries(cluster, namespace))
