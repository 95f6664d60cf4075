"""Text-Embeddings-Inference as a reranker."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

from skipstone_embedding.remote_apis import RemoteModel, indexed, read_tei_info
from skipstone_embedding.remote_errors import RemoteRefused
from skipstone_embedding.remote_service import Ask, RemoteService
from skipstone_embedding.remote_watch import ModelWatch
from skipstone_embedding.reranker_inputs import checked_pair
from skipstone_shared.embeddings import EmbeddingInput
from skipstone_shared.errors import FailedPrecondition, Internal

Scores = Literal["normalised", "logits"]

MAX_CANDIDATES = 128

_PATH = "/rerank"
_PROBE_QUERY = "a red fox in the snow"
_PROBE_TEXTS = ("a red fox in the snow", "a fox", "two tall ships at night")
_SAME_SCORE = 0.02
"""What a score may differ by between two calls of one model: half precision and other batches."""


@dataclasses.dataclass(frozen=True, slots=True)
class TeiRerankerOptions:
    """How a remote reranker is used.

    Attributes:
        model: Name it must have; empty takes any. A service without ``/info`` is called by it.
        revision: Names the weights, where the service does not.
        scores: ``normalised``: the service gives 0 to 1. ``logits``: it gives scores before their
            sigmoid, whatever is asked for.
        batch_size: Candidates of one request; the service's own limit may be lower.
    """

    model: str = ""
    revision: str = ""
    scores: Scores = "normalised"
    batch_size: int = 32


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """The model at the other side, as last seen."""

    model_id: str
    told: RemoteModel
    scores: list[float]


class TeiReranker:
    """A `Reranker` of texts around ``POST /rerank`` of Text-Embeddings-Inference.

    Instructions are passed over. A pair that the service refuses, as too long ones, scores 0: what
    it does not read may be what differs. Whatever else goes wrong fails the call: a score that is
    guessed must never pass for one. The scale of the scores is proved at the start.
    """

    max_candidates = MAX_CANDIDATES

    def __init__(
        self,
        service: RemoteService,
        options: TeiRerankerOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Looks at the model of the service, and at its scores.

        Args:
            service: Where it is; not owned.
            options: How it is used.
            clock: Seconds on a clock that never goes back.

        Raises:
            FailedPrecondition: The service is not what was expected, its scores have another scale
                than was declared, or it refuses the API key.
            Unavailable: It cannot be reached.
        """
        self._service = service
        self._options = options or TeiRerankerOptions()
        self._raw = self._options.scores == "logits"
        self._watch = ModelWatch(
            "remote reranker",
            self._look,
            self._is_still,
            lambda found, before: _are_same(found.scores, before.scores),
            "reranker_revision",
            clock,
        )

    @property
    def reranker_id(self) -> str:
        """Model, what tells its weights, and the scale of its scores."""
        return self._watch.known.model_id

    def rerank(
        self, query: EmbeddingInput, candidates: Sequence[EmbeddingInput], instruction: str = ""
    ) -> list[float]:
        """Scores candidates; see `Reranker`.

        Raises:
            Unavailable: The service cannot be reached, or has another model now.
            DeadlineExceeded: It takes too long.
            Internal: Its answer is none.
        """
        prompt, texts = checked_pair(query, candidates)
        deadline = self._service.deadline()
        with self._watch.turn(deadline) as known:
            size = min(self._options.batch_size, known.told.max_batch_size or MAX_CANDIDATES)
            batches = [texts[start : start + size] for start in range(0, len(texts), size)]
            asks = [_pairs(prompt, batch, raw=self._raw) for batch in batches]
            scores: list[float] = []
            for batch, answer in zip(batches, self._service.ask_all(asks, deadline), strict=True):
                if isinstance(answer, RemoteRefused):
                    scores += self._one_by_one(prompt, batch, deadline)
                else:
                    scores += self._scores(answer, len(batch))
        return scores

    def _one_by_one(self, prompt: str, texts: list[str], deadline: float) -> list[float]:
        asks = [_pairs(prompt, [text], raw=self._raw) for text in texts]
        return [
            0.0 if isinstance(answer, RemoteRefused) else self._scores(answer, 1)[0]
            for answer in self._service.ask_all(asks, deadline)
        ]

    def _scores(self, answer: Any, count: int) -> list[float]:
        return [self._score(value) for value in _read(answer, count)]

    def _score(self, value: float) -> float:
        if self._raw:
            return _sigmoid(value)
        if not 0.0 <= value <= 1.0:
            raise Internal(f"the remote reranker gave the score {value:g}, which is not of 0 to 1")
        return value

    def _is_still(self, known: _Known) -> bool:
        """Whether the service says so, and, where it tells no revision, its scores show it."""
        try:
            told = self._told()
        except FailedPrecondition:  # no reranker, or another than wanted
            return False
        if told != known.told or told.revision:
            return told == known.told
        scores = [self._score(value) for value in self._probe(raw=self._raw)]
        return _are_same(scores, known.scores)

    def _look(self) -> _Known:
        told = self._told()
        scores = self._proved_scores()
        revision = self._options.revision or told.revision
        name = f"{told.name}@{revision[:12]}" if revision else told.name
        return _Known(f"{name}/{self._options.scores}/{told.dtype or 'remote'}", told, scores)

    def _told(self) -> RemoteModel:
        try:
            info = self._service.ask(Ask("/info"))
        except FailedPrecondition:
            if not self._options.model:
                raise
            return RemoteModel(self._options.model)  # other servers of this API have no /info
        return read_tei_info(info, "reranker", self._options.model)

    def _proved_scores(self) -> list[float]:
        """The probes' scores, once it is clear that they are on the declared scale.

        Raises:
            FailedPrecondition: They are on another one.
        """
        logits = self._probe(raw=True)
        expected = [_sigmoid(logit) for logit in logits]
        if self._raw:
            return expected
        scores = self._probe(raw=False)
        if not _are_same(expected, scores):
            raise FailedPrecondition(
                f"the scores of the remote reranker {self._service.url} are not the sigmoid of its "
                "raw scores; when it gives raw scores whatever is asked for, set reranker_scores "
                "to logits"
            )
        return scores

    def _probe(self, *, raw: bool) -> list[float]:
        asked = _pairs(_PROBE_QUERY, _PROBE_TEXTS, raw=raw)
        return _read(self._service.ask(asked), len(_PROBE_TEXTS))


