"""Findings -> the chance that the donor's picture is an acceptable start."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

from skipstone_embedding.gate.findings import Comparison, Kind

REFUSED = 0.0
"""Score of a pair that a rule forbids: no weighing makes it a hit."""

_MOST = 4
"""What a feature counts to at most: the fifth unknown detail tells no more than the fourth."""

COUNTED = {
    "synonym": Kind.SYNONYM,
    "special": Kind.SPECIAL,
    "soft": Kind.SOFT,
    "detail": Kind.DETAIL,
    "unverified": Kind.UNVERIFIED,
    "partly_lost": Kind.PARTLY_LOST,
}


def features(comparison: Comparison) -> dict[str, float]:
    """What the scorer looks at, each 0 for two equal prompts and larger the more they differ."""
    counted = {name: min(comparison.count(kind), _MOST) / _MOST for name, kind in COUNTED.items()}
    rewritten = float(comparison.count(Kind.REWRITTEN))
    total = comparison.shared + comparison.added
    # Beyond half of the words it makes no difference how many more a rewriter finds.
    share = min(1.0, 2.0 * comparison.added / total) if total else 0.0
    return {
        **counted,
        # The first detail costs more than each further one.
        "any_detail": float(counted["detail"] > 0.0),
        "rewritten": rewritten,
        "rewritten_share": rewritten * share,
    }


class Scorer:
    """A logistic model of the features. Immutable."""

    def __init__(self, bias: float, weights: Mapping[str, float]) -> None:
        """Creates the scorer.

        Args:
            bias: Log odds of two equal prompts.
            weights: Per feature, at most 0: a difference never raises the score.
        """
        self._bias = bias
        self._weights = dict(weights)

    @classmethod
    def load(cls, path: Path) -> Scorer:
        """Reads what `skipstone_gate.train` wrote."""
        stored = json.loads(path.read_text())
        return cls(stored["bias"], stored["weights"])

    def score(self, comparison: Comparison) -> float:
        """0 (refused) to 1 (surely an acceptable start)."""
        if comparison.forbids:
            return REFUSED
        found = features(comparison)
        odds = self._bias + sum(weight * found[name] for name, weight in self._weights.items())
        return 1.0 / (1.0 + math.exp(-odds))
