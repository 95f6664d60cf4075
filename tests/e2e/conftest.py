"""What the end-to-end tests share: one tiny model, one cluster, a namespace of its own per test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.processes import Cluster
from tests.e2e.tiny_model import write_tiny_model

# Deadlines of a lookup are made for idle machines; where a test is not about them they must not
# turn a hit into a fallback.
_PATIENT = (
    *("--embedding-timeout-s", "10", "--index-timeout-s", "10", "--latent-kv-timeout-s", "10"),
    *("--gate-timeout-s", "10", "--lookup-timeout-s", "20"),
)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a pipeline with random weights."""
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="session")
def _shared_cluster(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with Cluster(folder, tiny_model, {"orchestrator": _PATIENT}) as cluster:
        yield cluster


@pytest.fixture
def cluster(_shared_cluster: Cluster) -> Cluster:
    """Five running services, shared by all tests; a test may kill what it likes."""
    _shared_cluster.heal()
    return _shared_cluster


@pytest.fixture
def namespace() -> str:
    """A namespace that no other test has used."""
    return f"test-{uuid.uuid4().hex[:12]}"
