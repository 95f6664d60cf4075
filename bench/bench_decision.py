"""What the hit decision costs a request that finds nothing, beside the encoder.

All five services run as processes. The index holds real prompts (every other one of
`data/request_log.csv`) with their own vectors, and as many others, far from them, as it takes to
reach `--entries`. The other half of the log is asked for, through `Explain`: a search, the gate on
the default number of candidates (8, real prompts of users), and the policy. Only requests that end
as a miss count. Half of them name a seed, so that the exact tier is asked first: two more reads.

    decision_ms   the stage `lookup` of the orchestrator's own clock: search, gate and policy
    request_ms    the whole call on the wall, encoder and both ways included
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from replay.request_log import embed, read_prompts
from search.vectors import Matrix, clustered
from server_process import wait_until
from skipstone_client import OrchestratorClient, VectorIndexClient
from skipstone_client.local_cluster import LocalCluster
from skipstone_shared.generation import GenerationParams
from skipstone_shared.index_entries import IndexEntry, VectorEntry
from skipstone_shared.latents import LatentRef
from skipstone_shared.orchestration import Explanation, HitTier

NAMESPACE: Final = "decisions"
STEPS: Final = 50
DIMENSION: Final = 384
TOPICS: Final = 1_000
_BATCH: Final = 500
_WARM_UP: Final = 20
# Audits would run beside what is measured; a gate that a busy machine makes late gives no miss.
_FLAGS: Final = {
    "orchestrator": [
        "--drift-audit-share",
        "0",
        "--gate-timeout-s",
        "5",
        "--lookup-timeout-s",
        "10",
    ]
}


def main() -> None:
    """Measures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=1000)
    arguments = parser.parse_args()
    prompts = list(dict.fromkeys(read_prompts()))
    known, asked = prompts[::2], prompts[1::2]
    random.Random(0).shuffle(asked)
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(folder, free_ports=True, flags=_FLAGS) as cluster,
        OrchestratorClient(cluster.targets["orchestrator"]) as client,
        VectorIndexClient(cluster.targets["vector_index"], timeout_s=600.0) as index,
    ):
        told = _explain(client, asked[0])
        _fill(index, told, known, arguments.entries)
        graphs = Path(folder) / "vector_index" / "graphs"
        wait_until(lambda: any(graphs.glob("*.graph")), "the graph is built")
        times: dict[str, list[tuple[float, float]]] = {"miss": [], "miss, seed given": []}
        for number, prompt in enumerate(asked[: _WARM_UP + arguments.requests]):
            method = tuple(times)[number % 2]
            start = time.perf_counter()
            told = _explain(client, prompt, seed=1 if number % 2 else None)
            wall_s = time.perf_counter() - start
            if number >= _WARM_UP and told.decision.tier is HitTier.MISS:
                times[method].append((told.stage_times_s["lookup"], wall_s))
    candidates = len(told.decision.candidates)
    for method, pairs in times.items():
        for figure, values in zip(
            ("decision_ms", "request_ms"), zip(*pairs, strict=True), strict=True
        ):
            p50, p99 = np.percentile(np.array(values) * 1000, [50, 99])
            line = {
                "figure": figure,
                "method": method,
                "value": round(float(p50), 3),
                "p50": round(float(p50), 3),
                "p99": round(float(p99), 3),
                "n": len(values),
                "entries": arguments.entries,
                "candidates": candidates,
            }
            print(json.dumps(line))


def _explain(client: OrchestratorClient, prompt: str, seed: int | None = None) -> Explanation:
    params = GenerationParams(prompt, num_inference_steps=STEPS, seed=seed)
    return client.explain(params, namespace=NAMESPACE, timeout_s=30.0)


def _fill(index: VectorIndexClient, told: Explanation, known: Sequence[str], count: int) -> None:
    """Stores the known prompts and others up to a number of entries."""
    key = told.decision.compatibility_key
    for entries in _batches(known, count, told.embedding_model_id):
        refused = index.upsert_entries(NAMESPACE, key, entries)
        if any(refused):
            raise SystemExit(f"an entry was refused: {refused}")


def _batches(known: Sequence[str], count: int, model_id: str) -> Iterator[list[VectorEntry]]:
    others = clustered(count - len(known), DIMENSION, TOPICS, seed=0)
    vectors: Matrix = np.concatenate([embed(known), others])
    texts = [*known, *(f"another prompt {row}" for row in range(len(others)))]
    for start in range(0, count, _BATCH):
        yield [
            VectorEntry(_entry(row, texts[row], model_id), vectors[row])
            for row in range(start, min(start + _BATCH, count))
        ]


def _entry(row: int, prompt: str, model_id: str) -> IndexEntry:
    ref = LatentRef(NAMESPACE, str(row), STEPS)
    return IndexEntry(str(row), prompt, row, (ref,), embedding_model_id=model_id)


if __name__ == "__main__":
    main()
