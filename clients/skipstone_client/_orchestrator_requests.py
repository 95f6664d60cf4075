"""What the synchronous and the asynchronous client of the orchestrator share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from skipstone.orchestrator.v1 import orchestrator_pb2 as pb
from skipstone_client._paging import checked_page_size
from skipstone_shared.embeddings import EncodedImage
from skipstone_shared.errors import DataCorrupt
from skipstone_shared.generation import Artifact, GenerationParams, StepProgress
from skipstone_shared.generation_messages import frames_to_messages, params_to_message
from skipstone_shared.latent_messages import fingerprint_to_message
from skipstone_shared.latents import LatentFingerprint
from skipstone_shared.optional_fields import new_message
from skipstone_shared.orchestration import (
    CacheOptions,
    GenerateAccepted,
    GenerateEvent,
    GenerateFinished,
    GenerateResult,
    Provenance,
)
from skipstone_shared.orchestration_messages import cache_options_to_message


def generate_request(
    params: GenerationParams | str, cache: CacheOptions | None, namespace: str
) -> pb.GenerateRequest:
    """The request of one generation."""
    if isinstance(params, str):
        params = GenerationParams(prompt=params)
    return new_message(
        pb.GenerateRequest,
        namespace=namespace,
        params=params_to_message(params),
        cache=cache_options_to_message(cache) if cache is not None else None,
    )


def explain_request(
    params: GenerationParams | str, cache: CacheOptions | None, namespace: str
) -> pb.ExplainRequest:
    """The request of one explanation."""
    asked = generate_request(params, cache, namespace)
    return pb.ExplainRequest(
        namespace=asked.namespace,
        params=asked.params,
        cache=asked.cache if asked.HasField("cache") else None,
    )


def lookup_request(
    prompt: str,
    fingerprint: LatentFingerprint,
    sigmas: Sequence[float],
    seed: int | None,
    cache: CacheOptions | None,
    explain: bool,
    namespace: str,
) -> pb.LookupRequest:
    """The request of one look-up."""
    return new_message(
        pb.LookupRequest,
        namespace=namespace,
        prompt=prompt,
        fingerprint=fingerprint_to_message(fingerprint),
        sigmas=sigmas,
        seed=seed,
        cache=cache_options_to_message(cache) if cache is not None else None,
        explain=explain,
    )


def save_request(
    entry_id: str,
    prompt: str,
    seed: int,
    fingerprint: LatentFingerprint,
    depth: int,
    namespace: str,
    frames: Sequence[EncodedImage],
) -> pb.SaveRequest:
    """The request that makes an entry findable."""
    return new_message(
        pb.SaveRequest,
        namespace=namespace,
        entry_id=entry_id,
        prompt=prompt,
        seed=seed,
        fingerprint=fingerprint_to_message(fingerprint),
        depth=depth,
        frames=frames_to_messages(frames),
    )


def list_request(namespace: str, page_size: int, page_token: str) -> pb.ListEntriesRequest:
    """The request of one page."""
    return new_message(
        pb.ListEntriesRequest,
        namespace=namespace,
        page_size=checked_page_size(page_size),
        page_token=page_token,
    )


class ResultBuilder:
    """Gathers the events of one generation into its result."""

    def __init__(self, on_step: Callable[[StepProgress], None] | None) -> None:
        """Starts with nothing.

        Args:
            on_step: Called with every step.
        """
        self._on_step = on_step
        self._params: GenerationParams | None = None
        self._artifact: Artifact | None = None
        self._provenance: Provenance | None = None

    def add(self, event: GenerateEvent) -> None:
        """Takes the next event."""
        match event:
            case GenerateAccepted():
                self._params = event.params
            case StepProgress() if self._on_step is not None:
                self._on_step(event)
            case Artifact():
                self._artifact = event
            case GenerateFinished():
                self._provenance = event.provenance

    def finish(self) -> GenerateResult:
        """The result.

        Raises:
            DataCorrupt: the stream ended without all of it.
        """
        if self._params is None or self._artifact is None or self._provenance is None:
            raise DataCorrupt("the generation ended without a picture and its provenance")
        return GenerateResult(self._artifact, self._provenance, self._params)
