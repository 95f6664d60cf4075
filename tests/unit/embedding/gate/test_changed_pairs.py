"""No pair of a class of differences passes, whatever the class overlooks elsewhere.

A wrong picture is the worst that a cache can serve: a score above 0 is a failure here, not only one
above a threshold.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.embedding.gate.changed_pairs import CLASSES, KNOWN_WRONG, Pairs

from skipstone_embedding.gate.prompt_gate import PromptGate


@pytest.mark.parametrize("pairs_of", CLASSES, ids=lambda pairs_of: pairs_of.__name__)
def test_no_pair_that_means_another_picture_passes(
    gate: PromptGate, pairs_of: Callable[[], Pairs]
) -> None:
    pairs = list(dict.fromkeys(pairs_of()))
    assert len(pairs) > 10
    assert all(left != right for left, right in pairs)
    assert [pair for pair in pairs if gate.score(*pair) > 0.0] == []


def test_the_known_wrong_hits_are_still_all_that_docs_name(gate: PromptGate) -> None:
    """Where one of them is refused at last, docs/gate.md is to be told."""
    assert [pair for pair in KNOWN_WRONG if gate.score(*pair) == 0.0] == []
