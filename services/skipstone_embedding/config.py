"""Settings of the embedding service."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator

from skipstone_embedding.model_files import BUNDLED_GATE, MINILM, NO_RERANKER
from skipstone_shared.config import Port, ServiceSettings
from skipstone_shared.ports import DEFAULT_PORTS

_URL = re.compile(r"https?://[^/@\s?#]+(/[^@\s?#]*)?")


class EmbeddingSettings(ServiceSettings):
    """Turns texts into search vectors, batching across callers."""

    service_name = "embedding"

    port: Port = DEFAULT_PORTS["embedding"]
    """TCP port to listen on; 0 takes any free one and logs it."""

    engine: Literal["transformers", "openai", "tei"] = "transformers"
    """Who computes vectors: transformers = this process; openai = a service at url that answers
    POST /embeddings as OpenAI does; tei = Text-Embeddings-Inference at url. For the last two
    device, dtype, pooling, max_tokens and num_threads are that service's own business."""

    model: str = Field(default=MINILM, min_length=1)
    """Embedding model: minilm (comes with a package), a directory, or a Hugging Face id. With
    engine openai its name there; with tei the name it must have; unset: any."""

    revision: str = ""
    """Branch, tag or commit of a Hugging Face id; empty for its main branch. With another engine:
    a word that you change with the weights; empty: what the service says, or its vectors show."""

    url: str = ""
    """Where the service of engine is: https://api.openai.com/v1, http://tei:80."""

    api_key: SecretStr = Field(default=SecretStr(""), json_schema_extra={"flag": False})
    """Key that the service is asked with, as bearer token; empty sends none. By variable or file
    alone: everybody on the machine can read the flags of a process."""

    api_key_file: Path | None = None
    """File that holds that key. A changed file is taken up without a restart."""

    dimensions: int = Field(default=0, ge=0, le=16_384)
    """Elements of a vector to ask engine openai for, where its model offers several; 0: its own."""

    remote_timeout_s: float = Field(default=2.0, gt=0.0, le=600.0)
    """Seconds that url and reranker_url may take for one call, with retries."""

    remote_attempts: int = Field(default=3, ge=1, le=10)
    """Times that a request to them is tried within those seconds."""

    remote_batch_size: int = Field(default=32, ge=1, le=2048)
    """Texts in one request to them; fewer where the service says that it takes fewer."""

    remote_ca_file: Path | None = None
    """PEM file of the authorities they have their certificates from; none: the well-known ones."""

    allow_download: bool = False
    """Whether a model that is not here may be fetched from the hub; otherwise nothing is asked."""

    device: str = "cpu"
    """Torch device the models run on: cpu, cuda, cuda:1, mps."""

    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Element type of the weights; vectors are always float32."""

    attention: Literal["auto", "eager", "sdpa", "flash_attention_2"] = "auto"
    """Attention implementation of transformers, of encoder and reranker; auto: the model's own."""

    pooling: Literal["mean", "cls", "last"] = "mean"
    """How a model's tokens become one vector; the model's card says which. minilm has its own."""

    max_tokens: int = Field(default=0, ge=0)
    """Tokens of a text that are read; the rest is ignored. 0: as many as the model can."""

    max_frames: int = Field(default=16, ge=1, le=16)
    """Frames of a clip that a model which sees looks at, evenly spaced; fewer are faster."""

    max_image_pixels: int = Field(default=0, ge=0, le=1 << 24)
    """Pixels of a picture for Qwen3-VL at most, after scaling; fewer are faster. 0: 1,843,200 for a
    picture and 786,432 for a frame of a clip."""

    instruction_template: str = ""
    """Text with {instruction} and {text}, for models that take an instruction. Empty: none does."""

    default_instruction: str = ""
    """Instruction of calls that give none; needs instruction_template, or Qwen3-VL-Embedding."""

    max_batch_size: int = Field(default=64, ge=1, le=128)
    """Inputs that go through the model at once, and the most in one call."""

    max_wait_ms: float = Field(default=2.0, ge=0.0, le=1000.0)
    """Milliseconds that an input waits for others to share a batch with."""

    max_queue_size: int = Field(default=1024, ge=1)
    """Inputs that may wait; more are refused with RESOURCE_EXHAUSTED."""

    reranker: str = Field(default=BUNDLED_GATE, min_length=1)
    """What scores candidates: bundled (comes with Skipstone), none, a directory, or a Hugging Face
    id: Qwen3-VL-Reranker, or any cross-encoder with one or two labels."""

    reranker_engine: Literal["local", "tei"] = "local"
    """Who scores: local = this process; tei = a service at reranker_url that answers POST /rerank
    as Text-Embeddings-Inference does; reranker is then the name it must have; unset: any."""

    reranker_url: str = ""
    """Where the service of reranker_engine is: http://tei-reranker:80."""

    reranker_api_key: SecretStr = Field(default=SecretStr(""), json_schema_extra={"flag": False})
    """Key that it is asked with, as bearer token; by variable or file alone."""

    reranker_api_key_file: Path | None = None
    """File that holds that key. A changed file is taken up without a restart."""

    reranker_scores: Literal["normalised", "logits"] = "normalised"
    """Scale of its scores: normalised = 0 to 1; logits = before the sigmoid, whatever is asked."""

    reranker_revision: str = ""
    """Branch, tag or commit of a reranker's Hugging Face id; empty for its main branch. With
    reranker_engine tei: a word that you change with the weights."""

    reranker_instruction: str = ""
    """What Qwen3-VL-Reranker is told to judge; empty: whether it would be the same picture."""

    reranker_device: str = ""
    """Torch device of a reranker; empty: device."""

    reranker_dtype: Literal["", "float32", "bfloat16", "float16"] = ""
    """Element type of a reranker's weights; empty: dtype."""

    num_threads: int = Field(default=1, ge=1, le=256)
    """CPU threads of the model. One is best when services share a machine."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_remotes()
        template = self.instruction_template
        if template and not ("{text}" in template and "{instruction}" in template):
            raise ValueError("instruction_template needs {instruction} and {text} in it")
        if self.max_queue_size < self.max_batch_size:
            raise ValueError("max_queue_size must be at least max_batch_size")
        return self

    def name_there(self, field: str) -> str:
        """Returns the name that `model` or `reranker` must have at a service; empty when unset."""
        return str(getattr(self, field)) if field in self.model_fields_set else ""

    def _check_remotes(self) -> None:
        for name in ("url", "reranker_url"):
            url: str = getattr(self, name)
            # Here and not as a pattern of the field: that error would repeat a password.
            if url and not _URL.fullmatch(url):
                raise ValueError(f"{name} must be http:// or https:// without user and password")
        if (self.engine == "transformers") == bool(self.url):
            raise ValueError("url and one of the engines openai and tei need each other")
        if (self.reranker_engine == "local") == bool(self.reranker_url):
            raise ValueError("reranker_url and reranker_engine tei need each other")
        if self.engine == "openai" and not self.name_there("model"):
            raise ValueError("engine openai needs model, the name of one at url")
        if self.reranker_engine == "tei" and self.reranker == NO_RERANKER:
            raise ValueError("reranker_engine tei needs a reranker other than none")
        for prefix in ("", "reranker_"):
            key: SecretStr = getattr(self, f"{prefix}api_key")
            if key.get_secret_value() and getattr(self, f"{prefix}api_key_file"):
                raise ValueError(f"give one of {prefix}api_key and {prefix}api_key_file")
