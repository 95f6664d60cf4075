"""A model behind HTTP as an encoder."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xxhash

from skipstone_embedding.input_rules import checked_text
from skipstone_embedding.instructions import InstructionTemplate
from skipstone_embedding.remote_apis import EmbeddingApi, RemoteAnswer, RemoteModel
from skipstone_embedding.remote_errors import RemoteRefused
from skipstone_embedding.remote_probe import PROBES, are_of_one_model, mark_of
from skipstone_embedding.remote_service import Ask, RemoteService
from skipstone_embedding.remote_watch import ModelWatch
from skipstone_shared.embeddings import Embedding, EmbeddingCapabilities, EmbeddingInput
from skipstone_shared.errors import (
    FailedPrecondition,
    Internal,
    InvalidArgument,
    SkipstoneError,
)
from skipstone_shared.index_entries import Vector

MAX_BATCH_SIZE = 128


@dataclasses.dataclass(frozen=True, slots=True)
class RemoteEncoderOptions:
    """How a remote model is used.

    Attributes:
        batch_size: Texts of one request; the service's own limit may be lower.
        revision: Names the weights, where the service does not and the operator vouches for them.
        instructions: Text around instruction and text.
    """

    batch_size: int = 32
    revision: str = ""
    instructions: InstructionTemplate = dataclasses.field(default_factory=InstructionTemplate)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """The model at the other side, as last seen."""

    model_id: str
    told: RemoteModel
    answers_as: str
    probes: list[Vector]


class RemoteEncoder:
    """An `Encoder` of texts around a service that is asked over HTTP.

    When the service gets another model, the call that notices fails as Unavailable; from then on
    vectors carry another model id. `get_capabilities` asks nobody.
    """

    def __init__(
        self,
        service: RemoteService,
        api: EmbeddingApi,
        options: RemoteEncoderOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Looks at the model of the service.

        Args:
            service: Where it is; not owned.
            api: How it is asked.
            options: How it is used.
            clock: Seconds on a clock that never goes back.

        Raises:
            FailedPrecondition: The service is not what was expected, or refuses the API key.
            Unavailable: It cannot be reached.
        """
        self._service = service
        self._api = api
        self._options = options or RemoteEncoderOptions()
        self._watch = ModelWatch(
            "remote encoder",
            self._look,
            self._is_still,
            lambda found, before: are_of_one_model(found.probes, before.probes),
            "revision",
            clock,
        )

    def encode(
        self, inputs: Sequence[EmbeddingInput], instruction: str = ""
    ) -> list[Embedding | SkipstoneError]:
        """Embeds texts; see `Encoder`.

        Raises:
            Unavailable: The service cannot be reached, or has another model now.
            FailedPrecondition: The service refuses the API key, or has another model than pinned.
            Internal: The service's answer is none.
            ResourceExhausted: The service has too much to do.
        """
        prepared = [self._prepared(item, instruction) for item in inputs]
        texts = [text for text in prepared if isinstance(text, str)]
        found = iter(self._embed(texts) if texts else [])
        return [item if isinstance(item, SkipstoneError) else next(found) for item in prepared]

    def get_capabilities(self) -> EmbeddingCapabilities:
        """Tells the model and the limits as last seen."""
        known = self._watch.known
        return EmbeddingCapabilities(
            model_id=known.model_id,
            dimension=len(known.probes[0]),
            input_kinds=("text",),
            max_batch_size=MAX_BATCH_SIZE,
            max_tokens=known.told.max_tokens,
        )

    def _prepared(self, item: EmbeddingInput, instruction: str) -> str | SkipstoneError:
        try:
            return self._options.instructions.apply(checked_text(item), instruction)
        except InvalidArgument as error:
            return error

    def _embed(self, texts: list[str]) -> list[Embedding | SkipstoneError]:
        """Embeds texts in as many requests as it takes."""
        deadline = self._service.deadline()
        with self._watch.turn(deadline) as known:
            size = min(self._options.batch_size, known.told.max_batch_size or MAX_BATCH_SIZE)
            batches = [texts[start : start + size] for start in range(0, len(texts), size)]
            rows: list[Embedding | SkipstoneError] = []
            answers = self._ask(batches, deadline, known, cut=False)
            for batch, answer in zip(batches, answers, strict=True):
                if isinstance(answer, RemoteRefused):
                    rows += self._one_by_one(batch, deadline, known)
                else:
                    rows += answer
        return rows

    def _one_by_one(
        self, texts: list[str], deadline: float, known: _Known
    ) -> list[Embedding | SkipstoneError]:
        """Embeds the texts of a refused request each alone: some of them may be too long."""
        alone = [[text] for text in texts]
        answers = self._ask(alone, deadline, known, cut=False)
        refused = [place for place, a in enumerate(answers) if isinstance(a, RemoteRefused)]
        if refused and self._api.can_cut:
            cut = self._ask([alone[place] for place in refused], deadline, known, cut=True)
            for place, answer in zip(refused, cut, strict=True):
                answers[place] = answer if isinstance(answer, RemoteRefused) else _cut(answer)
        return [
            InvalidArgument(
                f"the remote encoder does not take this text: {answer.message}",
                field="text",
                allowed="a text that it can read",
            )
            if isinstance(answer, RemoteRefused)
            else answer[0]
            for answer in answers
        ]

    def _ask(
        self, batches: list[list[str]], deadline: float, known: _Known, *, cut: bool
    ) -> list[list[Embedding | SkipstoneError] | RemoteRefused]:
        """Sends batches of texts: of each its vectors, or that the service does not take it."""
        asks = [Ask(self._api.path, self._api.body(batch, cut=cut)) for batch in batches]
        found: list[list[Embedding | SkipstoneError] | RemoteRefused] = []
        for batch, answer in zip(batches, self._service.ask_all(asks, deadline), strict=True):
            if isinstance(answer, RemoteRefused):
                found.append(answer)
                continue
            read = self._api.read(answer, len(batch))
            if read.model != known.answers_as:
                self._watch.another(known)
            found.append([_checked(row, len(known.probes[0])) for row in read.rows])
        return found

    def _is_still(self, known: _Known) -> bool:
        """Compares the probes' vectors with those from before."""
        read = self._read_probes()
        rows = [_checked(row, len(known.probes[0])) for row in read.rows]
        vectors = [row.vector for row in rows if isinstance(row, Embedding)]
        return (
            read.model == known.answers_as
            and len(vectors) == len(PROBES)
            and are_of_one_model(vectors, known.probes)
        )

    def _read_probes(self) -> RemoteAnswer:
        asked = Ask(self._api.path, self._api.body(list(PROBES), cut=False))
        return self._api.read(self._service.ask(asked), len(PROBES))

    def _look(self) -> _Known:
        """Asks for the model and its vectors of the probes."""
        told = self._api.look(self._service)
        read = self._read_probes()
        rows = [_checked(row, None) for row in read.rows]
        vectors = [row.vector for row in rows if isinstance(row, Embedding)]
        if len(vectors) < len(PROBES) or len({len(vector) for vector in vectors}) > 1:
            reasons = [str(row) for row in rows if isinstance(row, SkipstoneError)]
            reason = reasons[0] if reasons else "its vectors differ in length"
            raise FailedPrecondition(f"the remote encoder {self._service.url}: {reason}")
        return _Known(self._model_id(told, vectors), told, read.model, vectors)

    def _model_id(self, told: RemoteModel, probes: list[Vector]) -> str:
        """Returns the id of the vectors: whatever is known to change them changes it."""
        revision = self._options.revision or told.revision
        hasher = xxhash.xxh3_64()
        instructions = self._options.instructions
        for part in (
            *(revision or mark_of(probes), len(probes[0]), told.max_tokens),
            *(instructions.template, instructions.default_instruction),
        ):
            hasher.update(f"{part}\0".encode())
        name = f"{told.name}@{revision[:12]}" if revision else told.name
        return f"{name}/{hasher.hexdigest()[:8]}/{told.dtype or 'remote'}"


def _checked(row: Any, dimension: int | None) -> Embedding | SkipstoneError:
    """One vector, scaled to norm 1, or why it is none.

    Args:
        row: What the service gave for one text.
        dimension: Elements it must have; None for any number.
    """
    try:
        values = np.asarray(row)
    except (ValueError, TypeError):
        return Internal("the remote encoder gave a vector that is no list of numbers")
    if values.dtype.kind not in "fiu" or values.ndim != 1 or not values.size:
        return Internal("the remote encoder gave a vector that is no list of numbers")
    if dimension is not None and values.size != dimension:
        return Internal(f"the remote encoder gave {values.size} elements instead of {dimension}")
    values = values.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        norm = np.linalg.norm(values)
    if not np.isfinite(norm):
        return Internal("the remote encoder gave a vector that is not finite")
    if not norm:
        return Internal("the remote encoder gave a vector of zeros")
    return Embedding((values / norm).astype(np.float32))


def _cut(answer: list[Embedding | SkipstoneError]) -> list[Embedding | SkipstoneError]:
    return [
        dataclasses.replace(item, truncated=True) if isinstance(item, Embedding) else item
        for item in answer
    ]
