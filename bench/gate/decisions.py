"""What the product decides on a pair of prompts at default settings, by its own pieces.

The encoder and the reranker of the embedding service, the gate and the policy of the orchestrator,
and the executor's plan of a request that names nothing but its prompt. No service is started: they
are put together in this process, so that hundreds of pairs take seconds.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Self

from skipstone_denoise.config import DenoiseSettings
from skipstone_denoise.diffusers_engine import DiffusersEngine
from skipstone_denoise.pipeline_loader import load_pipeline
from skipstone_denoise.store_directory import StoreDirectory
from skipstone_embedding.config import EmbeddingSettings
from skipstone_embedding.loading import load_encoder, load_reranker
from skipstone_embedding.reranker import Reranker
from skipstone_orchestrator.cache_options import resolve_options
from skipstone_orchestrator.compatibility import PROMPT_HASH_LABEL
from skipstone_orchestrator.config import OrchestratorSettings
from skipstone_orchestrator.decision import GATE_UNAVAILABLE, Query
from skipstone_orchestrator.gate import Gate, RerankGate, SimilarityGate
from skipstone_orchestrator.generation_calls import GenerationCall, planned_query
from skipstone_orchestrator.prompt_keys import PromptKeys
from skipstone_orchestrator.reuse_policy import Donor, judge
from skipstone_shared.calibration import ServiceIds
from skipstone_shared.denoise_runs import GenerationPlan
from skipstone_shared.embeddings import Embedding, EmbeddingInput, RerankScores
from skipstone_shared.errors import FailedPrecondition, SkipstoneError
from skipstone_shared.generation import GenerationParams
from skipstone_shared.index_entries import IndexEntry, SearchHit

ROOT: Final = Path(__file__).parents[2]
_BATCH: Final = 64


@dataclasses.dataclass(frozen=True, slots=True)
class PairDecision:
    """What becomes of a request for one prompt where only the other one is stored.

    Attributes:
        skip_steps: Steps that are skipped; 0 on a miss.
        similarity: Cosine of the prompts.
        score: The gate's; None where the settings have none or it failed.
        reason: Of the policy.
    """

    skip_steps: int
    similarity: float
    score: float | None
    reason: str

    @property
    def verdict(self) -> str:
        """`hit` or `miss`."""
        return "hit" if self.skip_steps else "miss"


class PairJudge:
    """Decides on pairs of prompts as the services with default settings do."""

    def __init__(self, embedding: EmbeddingSettings | None = None) -> None:
        """Loads the models; leaving the block ends them.

        Args:
            embedding: Settings of the embedding service; the default ones when None.
        """
        embedding, orchestrator = embedding or EmbeddingSettings(), OrchestratorSettings()
        self._reranker = load_reranker(embedding)
        self._policies = orchestrator.policies()
        self._gate = _gate(orchestrator, self._reranker)
        self._encoder = load_encoder(embedding)
        self._vectors: dict[str, Embedding] = {}
        self._query = _default_query(orchestrator)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._encoder.close()

    @property
    def reranker_id(self) -> str:
        """Id of the reranker; empty when the settings have none."""
        return "" if self._reranker is None else self._reranker.reranker_id

    def without_gate(self) -> PairJudge:
        """The same by the published table on the cosine alone; it ends with this one."""
        other = copy.copy(self)
        other._gate = SimilarityGate()
        # No calibration fits a cosine without a reranker, and the default would then refuse all.
        other._policies = OrchestratorSettings(uncalibrated="table").policies()
        return other

    def score(self, prompt: str, candidates: Sequence[str]) -> list[float]:
        """The reranker's scores of candidates, with nothing around it."""
        if self._reranker is None:
            raise FailedPrecondition("no reranker is configured")
        texts = [EmbeddingInput(text=candidate) for candidate in candidates]
        return self._reranker.rerank(EmbeddingInput(text=prompt), texts)

    def decide(self, pairs: Sequence[tuple[str, str]]) -> list[PairDecision]:
        """Decides on pairs: the first prompt is stored, the second one is requested.

        Raises:
            InvalidArgument: A prompt is empty or too long.
        """
        self._embed({text for pair in pairs for text in pair} - self._vectors.keys())
        vectors = self._vectors
        return [
            self._decide(stored, wanted, float(vectors[stored].vector @ vectors[wanted].vector))
            for stored, wanted in pairs
        ]

    def _embed(self, texts: Iterable[str]) -> None:
        ordered = sorted(texts, key=len)
        for start in range(0, len(ordered), _BATCH):
            batch = ordered[start : start + _BATCH]
            results = self._encoder.encode([EmbeddingInput(text=text) for text in batch])
            for text, result in zip(batch, results, strict=True):
                if isinstance(result, SkipstoneError):
                    raise result
                self._vectors[text] = result

    def _decide(self, stored: str, wanted: str, similarity: float) -> PairDecision:
        # The hash is what a saved entry has: case and white space make no other prompt.
        labels = {PROMPT_HASH_LABEL: self._query.prompts.hash(stored)}
        hit = SearchHit(IndexEntry("stored", stored, labels=labels), similarity)
        try:
            scores = asyncio.run(self._gate.score("", wanted, [hit]))
        except SkipstoneError:
            return PairDecision(0, similarity, None, GATE_UNAVAILABLE)
        score = scores[0] if scores is not None else None
        policy = self._policies.in_force(
            ServiceIds(
                embedder_id=self._encoder.get_capabilities().model_id,
                reranker_id="" if scores is None else self.reranker_id,
                model_hash=self._query.model_hash,
            )
        )
        donor = Donor(
            similarity=similarity,
            score=score,
            steps={self._query.schedule.num_inference_steps},
            same_prompt=self._query.prompts.is_of(hit.entry, wanted),
        )
        verdict = judge(policy, self._query.schedule, donor, self._query.use.limits)
        return PairDecision(verdict.skip_steps, similarity, score, verdict.reason)


class _LocalReranker:
    """A reranker of this process as the gate knows it."""

    def __init__(self, reranker: Reranker | None) -> None:
        self._reranker = reranker

    async def rerank(
        self, query: EmbeddingInput, candidates: Sequence[EmbeddingInput], *, namespace: str = ""
    ) -> list[float]:
        """Scores candidates."""
        if self._reranker is None:
            raise FailedPrecondition("no reranker is configured")
        return RerankScores(self._reranker.rerank(query, candidates), self._reranker.reranker_id)


def _gate(settings: OrchestratorSettings, reranker: Reranker | None) -> Gate:
    return RerankGate(_LocalReranker(reranker)) if settings.gate == "rerank" else SimilarityGate()


def _default_query(settings: OrchestratorSettings) -> Query:
    """A request that says nothing but its prompt, planned by the executor of the bundled model."""
    params = GenerationParams("a prompt")
    call = GenerationCall("", params)
    use = resolve_options(call.options, settings.cache_defaults())
    return planned_query(call, "", use, _default_plan(params), PromptKeys())


def _default_plan(params: GenerationParams) -> GenerationPlan:
    settings = DenoiseSettings(model=str(ROOT / DenoiseSettings().model))
    pipeline = load_pipeline(
        settings.model,
        revision=settings.model_revision,
        allow_download=settings.allow_download,
        device=settings.device,
        dtype=settings.dtype,
    )
    stores = StoreDirectory(settings.latent_kv_target)
    engine = DiffusersEngine(pipeline, settings, stores)
    try:
        return engine.plan(params)
    finally:
        engine.close()
        stores.close()
