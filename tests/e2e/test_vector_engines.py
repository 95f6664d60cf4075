"""vector_index processes that keep their entries in an engine outside."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import psutil
import pytest
from tests.e2e.processes import running_service
from tests.servers.milvus_lite import shared_milvus_lite
from tests.servers.postgres import PASSWORD, shared_postgres

from skipstone_client import VectorIndexClient
from skipstone_shared.index_entries import IndexEntry, VectorEntry

pytestmark = pytest.mark.e2e

KEY = "a1" * 16
URLS: dict[str, Callable[[], str]] = {
    "pgvector": lambda: shared_postgres().url,
    "milvus": lambda: shared_milvus_lite().url,
}


@pytest.mark.parametrize("engine", ["pgvector", pytest.param("milvus", marks=pytest.mark.long)])
def test_what_one_process_acknowledged_another_finds_after_its_end(
    engine: str, tmp_path: Path
) -> None:
    """Chosen by configuration alone; the first is killed, and neither shows the password."""
    url = URLS[engine]()
    config = tmp_path / "skipstone.toml"
    config.write_text(
        f'[vector_index]\nengine = "{engine}"\nurl = "{url}"\n'
        f'collection = "t{uuid.uuid4().hex[:24]}"\n',
        encoding="utf-8",
    )
    rows = np.random.default_rng(0).standard_normal((20, 16)).astype(np.float32)
    entries = [VectorEntry(IndexEntry(f"e{i}", seed=i), row) for i, row in enumerate(rows)]
    with running_service("vector_index", "--config", str(config)) as target:
        lines = [line for p in psutil.process_iter() for line in _command(p)]
        assert any("skipstone_vector_index" in line for line in lines)
        assert not any(PASSWORD in line for line in lines)
        with VectorIndexClient(target) as client:
            assert client.upsert_entries("", KEY, entries, timeout_s=30) == [None] * 20
            assert client.get_capabilities(timeout_s=30).engine == engine
    with ExitStack() as stack:
        target = stack.enter_context(running_service("vector_index", "--config", str(config)))
        client = stack.enter_context(VectorIndexClient(target))
        (hits,) = client.search_entries("", KEY, [rows[7]], 3, timeout_s=30)
        assert (hits[0].entry.entry_id, hits[0].entry.seed, hits[0].similarity) == ("e7", 7, 1.0)
        assert client.get_stats("", timeout_s=30).entry_count == 20


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
