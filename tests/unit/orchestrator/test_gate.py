"""The gate that asks the reranker, and what happens where none answers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import pytest
from tests.unit.orchestrator.site import in_loop, running_site

from skipstone_client.aio import AsyncEmbeddingClient
from skipstone_embedding.gate.prompt_gate import PromptGate
from skipstone_embedding.minilm_encoder import load_minilm
from skipstone_embedding.model_files import find_bundled_gate
from skipstone_embedding.reranker import Reranker
from skipstone_embedding.server import mount
from skipstone_orchestrator.gate import RerankGate
from skipstone_orchestrator.prompt_keys import PromptKeys
from skipstone_shared.embeddings import EmbeddingInput, RerankScores
from skipstone_shared.errors import Unavailable
from skipstone_shared.grpc_server import in_process_server
from skipstone_shared.index_entries import IndexEntry, SearchHit
from skipstone_shared.orchestration import HitTier, Provenance

PROMPT = "a red circle on a blue background"
REWORDED = "there is a red circle on a blue background"
SWAPPED = "a blue circle on a red background"


class Lengths:
    """Scores a text by its length, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def rerank(
        self, query: EmbeddingInput, candidates: Sequence[EmbeddingInput], *, namespace: str = ""
    ) -> list[float]:
        self.asked.append([candidate.text for candidate in candidates])
        return RerankScores((len(candidate.text) / 100 for candidate in candidates), "lengths")


def hit(prompt: str, kept: bool = True) -> SearchHit:
    labels = PromptKeys().labels(prompt, kept=kept)
    return SearchHit(IndexEntry("e", prompt if kept else "", labels=labels), 0.9)


@in_loop
async def test_every_candidate_gets_its_own_score_in_order() -> None:
    hits = [hit("four"), hit("seventeen letters"), hit("six...")]
    assert await RerankGate(Lengths()).score("", PROMPT, hits) == [0.04, 0.17, 0.06]


@in_loop
async def test_the_same_prompt_needs_no_question() -> None:
    reranker = Lengths()
    spaced = PROMPT.replace(" ", "  ")
    scores = await RerankGate(reranker).score("", PROMPT, [hit(spaced), hit("four")])
    assert (scores, reranker.asked) == ([1.0, 0.04], [["four"]])


@in_loop
async def test_another_case_is_a_question_for_the_reranker() -> None:
    """What a sign says is drawn letter by letter."""
    reranker = Lengths()
    scores = await RerankGate(reranker).score("", 'a "STOP" sign', [hit('a "stop" sign')])
    assert (scores, reranker.asked) == ([0.13], [['a "stop" sign']])


@in_loop
async def test_a_prompt_that_is_not_kept_fits_only_itself() -> None:
    reranker = Lengths()
    hits = [hit(REWORDED, kept=False), hit(PROMPT, kept=False)]
    gate = RerankGate(reranker)
    for _ in range(2):
        scores = await gate.score("", PROMPT, hits)
        assert (scores, scores.reranker_id) == ([0.0, 1.0], "lengths")
    assert reranker.asked == [[PROMPT]], "once, to learn whose scores these would be"


@in_loop
async def test_a_prompt_that_is_not_kept_is_not_the_one_in_another_case() -> None:
    for keys in (PromptKeys(), PromptKeys(b"k" * 32)):
        labels = keys.labels('a "STOP" sign', kept=False)
        entry = SearchHit(IndexEntry("e", "", labels=labels), 0.99)
        gate = RerankGate(Lengths(), keys)
        assert await gate.score("", 'a "stop" sign', [entry]) == [0.0]
        assert await gate.score("", 'a  "STOP" sign', [entry]) == [1.0]


class Broken:
    """A reranker that is there and fails."""

    reranker_id = "broken"
    max_candidates = 100

    def rerank(
        self, query: EmbeddingInput, candidates: Sequence[EmbeddingInput], instruction: str = ""
    ) -> list[float]:
        raise Unavailable("the reranker is tired")


class OneTooFew(Broken):
    """A reranker that loses a score."""

    def rerank(
        self, query: EmbeddingInput, candidates: Sequence[EmbeddingInput], instruction: str = ""
    ) -> list[float]:
        return [1.0] * (len(candidates) - 1)


class NoNumber(Broken):
    """A reranker whose scores are no numbers."""

    def rerank(
        self, query: EmbeddingInput, candidates: Sequence[EmbeddingInput], instruction: str = ""
    ) -> list[float]:
        return [float("nan")] * len(candidates)


async def second_request(stack: ExitStack, reranker: Reranker | None, prompt: str) -> Provenance:
    """Provenance of a request after PROMPT was stored, with the reranker behind a real server."""
    target = stack.enter_context(in_process_server(mount(load_minilm(), reranker)))
    client = AsyncEmbeddingClient(target)
    try:
        async with running_site(RerankGate(client)) as site:
            await site.generate(PROMPT, seed=1)
            return (await site.generate(prompt, seed=2)).provenance
    finally:
        await client.close()


@in_loop
async def test_over_the_wire_a_rewording_hits_and_a_swap_does_not() -> None:
    with ExitStack() as stack:
        reranker = PromptGate(find_bundled_gate())
        told = await second_request(stack, reranker, REWORDED)
        assert told.tier is HitTier.APPROXIMATE
        assert told.rerank_score > 0.9
        told = await second_request(stack, reranker, SWAPPED)
        assert (told.tier, told.rerank_score) == (HitTier.MISS, 0.0)


@pytest.mark.parametrize(
    ("reranker", "reason"),
    [
        (None, "FAILED_PRECONDITION"),
        (Broken(), "UNAVAILABLE"),
        (OneTooFew(), "INTERNAL"),
        (NoNumber(), "INTERNAL"),
    ],
    ids=["none", "failing", "one score too few", "no number"],
)
def test_without_an_answer_of_the_reranker_nothing_is_reused(
    reranker: Reranker | None, reason: str
) -> None:
    @in_loop
    async def check() -> None:
        with ExitStack() as stack:
            told = await second_request(stack, reranker, REWORDED)
            assert (told.tier, told.reason) == (HitTier.MISS, "GATE_UNAVAILABLE")
            fallbacks = [(f.stage, f.service, f.reason) for f in told.fallbacks]
            assert fallbacks == [("rerank", "embedding", reason)]

    check()


@in_loop
async def test_nobody_asks_about_prompts_that_no_policy_would_take() -> None:
    reranker = Lengths()
    async with running_site(gate=RerankGate(reranker)) as site:
        await site.generate(PROMPT, seed=1)
        reranker.asked.clear()
        far = (await site.generate("eleven green dogs", seed=2)).provenance
        asked_of_far = list(reranker.asked)
        near = (await site.generate(REWORDED, seed=3)).provenance
    assert (far.reason, far.rerank_score, far.fallbacks) == ("BELOW_MIN_SIMILARITY", None, ())
    assert asked_of_far == []
    assert near.rerank_score is not None
    assert reranker.asked == [[PROMPT]]
