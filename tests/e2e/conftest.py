"""What the end-to-end tests share: one tiny model, one cluster, a namespace of its own per test."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.processes import PATIENT, Cluster
from tests.e2e.tiny_model import write_tiny_model

# Audits are drawn at random and would add steps that a test counts.
_NO_AUDITS = ("--drift-audit-share", "0")


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """Lets what tests start see SIGINT: a shell has its background jobs, and theirs, ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a pipeline with random weights."""
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="session")
def _shared_cluster(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with Cluster(folder, tiny_model, {"orchestrator": (*PATIENT, *_NO_AUDITS)}) as cluster:
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
