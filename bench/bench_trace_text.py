"""What the hit decision makes of a real log of requests, by their texts alone.

3,484 prompts of many users (`data/README.md`) go past the product's store, search and policy, at 50
steps, unbounded, resumed runs not donating. Nothing is drawn, so quality is not measured here.

    exact-only       nothing but repeats, each with its old seed: the exact tier answers
    published-table  the cosine of MiniLM alone decides how deep
    gate             candidates are scored by the default reranker, and its score decides

The last two with `seeds` new (a repeat is renoised at most) and old (a repeat has its old seed).
`log_hit_share` is the share of requests that skipped any step, `log_steps_saved` that of all steps
that were not run; p50 and p99 are skipped steps per request, `interval` is that of 95 % over
resampled blocks of 100 successive requests, since those of one user come together.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from page_parts import replace_part
from replay.cache import STEPS, Outcome, Scores, Settings, no_gate, replay
from replay.drawing import PAGE, Line
from replay.request_log import embed, read_prompts
from skipstone_embedding.config import EmbeddingSettings
from skipstone_embedding.loading import load_reranker
from skipstone_embedding.model_files import MINILM
from skipstone_embedding.reranker import Reranker
from skipstone_orchestrator.calibration import load_calibration
from skipstone_orchestrator.config import OrchestratorSettings
from skipstone_orchestrator.reuse_policy import ReusePolicy
from skipstone_shared.calibration import ServiceIds
from skipstone_shared.embeddings import EmbeddingInput

EXACT: Final = "exact-only"
TABLE: Final = "published-table"
GATE: Final = "gate"
NEW: Final = "new"
OLD: Final = "old"
BLOCK: Final = 100
RESAMPLES: Final = 2_000

Floats = npt.NDArray[np.float64]


def scores_of(reranker: Reranker, prompts: Sequence[str]) -> Scores:
    """The scores that a reranker gives."""
    inputs = [EmbeddingInput(text=prompt) for prompt in prompts]

    def scores(row: int, candidates: Sequence[int]) -> Sequence[float]:
        return reranker.rerank(inputs[row], [inputs[candidate] for candidate in candidates])

    return scores


def interval(values: Floats) -> tuple[float, float]:
    """95 % interval of a mean: circular block bootstrap (Politis and Romano 1992)."""
    rng = np.random.default_rng(0)
    blocks = -(-len(values) // BLOCK)
    starts = rng.integers(len(values), size=(RESAMPLES, blocks))
    rows = (starts[:, :, None] + np.arange(BLOCK)).reshape(RESAMPLES, -1)[:, : len(values)]
    low, high = np.quantile(values[rows % len(values)].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def show(method: str, seeds: str, outcome: Outcome, **told: object) -> list[Line]:
    """Prints both figures of a replay."""
    lines: list[Line] = []
    p50, p99 = np.percentile(outcome.skipped, [50, 99])
    figures: dict[str, Floats] = {
        "log_hit_share": (outcome.skipped > 0).astype(np.float64),
        "log_steps_saved": outcome.skipped / STEPS,
    }
    for figure, values in figures.items():
        line: Line = {
            "figure": figure,
            "method": method,
            "value": round(float(values.mean()), 4),
            "p50": float(p50),
            "p99": float(p99),
            "n": len(values),
            "interval": [round(end, 4) for end in interval(values)],
            "seeds": seeds,
            "exact_share": round(float(outcome.exact.mean()), 4),
            **told,
        }
        lines.append(line)
        print(json.dumps(line), flush=True)
    return lines


def main() -> None:
    """Replays the log with each method."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--requests", type=int, help="so many first ones; default: all")
    parser.add_argument("--draw", action="store_true", help="renew docs/capacity.md too")
    args = parser.parse_args()
    prompts = read_prompts()[: args.requests]
    vectors = embed(prompts)
    reranker = load_reranker(EmbeddingSettings())
    if reranker is None:
        raise SystemExit("the default settings have no reranker")
    exact = replay(prompts, vectors, Settings(same_seed=True, approximate=False))
    lines = show(EXACT, OLD, exact)
    gated = default_policy(reranker.reranker_id)
    for method, policy, scores, told in (
        (TABLE, ReusePolicy(), no_gate, {}),
        (GATE, gated, scores_of(reranker, prompts), {"reranker": reranker.reranker_id}),
    ):
        for seeds in (NEW, OLD):
            settings = Settings(reuse=policy, same_seed=seeds == OLD)
            outcome = replay(prompts, vectors, settings, scores)
            lines += show(method, seeds, outcome, policy=policy.version, **told)
    if args.draw:
        replace_part(PAGE, "gate", gate_table(lines))


def default_policy(reranker_id: str) -> ReusePolicy:
    """The default settings' policy; a calibration counts as made with the model that runs."""
    settings = OrchestratorSettings()
    calibration = load_calibration(settings.calibration_file)
    fits = calibration.services if calibration else None
    services = ServiceIds(
        embedder_id=fits.embedder_id if fits else MINILM,
        reranker_id=reranker_id,
        model_hash=fits.model_hash if fits else "",
    )
    return settings.policies().in_force(services)


def gate_table(lines: Sequence[Line]) -> str:
    """The figures as Markdown."""
    rows = [
        "| decided by | repeats come with | requests that skip (95 % interval) | "
        "steps saved (95 % interval) |",
        "|---|---|---|---|",
    ]
    for hits, steps in zip(lines[::2], lines[1::2], strict=True):
        cells = [_percent(line) for line in (hits, steps)]
        rows.append(f"| {hits['method']} | {hits['seeds']} seeds | {' | '.join(cells)} |")
    return "\n".join(rows)


def _percent(line: Line) -> str:
    low, high = (100 * end for end in line["interval"])
    return f"{100 * line['value']:.1f} % ({low:.1f} to {high:.1f})"


if __name__ == "__main__":
    main()
