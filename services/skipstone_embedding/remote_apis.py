"""What remote services that embed texts are sent and what they answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

from skipstone_embedding.remote_service import Ask, RemoteService
from skipstone_shared.errors import FailedPrecondition, Internal


@dataclasses.dataclass(frozen=True, slots=True)
class RemoteModel:
    """What a remote service says of its model.

    Attributes:
        name: What it is called.
        revision: What changes with its weights; empty when the service does not say.
        dtype: Element type it computes with; empty when the service does not say.
        max_tokens: Tokens of a text that it reads; 0 when the service does not say.
        max_batch_size: Texts of one request; 0 when the service does not say.
    """

    name: str
    revision: str = ""
    dtype: str = ""
    max_tokens: int = 0
    max_batch_size: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class RemoteAnswer:
    """Vectors as they came: one per text, in their order, of any type.

    Attributes:
        rows: The vectors.
        model: Name that the answer gives to its model; empty when it gives none.
    """

    rows: list[Any]
    model: str = ""


class EmbeddingApi(Protocol):
    """A way to ask for vectors over HTTP."""

    path: str
    """Appended to the URL."""

    can_cut: bool
    """Whether the service refuses texts that are too long until it is told to cut them."""

    def look(self, service: RemoteService) -> RemoteModel:
        """Asks for the model.

        Raises:
            SkipstoneError: It cannot be asked, or is none that embeds texts.
        """
        ...

    def body(self, texts: Sequence[str], *, cut: bool) -> Any:
        """What is sent for texts; `cut` lets the service cut what is too long."""
        ...

    def read(self, answer: Any, count: int) -> RemoteAnswer:
        """The vectors in an answer.

        Raises:
            Internal: The answer is none of this API, or has another number of vectors.
        """
        ...


class OpenAIApi:
    """``POST /embeddings`` as OpenAI has it (API reference, "Create embeddings").

    What is too long is refused by some services and silently cut by others.
    """

    path = "/embeddings"
    can_cut = False

    def __init__(self, model: str, dimensions: int = 0) -> None:
        """Knows what to ask for.

        Args:
            model: Name of the model at the service.
            dimensions: Elements of a vector, for models that offer several; 0 leaves it to them.
        """
        self._model = model
        self._dimensions = dimensions

    def look(self, service: RemoteService) -> RemoteModel:
        """The name: the API tells nothing else of a model."""
        return RemoteModel(self._model)

    def body(self, texts: Sequence[str], *, cut: bool) -> Any:
        """See `EmbeddingApi`."""
        asked: dict[str, Any] = {"model": self._model, "input": list(texts)}
        if self._dimensions:
            asked["dimensions"] = self._dimensions
        return {**asked, "encoding_format": "float"}

    def read(self, answer: Any, count: int) -> RemoteAnswer:
        """Puts the vectors in the order of their ``index``."""
        items = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise Internal("the remote encoder's answer has no list of vectors named data")
        by_index = indexed(items, count, "vectors")
        model = answer.get("model")
        rows = [by_index[index].get("embedding") for index in range(count)]
        return RemoteAnswer(rows, model if isinstance(model, str) else "")


class TeiApi:
    """``POST /embed`` of Text-Embeddings-Inference, and ``GET /info`` for the model."""

    path = "/embed"
    can_cut = True

    def __init__(self, model: str = "") -> None:
        """Knows which model must be there; empty takes any."""
        self._model = model

    def look(self, service: RemoteService) -> RemoteModel:
        """What /info says; it must be of a model that embeds."""
        return read_tei_info(service.ask(Ask("/info")), "embedding", self._model)

    def body(self, texts: Sequence[str], *, cut: bool) -> Any:
        """See `EmbeddingApi`."""
        return {"inputs": list(texts), "truncate": cut, "normalize": True}

    def read(self, answer: Any, count: int) -> RemoteAnswer:
        """The vectors are in the order of the texts."""
        if not isinstance(answer, list) or len(answer) != count:
            raise Internal(f"the remote encoder's answer is no list of {count} vectors")
        return RemoteAnswer(answer)


def indexed(items: list[dict[str, Any]], count: int, what: str) -> dict[int, dict[str, Any]]:
    """Items by their ``index``.

    Raises:
        Internal: They are not as many as were asked for, or an index is missing or there twice.
    """
    found = {item.get("index"): item for item in items if type(item.get("index")) is int}
    if len(items) != count or found.keys() != set(range(count)):
        raise Internal(f"the remote service answered other {what} than the {count} asked for")
    return {index: item for index, item in found.items() if index is not None}


def read_tei_info(info: Any, kind: str, model: str = "") -> RemoteModel:
    """The model of Text-Embeddings-Inference.

    Args:
        info: What /info answers.
        kind: What its model must be: ``embedding``, ``reranker``.
        model: Name it must have; empty takes any.

    Raises:
        FailedPrecondition: It is another one.
    """
    if not isinstance(info, dict) or not isinstance(info.get("model_id"), str):
        raise FailedPrecondition("the remote service answers /info without a model_id")
    name = info["model_id"]
    if model and model != name:
        raise FailedPrecondition(f"the remote service serves the model {name}, not {model}")
    kinds = info.get("model_type")
    # Some versions write the kind alone, others a table with it as key.
    if kind not in (kinds if isinstance(kinds, dict) else {str(kinds).lower()}):
        raise FailedPrecondition(f"the remote service's model {name} is no {kind} model")
    revision, dtype = info.get("model_sha"), info.get("model_dtype")
    return RemoteModel(
        name,
        revision=revision if isinstance(revision, str) else "",
        dtype=dtype if isinstance(dtype, str) else "",
        max_tokens=_positive(info.get("max_input_length")),
        max_batch_size=_positive(info.get("max_client_batch_size")),
    )


def _positive(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0
