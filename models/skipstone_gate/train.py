r"""Fits the scorer of the bundled gate on generated pairs, a minute on one core.

    PYTHONPATH=models:services:shared python -m skipstone_gate.train \
        --prompts bench/data/parti_prompts.tsv --log bench/data/request_log.csv \
        --out models/skipstone-gate

The rules refuse; what they let through is weighed by a logistic model of how the two prompts
differ. Its weights are at most 0, so that no difference raises a score. Every second prompt of both
files is left for `bench/bench_gate.py`. Equal seeds give equal weights.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from skipstone_embedding.gate.comparison import compare
from skipstone_embedding.gate.findings import Comparison
from skipstone_embedding.gate.lexicon import Lexicon
from skipstone_embedding.gate.prompt_gate import LEXICON_FILE, SCORER_FILE
from skipstone_embedding.gate.readings import read_prompt
from skipstone_embedding.gate.scorer import features
from skipstone_gate.pairs import Pair, generated_pairs
from skipstone_gate.real_prompts import read_log, read_parti

PAIRS = 12_000
SEED = 20_261
_DECAY = 0.02
"""Pull of each weight towards 0, so that what the pairs do not tell stays small."""

_LEAST_PENALTY = 0.2
"""Least that a feature at its largest takes off the log odds: no difference is free."""

Vector = npt.NDArray[np.float64]


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    arguments = parser.parse_args()
    real = [*read_parti(arguments.prompts)[::2], *read_log(arguments.log)[::2]]
    pairs = generated_pairs(arguments.pairs, SEED, held_out=False, real=real)
    lexicon = Lexicon(arguments.out / LEXICON_FILE)
    compared = [compared_pair(pair, lexicon) for pair in pairs]
    passed = [(p, c) for p, c in zip(pairs, compared, strict=True) if not c.forbids]
    rows = [features(comparison) for _, comparison in passed]
    names = sorted(rows[0])
    bias, weights = fit(
        np.array([[row[name] for name in names] for row in rows]),
        np.array([pair.acceptable for pair, _ in passed]),
    )
    scorer = {
        "bias": round(bias, 4),
        "weights": {name: round(float(w), 4) for name, w in zip(names, weights, strict=True)},
    }
    (arguments.out / SCORER_FILE).write_text(json.dumps(scorer, indent=1) + "\n")
    wrong = sum(not pair.same for pair, _ in passed)
    print(f"{len(pairs)} pairs, {len(passed)} pass the rules, {wrong} of them are not the same")
    print(json.dumps(scorer))
    return 0


def compared_pair(pair: Pair, lexicon: Lexicon) -> Comparison:
    """What the rules find in a pair."""
    left, right = read_prompt(pair.left, lexicon), read_prompt(pair.right, lexicon)
    return compare(left, right, lexicon)


def fit(rows: Vector, targets: Vector) -> tuple[float, Vector]:
    """Bias and weights of the logistic model with the least loss, weights at most 0.

    Args:
        rows: Features, float64 `(pairs, features)`.
        targets: Chance per pair, float64 `(pairs,)`.
    """

    def loss(parameters: Vector) -> tuple[float, Vector]:
        odds = parameters[0] + rows @ parameters[1:]
        chance = 1.0 / (1.0 + np.exp(-odds))
        terms = np.logaddexp(0.0, odds) - targets * odds
        value = terms.mean() + _DECAY / 100.0 * float(parameters[1:] @ parameters[1:])
        slope = (chance - targets) / len(targets)
        gradient = np.concatenate([[slope.sum()], rows.T @ slope])
        gradient[1:] += 2.0 * _DECAY / 100.0 * parameters[1:]
        return float(value), gradient

    bounds = [(None, None), *[(None, -_LEAST_PENALTY)] * rows.shape[1]]
    start = np.zeros(rows.shape[1] + 1)
    start[1:] = -_LEAST_PENALTY
    found = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B")
    return float(found.x[0]), found.x[1:]


if __name__ == "__main__":
    raise SystemExit(main())
