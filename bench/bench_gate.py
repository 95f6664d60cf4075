"""How often a hit would be wrong, how often a rewording hits, and what the decision costs.

    make bench-gate

Asks the product's own pieces at default settings (see `gate/decisions.py`) about pairs of prompts:
GenEval's swaps, VBench's prompts with their published rewrites, and generated pairs of words and
kinds of edits that nothing was fitted on. Rival: the published table on the cosine alone. A stock
cross-encoder would be another one; its weights cannot be fetched here, so name a folder with
`--cross-encoder` to measure one.

    swap_wrong_hit_rate   share of changed meanings that are hits
    paraphrase_hit_rate   share of rewordings that are hits
    gate_curve            the same two for the gate's score alone, by threshold (with --curve)
    decision_ms           the gate on one prompt and five or eight candidates; p50 and p99

Prints one JSON line per figure; intervals are Wilson's at 95 %.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gate.decisions import PairJudge
from gate.pair_sets import DATA, PairSet, generated_sets, published_sets
from skipstone_client.calibrate.intervals import wilson
from skipstone_embedding.config import EmbeddingSettings
from skipstone_gate.real_prompts import read_parti
from skipstone_shared.structured_logging import configure_logging

_CALLS = 400
_CANDIDATES = (5, 8)
"""What the issue asks for, and the search's default `top_k`."""

_THRESHOLDS = (0.0, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)


def tell(figure: str, method: str, **facts: Any) -> None:
    """Prints one figure."""
    print(json.dumps({"figure": figure, "method": method, **facts}), flush=True)


def tell_share(figure: str, method: str, name: str, hits: int, total: int) -> None:
    """Prints a share with its interval."""
    share = wilson(hits, total)
    interval = [round(share.low, 4), round(share.high, 4)]
    tell(figure, method, pairs=name, value=round(share.value, 4), n=total, interval=interval)


def figure_of(pair_set: PairSet) -> str:
    """Name of the figure a set is about."""
    return "paraphrase_hit_rate" if pair_set.same else "swap_wrong_hit_rate"


def measure_hits(judge: PairJudge, method: str, sets: Sequence[PairSet]) -> None:
    """Prints the share of hits per set."""
    for pair_set in sets:
        hits = sum(decision.skip_steps > 0 for decision in judge.decide(pair_set.pairs))
        tell_share(figure_of(pair_set), method, pair_set.name, hits, len(pair_set.pairs))


def measure_curve(judge: PairJudge, method: str, sets: Sequence[PairSet]) -> None:
    """Prints the share of pairs whose score lies above each threshold."""
    for pair_set in sets:
        scores = [decision.score or 0.0 for decision in judge.decide(pair_set.pairs)]
        for threshold in _THRESHOLDS:
            share = sum(score > threshold for score in scores) / len(scores)
            facts = {"pairs": pair_set.name, "same": pair_set.same, "above": threshold}
            tell("gate_curve", method, **facts, value=round(share, 4), n=len(scores))


def measure_cost(embedding: EmbeddingSettings | None = None) -> None:
    """Prints what one call costs; every number of candidates gets a gate that has seen nothing."""
    for candidates in _CANDIDATES:
        with PairJudge(embedding) as judge:
            _measure_calls(judge, candidates)


def _measure_calls(judge: PairJudge, candidates: int) -> None:
    rng = random.Random(0)
    prompts = read_parti(DATA / "parti_prompts.tsv")
    rng.shuffle(prompts)
    step = 1 + candidates
    calls = [prompts[at : at + step] for at in range(0, len(prompts) - step, step)][:_CALLS]
    times = sorted(_milliseconds(partial(judge.score, call[0], call[1:])) for call in calls)
    tell(
        "decision_ms",
        judge.reranker_id,
        value=round(sum(times) / len(times), 3),
        p50=round(times[len(times) // 2], 3),
        p99=round(times[int(0.99 * len(times))], 3),
        n=len(times),
        candidates=candidates,
        clock="cpu",
    )


def _milliseconds(call: Callable[[], object]) -> float:
    """CPU time of this process: the machine may be busy with something else."""
    started = time.process_time()
    call()
    return 1000.0 * (time.process_time() - started)


def main() -> int:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--curve", action="store_true", help="print the trade-off by threshold too")
    parser.add_argument("--cross-encoder", type=Path, help="folder of a cross-encoder to measure")
    arguments = parser.parse_args()
    configure_logging("bench-gate", "warning", "console")
    sets = [*published_sets(), *generated_sets()]
    measure_cost()
    with PairJudge() as judge:
        method = f"default settings ({judge.reranker_id})"
        measure_hits(judge, method, sets)
        if arguments.curve:
            measure_curve(judge, judge.reranker_id, sets)
        measure_hits(judge.without_gate(), "cosine with the published table", sets)
    if arguments.cross_encoder is not None:
        settings = EmbeddingSettings(reranker=str(arguments.cross_encoder))
        measure_cost(settings)
        with PairJudge(settings) as judge:
            measure_curve(judge, judge.reranker_id, sets)
    else:
        tell(
            "swap_wrong_hit_rate",
            "stock cross-encoder",
            value=None,
            note="not measured: no weights here; give a folder with --cross-encoder",
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
