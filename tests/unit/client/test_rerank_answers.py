"""What the clients make of an answer of Rerank."""

from __future__ import annotations

import pytest

from skipstone.embedding.v1 import embedding_pb2 as pb
from skipstone_client._embedding_requests import rerank_scores
from skipstone_shared.errors import Internal


def test_scores_come_in_order() -> None:
    assert rerank_scores(pb.RerankResponse(scores=[0.25, 1.0, 0.0]), 3) == [0.25, 1.0, 0.0]


@pytest.mark.parametrize("scores", [[], [0.5], [0.5, 0.5, 0.5]])
def test_another_number_of_scores_is_none(scores: list[float]) -> None:
    with pytest.raises(Internal, match="for 2 candidates"):
        rerank_scores(pb.RerankResponse(scores=scores), 2)
