"""Settings of the embedding service."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from skipstone_embedding.model_files import BUNDLED_GATE, MINILM
from skipstone_shared.config import Port, ServiceSettings
from skipstone_shared.ports import DEFAULT_PORTS


class EmbeddingSettings(ServiceSettings):
    """Turns texts into search vectors, batching across callers."""

    service_name = "embedding"

    port: Port = DEFAULT_PORTS["embedding"]
    """TCP port to listen on; 0 takes any free one and logs it."""

    model: str = Field(default=MINILM, min_length=1)
    """Embedding model: minilm (comes with a package), a directory, or a Hugging Face id."""

    revision: str = ""
    """Branch, tag or commit of a Hugging Face id; empty for its main branch."""

    allow_download: bool = False
    """Whether a model that is not here may be fetched from the hub; otherwise nothing is asked."""

    device: str = "cpu"
    """Torch device the model runs on: cpu, cuda, cuda:1, mps."""

    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Element type of the weights; vectors are always float32."""

    pooling: Literal["mean", "cls", "last"] = "mean"
    """How a model's tokens become one vector; the model's card says which. minilm has its own."""

    max_tokens: int = Field(default=0, ge=0)
    """Tokens of a text that are read; the rest is ignored. 0: as many as the model can."""

    instruction_template: str = ""
    """Text with {instruction} and {text}, for models that take an instruction. Empty: none does."""

    default_instruction: str = ""
    """Instruction of calls that give none; needs instruction_template."""

    max_batch_size: int = Field(default=64, ge=1, le=128)
    """Inputs that go through the model at once, and the most in one call."""

    max_wait_ms: float = Field(default=2.0, ge=0.0, le=1000.0)
    """Milliseconds that an input waits for others to share a batch with."""

    max_queue_size: int = Field(default=1024, ge=1)
    """Inputs that may wait; more are refused with RESOURCE_EXHAUSTED."""

    reranker: str = Field(default=BUNDLED_GATE, min_length=1)
    """What scores candidates: bundled (comes with Skipstone), none, a directory, or a Hugging Face
    id: Qwen3-VL-Reranker, or any cross-encoder with one or two labels."""

    reranker_revision: str = ""
    """Branch, tag or commit of a reranker's Hugging Face id; empty for its main branch."""

    reranker_instruction: str = ""
    """What Qwen3-VL-Reranker is told to judge; empty: whether it would be the same picture."""

    num_threads: int = Field(default=1, ge=1, le=256)
    """CPU threads of the model. One is best when services share a machine."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        template = self.instruction_template
        if template and not ("{text}" in template and "{instruction}" in template):
            raise ValueError("instruction_template needs {instruction} and {text} in it")
        if self.default_instruction and not template:
            raise ValueError("default_instruction needs instruction_template")
        if self.max_queue_size < self.max_batch_size:
            raise ValueError("max_queue_size must be at least max_batch_size")
        return self
