"""By what donors are found: by their prompts, or by frames of what they show.

Both are searched with the vector of the request's prompt; an encoder that sees puts texts and
pictures into one space. A text is nearer to texts than to pictures, whatever they show, so the two
kinds are kept apart and never ranked together: vectors of frames go under a model id of their own.
What either finds is judged by the gate, which reads prompts.
"""

from __future__ import annotations

from collections.abc import Sequence

from skipstone_orchestrator.backends import Embedder
from skipstone_orchestrator.guard import Guard, within
from skipstone_shared.embeddings import Embedding, EmbeddingInput, EncodedImage
from skipstone_shared.errors import InvalidArgument, SkipstoneError
from skipstone_shared.frame_samples import frames_model_id
from skipstone_shared.structured_logging import get_logger


class DonorVectors:
    """Makes the vectors of entries. Shared by all requests; keeps nothing of any."""

    def __init__(
        self,
        embedder: Embedder,
        guard: Guard,
        *,
        frames: int,
        timeout_s: float,
        frames_timeout_s: float,
    ) -> None:
        """Creates it.

        Args:
            embedder: Makes vectors.
            guard: Its guard.
            frames: Frames of an entry that are looked at; 0: entries are found by their prompts.
            timeout_s: Seconds that the vector of a prompt may take.
            frames_timeout_s: Seconds that one of frames may take.
        """
        self._embedder = embedder
        self._guard = guard
        self._timeout_s = timeout_s
        self._frames_timeout_s = frames_timeout_s
        self.frames = frames

    def searched(self, embedding: Embedding) -> str:
        """Model id of the vectors that a prompt's vector is compared with."""
        return frames_model_id(embedding.model_id) if self.frames else embedding.model_id

    async def of_entry(
        self,
        namespace: str,
        prompt: str,
        known: Embedding | None,
        frames: Sequence[EncodedImage],
    ) -> Embedding:
        """The vector under which an entry is kept.

        Frames that cannot be embedded do not cost the entry: it gets the vector of its prompt, and
        only the very same request finds it.

        Args:
            namespace: Namespace of the entry.
            prompt: Its prompt.
            known: The vector of the prompt where the lookup made one.
            frames: Frames of what it shows; may be none.

        Raises:
            SkipstoneError: The embedding service failed.
        """
        if self.frames and frames:
            try:
                return await self._of_frames(namespace, frames)
            except InvalidArgument as error:
                get_logger().warning(
                    "frames cannot be embedded, the entry is kept under its prompt",
                    error=error.message,
                )
        if known is not None:
            return known
        return await self._guard.call(
            lambda: self._embedder.embed_text(prompt, namespace=namespace), self._timeout_s
        )

    async def _of_frames(self, namespace: str, frames: Sequence[EncodedImage]) -> Embedding:
        """Asks without a say in the breaker: who is slow to see is not away for prompts."""
        await self._guard.check()
        return await within(
            lambda: self._see(namespace, frames), self._frames_timeout_s, self._guard.service
        )

    async def _see(self, namespace: str, frames: Sequence[EncodedImage]) -> Embedding:
        item = EmbeddingInput(frames=tuple(frames))
        (result,) = await self._embedder.embed([item], namespace=namespace)
        if isinstance(result, SkipstoneError):
            raise result
        return Embedding(
            result.vector,
            result.num_tokens,
            result.truncated,
            frames_model_id(result.model_id),
        )