def _pairs(query: str, texts: Sequence[str], *, raw: bool) -> Ask:
    """Asks for the scores of texts."""
    body = {"query": query, "texts": list(texts), "raw_scores": raw, "truncate": False}
    return Ask(_PATH, body)


def _are_same(left: Sequence[float], right: Sequence[float]) -> bool:
    return all(abs(a - b) <= _SAME_SCORE for a, b in zip(left, right, strict=True))


def _read(answer: Any, count: int) -> list[float]:
    """The scores in an answer, in the order of the texts.

    Raises:
        Internal: The answer is none.
    """
    if not isinstance(answer, list) or not all(isinstance(item, dict) for item in answer):
        raise Internal("the remote reranker's answer is no list of scores")
    by_index = indexed(answer, count, "scores")
    scores: list[Any] = [by_index[index].get("score") for index in range(count)]
    # A bool is an int to Python.
    if not all(type(score) in (int, float) and math.isfinite(score) for score in scores):
        raise Internal("the remote reranker gave a score that is no number")
    return [float(score) for score in scores]


def _sigmoid(value: float) -> float:
    # Of both forms the one whose exponential cannot overflow.
    if value >= 0:
        return 1.0 / (1.0 + math.exp(-value))
    return math.exp(value) / (1.0 + math.exp(value))
