"""Settings -> encoder and reranker."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from typing import TYPE_CHECKING

from skipstone_embedding.batching import BatchingEncoder
from skipstone_embedding.config import EmbeddingSettings
from skipstone_embedding.encoder import Encoder
from skipstone_embedding.metrics import EncoderMetrics
from skipstone_embedding.model_files import (
    BUNDLED_GATE,
    CONTRASTIVE,
    MINILM,
    NO_RERANKER,
    QWEN3_VL,
    ModelFiles,
    find_bundled_gate,
    find_minilm,
    find_model,
)
from skipstone_embedding.remote_loading import connect_encoder, connect_reranker
from skipstone_embedding.reranker import Reranker
from skipstone_shared.embeddings import EmbeddingInput

if TYPE_CHECKING:
    from skipstone_embedding.transformers_encoder import EncoderOptions

_WARM_UP = "a stone that skips over the water"


OnStop = Callable[[Callable[[], None]], object]
"""Is given what must be called at the end, in the opposite order."""


def load_encoder(
    settings: EmbeddingSettings,
    metrics: EncoderMetrics | None = None,
    on_stop: OnStop = atexit.register,
) -> BatchingEncoder:
    """Loads the model of the settings, or connects to it, with batching around it.

    Args:
        settings: Of the service.
        metrics: Counts the batches.
        on_stop: Is given what ends connections of it.

    Raises:
        FailedPrecondition: The model, the device or the remote service cannot be used.
        Unavailable: The remote service cannot be reached.
    """
    remote = settings.engine != "transformers"
    model = connect_encoder(settings, on_stop) if remote else _load_model(settings)
    # The first call pays for allocations and lazy imports: here, not within a request's deadline.
    model.encode([EmbeddingInput(text=_WARM_UP)])
    return BatchingEncoder(
        model if metrics is None else metrics.measured(model),
        max_batch_size=settings.max_batch_size,
        max_wait_s=settings.max_wait_ms / 1000,
        max_queue_size=settings.max_queue_size,
    )


def _load_model(settings: EmbeddingSettings) -> Encoder:
    is_minilm = settings.model == MINILM
    # Each step before the next import: torch and transformers take seconds, and a missing model or
    # device is told at once.
    files = (
        find_minilm()
        if is_minilm
        else find_model(
            settings.model, revision=settings.revision, allow_download=settings.allow_download
        )
    )
    import torch

    from skipstone_embedding.devices import find_device

    find_device(settings.device)
    from skipstone_embedding.minilm_encoder import load_minilm
    from skipstone_embedding.transformers_encoder import EncoderOptions

    torch.set_num_threads(settings.num_threads)
    options = EncoderOptions(
        device=settings.device,
        dtype=settings.dtype,
        pooling=settings.pooling,
        max_tokens=settings.max_tokens,
        template=settings.instruction_template,
        default_instruction=settings.default_instruction,
        attention=settings.attention,
        max_frames=settings.max_frames,
        max_image_pixels=settings.max_image_pixels,
    )
    return load_minilm(options) if is_minilm else _encoder_of(files, options)


def _encoder_of(files: ModelFiles, options: EncoderOptions) -> Encoder:
    """The encoder for the kind of model in a folder."""
    if files.model_type() == QWEN3_VL:
        from skipstone_embedding.qwen3_vl_encoder import Qwen3VLEncoder

        return Qwen3VLEncoder(files, options)
    if files.model_type() in CONTRASTIVE:
        from skipstone_embedding.contrastive_encoder import ContrastiveEncoder

        return ContrastiveEncoder(files, options)
    from skipstone_embedding.transformers_encoder import TransformersEncoder

    return TransformersEncoder(files, options)


def load_reranker(
    settings: EmbeddingSettings, on_stop: OnStop = atexit.register
) -> Reranker | None:
    """Loads the reranker of the settings, or connects to it; None when they want none.

    Args:
        settings: Of the service.
        on_stop: Is given what ends connections of it.

    Raises:
        FailedPrecondition: The model, the device or the remote service cannot be used.
        Unavailable: The remote service cannot be reached.
    """
    if settings.reranker_engine == "tei":
        return connect_reranker(settings, on_stop)
    if settings.reranker == NO_RERANKER:
        return None
    if settings.reranker == BUNDLED_GATE:
        # Needs neither torch nor transformers.
        from skipstone_embedding.gate.prompt_gate import PromptGate

        return PromptGate(find_bundled_gate())
    files = find_model(
        settings.reranker,
        revision=settings.reranker_revision,
        allow_download=settings.allow_download,
    )
    import torch

    # Here too: the encoder may be a remote one, which sets nothing.
    torch.set_num_threads(settings.num_threads)
    from skipstone_embedding.cross_encoder import CrossEncoder
    from skipstone_embedding.qwen3_vl import Qwen3VLReranker
    from skipstone_embedding.reranker_inputs import RerankerOptions

    options = RerankerOptions(
        device=settings.reranker_device or settings.device,
        dtype=settings.reranker_dtype or settings.dtype,
        instruction=settings.reranker_instruction,
        attention=settings.attention,
        max_frames=settings.max_frames,
        max_image_pixels=settings.max_image_pixels,
    )
    if files.model_type() == QWEN3_VL:
        return Qwen3VLReranker(files, options)
    return CrossEncoder(files, options)
