"""Settings of the denoise executor."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from skipstone_shared.block_cache_json import block_cache_from_text
from skipstone_shared.config import CallerSettings, Port
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import BlockCacheConfig
from skipstone_shared.ports import DEFAULT_PORTS, default_target

ATTENTION_SWITCHED_FOR_ALL = frozenset(
    {"_native_cudnn", "_native_efficient", "_native_flash", "_native_math"}
)
"""Attention backends that are flags of the whole process while a call lasts."""

_SPARE_WORKERS = 4


class DenoiseSettings(CallerSettings):
    """Runs a diffusion pipeline: from noise, from a donor's snapshot, or only its decoder."""

    service_name: ClassVar[str] = "denoise"

    port: Port = DEFAULT_PORTS["denoise"]
    """TCP port to listen on; 0 takes any free one and logs it."""

    max_workers: int = Field(default=32, ge=1, le=1024)
    """Threads that work on requests. Each running or waiting generation holds one, so there must be
    at least four more than max_concurrent_requests + max_queued_requests."""

    drain_grace_s: float = Field(default=25.0, ge=0.0)
    """Seconds that running generations get to finish after SIGTERM."""

    model: str = Field(default="models/skipstone-scenes", min_length=1)
    """Folder in diffusers' format, relative to the working directory, or a model id of the hub."""

    model_revision: str = ""
    """Commit or tag of a model id; empty for the newest that is there."""

    allow_download: bool = False
    """Fetch a model id that is not in the local hub cache."""

    device: str = Field(default="cpu", pattern=r"^(cpu|cuda(:\d+)?|mps|xpu(:\d+)?)$")
    """Device of the model: cpu, cuda, cuda:1, mps, xpu."""

    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Element type of the weights."""

    vae_dtype: Literal["float32", "bfloat16", "float16"] | None = None
    """Element type of the autoencoder's weights; none: dtype. Wan's authors use float32 for it."""

    scheduler: str = ""
    """Class name of a scheduler of diffusers in the place of the model's own, which gives it its
    settings; CogVideoX-5b is resumed with CogVideoXDDIMScheduler only."""

    device_map: Literal["none", "balanced"] = "none"
    """Spreads the parts of the pipeline over accelerators: none, or balanced by diffusers."""

    device_memory: dict[str, str] = Field(default_factory=dict)
    """Most memory that device_map may fill of each device, such as {"0": "70GiB", "cpu": "100GiB"};
    empty: what is free."""

    offload: Literal["none", "model", "sequential", "group"] = "none"
    """Keeps in main memory what does not compute: whole models, single layers (sequential), or
    groups of blocks. Slower in this order, and smaller. One request at a time."""

    attention_backend: str = ""
    """Attention of the denoisers, by diffusers' names: native, flash, sage, xformers, ...; empty:
    the model's own."""

    compile: Literal["none", "blocks", "whole"] = "none"
    """torch.compile of the denoisers: block by block, which starts sooner and goes with block
    caching, or as a whole."""

    compile_mode: Literal["default", "reduce-overhead", "max-autotune"] = "default"
    """Mode of torch.compile."""

    vae_tiling: bool = False
    """Decodes large pictures and videos in tiles, which takes less memory and changes pixels."""

    vae_slicing: bool = False
    """Decodes the pictures of a batch one by one, which takes less memory."""

    num_threads: int | None = Field(default=None, ge=1, le=1024)
    """CPU threads of one operation; none leaves it to torch."""

    max_concurrent_requests: int = Field(default=2, ge=1, le=256)
    """Generations that run at once, sharing the weights."""

    max_queued_requests: int = Field(default=16, ge=0, le=512)
    """Generations that wait; more are refused with RESOURCE_EXHAUSTED."""

    max_steps: int = Field(default=1000, ge=1, le=100_000)
    """Largest number of denoising steps; the training steps of the scheduler bound it too."""

    default_steps: int | None = Field(default=None, ge=1)
    """Denoising steps when a request names none; none: the pipeline's own default."""

    default_guidance_scale: float | None = Field(default=None, ge=0.0, le=100.0)
    """Guidance scale when a request names none; none: the pipeline's own default."""

    default_negative_prompt: str = ""
    """Negative prompt when a request gives none. Models with true guidance (Qwen-Image) are guided
    only by one: a single space is what their authors use."""

    default_height: int | None = Field(default=None, ge=1)
    """Height in pixels when a request names none; none: the pipeline's own default."""

    default_width: int | None = Field(default=None, ge=1)
    """Width in pixels when a request names none; none: the pipeline's own default."""

    default_num_frames: int | None = Field(default=None, ge=1)
    """Frames when a request of a video model names none; none: the pipeline's own default."""

    frame_rate: float | None = Field(default=None, ge=1.0, le=240.0)
    """Frames per second of videos, 1 to 240; none: that at which the family's motion is natural.
    LTX-Video is told it too, and moves accordingly."""

    video_format: Literal["mp4", "gif"] = "mp4"
    """What videos are sent as when a request does not say: mp4 (H.264), or gif, in 256 colours, for
    previews."""

    video_crf: int = Field(default=17, ge=0, le=51)
    """Constant rate factor of MP4: 0 is lossless, 17 looks so, 23 is half the size."""

    min_size: int | None = Field(default=None, ge=1)
    """Smallest height and width in pixels; none: one size step of the model."""

    max_size: int = Field(default=2048, ge=1)
    """Largest height and width in pixels; the position table of the model bounds it too."""

    max_num_frames: int = Field(default=257, ge=1)
    """Largest number of frames of a video model."""

    block_cache: str = ""
    """Block caching when a request says nothing of it: none, quality, balanced, fast, or the
    options of cache-dit as JSON, such as {"Fn_compute_blocks": 1}; empty: none."""

    block_adapters: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Where the blocks are of transformers that are not known, by class name: block `lists` and the
    `pattern` in which they pass the streams on. The README has an example."""

    latent_kv_target: str = default_target("latent_kv")
    """gRPC target of the LatentKV service to read from and write to by default; empty: none."""

    resume_read_timeout_ms: int = Field(default=200, ge=1)
    """Milliseconds a donor's store gets to answer before the run starts from noise."""

    resume_read_mib_per_s: float = Field(default=200.0, gt=0.0)
    """Rate that is expected of a store: each MiB of a donor's latent adds its share to the time."""

    snapshot_write_timeout_ms: int = Field(default=2000, ge=1)
    """Milliseconds one snapshot may take to be stored, beside the denoising."""

    snapshot_wait_ms: int = Field(default=250, ge=0)
    """Milliseconds the end of a run waits for snapshots that are still on their way."""

    snapshot_queue_size: int = Field(default=16, ge=1)
    """Snapshots of one run that may wait to be stored; more are dropped and reported."""

    @field_validator("block_cache")
    @classmethod
    def _readable_block_cache(cls, text: str) -> str:
        try:
            if text:
                block_cache_from_text(text)
        except InvalidArgument as error:
            raise ValueError(str(error)) from None
        return text

    @property
    def default_block_cache(self) -> BlockCacheConfig | None:
        """What `block_cache` says; None when it says nothing."""
        return block_cache_from_text(self.block_cache) if self.block_cache else None

    @model_validator(mode="after")
    def _possible_placement(self) -> Self:
        if self.offload != "none":
            if self.device == "cpu":
                raise ValueError(
                    f"offload is {self.offload}, but device is cpu: nothing is to be moved away"
                )
            if self.device_map != "none":
                raise ValueError("offload and device_map exclude each other")
            if self.max_concurrent_requests > 1:
                raise ValueError(
                    f"offload is {self.offload}, so max_concurrent_requests must be 1: a request "
                    "moves away what another one computes with"
                )
        if self.device_memory and self.device_map == "none":
            raise ValueError("device_memory is only for device_map")
        if self.device_map != "none" and self.device == "cpu":
            raise ValueError("device_map is balanced, so device must be cuda, xpu or mps, not cpu")
        return self

    @model_validator(mode="after")
    def _one_at_a_time(self) -> Self:
        if (
            self.attention_backend in ATTENTION_SWITCHED_FOR_ALL
            and self.max_concurrent_requests > 1
        ):
            raise ValueError(
                f"attention_backend is {self.attention_backend}, so max_concurrent_requests must "
                "be 1: torch switches it on and off for all requests at once"
            )
        return self

    @model_validator(mode="after")
    def _enough_workers(self) -> Self:
        needed = self.max_concurrent_requests + self.max_queued_requests + _SPARE_WORKERS
        if self.max_workers < needed:
            raise ValueError(
                f"max_workers must be at least {needed} for {self.max_concurrent_requests} running "
                f"and {self.max_queued_requests} waiting generations"
            )
        return self
