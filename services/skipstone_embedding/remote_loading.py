"""Settings -> encoder and reranker behind HTTP. Its libraries are imported only when asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from skipstone_embedding.config import EmbeddingSettings
from skipstone_embedding.encoder import Encoder
from skipstone_embedding.instructions import InstructionTemplate
from skipstone_embedding.reranker import Reranker
from skipstone_shared.credentials import checked_token, read_token
from skipstone_shared.errors import FailedPrecondition, InvalidArgument
from skipstone_shared.reloaded import Reloaded

if TYPE_CHECKING:
    from skipstone_embedding.remote_service import RemoteService


def connect_encoder(
    settings: EmbeddingSettings, on_stop: Callable[[Callable[[], None]], object]
) -> Encoder:
    """Connects to the service of `engine`.

    Args:
        settings: Of this service.
        on_stop: Is given what ends the connection.

    Raises:
        FailedPrecondition: It is not what was expected; a library, key or certificate is missing.
        Unavailable: It cannot be reached.
    """
    with _installed(f"engine {settings.engine}"):
        from skipstone_embedding.remote_apis import OpenAIApi, TeiApi
        from skipstone_embedding.remote_encoder import RemoteEncoder, RemoteEncoderOptions
    api = (
        OpenAIApi(settings.model, settings.dimensions)
        if settings.engine == "openai"
        else TeiApi(settings.name_there("model"))
    )
    service = _connect(settings, settings.url, settings.api_key, settings.api_key_file, "api_key")
    on_stop(service.close)
    options = RemoteEncoderOptions(
        batch_size=settings.remote_batch_size,
        revision=settings.revision,
        instructions=InstructionTemplate(
            settings.instruction_template, settings.default_instruction
        ),
    )
    return RemoteEncoder(service, api, options)


def connect_reranker(
    settings: EmbeddingSettings, on_stop: Callable[[Callable[[], None]], object]
) -> Reranker:
    """Connects to the service of `reranker_engine`; see `connect_encoder`."""
    with _installed(f"reranker_engine {settings.reranker_engine}"):
        from skipstone_embedding.tei_reranker import TeiReranker, TeiRerankerOptions
    service = _connect(
        settings,
        settings.reranker_url,
        settings.reranker_api_key,
        settings.reranker_api_key_file,
        "reranker_api_key",
    )
    on_stop(service.close)
    options = TeiRerankerOptions(
        model=settings.name_there("reranker"),
        revision=settings.reranker_revision,
        scores=settings.reranker_scores,
        batch_size=settings.remote_batch_size,
    )
    return TeiReranker(service, options)


def _connect(
    settings: EmbeddingSettings, url: str, key: SecretStr, key_file: Path | None, name: str
) -> RemoteService:
    from skipstone_embedding.remote_service import RemoteOptions, RemoteService

    return RemoteService(
        RemoteOptions(
            url=url,
            api_key=_api_key(key.get_secret_value(), key_file, name),
            timeout_s=settings.remote_timeout_s,
            attempts=settings.remote_attempts,
            ca_file=settings.remote_ca_file,
        )
    )


def _api_key(key: str, key_file: Path | None, name: str) -> Callable[[], str] | None:
    """What gives the key; None when there is none."""
    try:
        if key_file is not None:
            path = key_file
            return Reloaded(name, [path], lambda: read_token(path, f"{name}_file")).get
        if key:
            token = checked_token(key, name)
            return lambda: token
    except InvalidArgument as error:
        raise FailedPrecondition(str(error)) from None
    return None


@contextlib.contextmanager
def _installed(what: str) -> Iterator[None]:
    """A block that imports optional libraries."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise FailedPrecondition(
            f"{what} needs a library that is not installed ({error.name}): "
            "pip install 'skipstone[embedding-remote]'"
        ) from error
