"""Models that fleets are planned for: published seconds of a run, and the bytes of its latents.

Nothing here was measured in this repository: it has no such GPU. Each figure names who measured it,
on what and how; shapes follow from diffusers' pipelines (0.42), in the layout that the denoising
loop works on, which is what latent_kv stores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Source:
    """Where a figure is from."""

    name: str
    url: str


@dataclass(frozen=True, slots=True)
class Model:
    """A model at one setting.

    Attributes:
        name: As its makers write it.
        setting: Size, frames and steps of the run.
        executor: What one executor is made of.
        run_s: Seconds of a full run there.
        source: Who says so.
        decode_s: Seconds of its autoencoder, all that an exact repeat takes of an executor.
        decode_source: Who says so, and what was made of it.
        latents: Shape of its latents.
        latent_bytes_each: Bytes of one of their numbers.
        rates: Requests per second to plan for.
    """

    name: str
    setting: str
    executor: str
    run_s: float
    source: Source
    decode_s: float
    decode_source: Source
    latents: Sequence[int]
    latent_bytes_each: int
    rates: Sequence[float]

    @property
    def latent_mb(self) -> float:
        """Megabytes of its latents."""
        return math.prod(self.latents) * self.latent_bytes_each / 1e6


def packed_latents(height: int, width: int) -> tuple[int, ...]:
    """Flux and Qwen-Image: 2 x 2 of 16 channels at an eighth of the pixels, in a row."""
    return (1, (height // 16) * (width // 16), 64)


def wan_latents(height: int, width: int, frames: int) -> tuple[int, ...]:
    """Wan: 16 channels, an eighth of the pixels each way, a quarter of the later frames."""
    return (1, 16, (frames - 1) // 4 + 1, height // 8, width // 8)


_BFLOAT16, _FLOAT32 = 2, 4
_TEACACHE: Final = "https://github.com/ali-vilab/TeaCache/blob/7c10efc"
_CACHE_DIT: Final = Source(
    "cache-dit", "https://github.com/vipshop/cache-dit/blob/main/docs/benchmark/NVIDIA_GPU.md"
)
_FLUX_DECODER: Final = Source(
    "SGLang, GPU not named", "https://github.com/sgl-project/sglang/pull/22365"
)
_QWEN_DECODER: Final = Source("Flux's by pixels", _FLUX_DECODER.url)
_WAN_DECODER: Final = Source(
    "SGLang, GPU not named", "https://github.com/sgl-project/sglang/pull/18149"
)
_WAN_DECODER_480P: Final = Source("that of 720p by pixels", _WAN_DECODER.url)

MODELS: Final = (
    Model(
        "FLUX.1-dev",
        "1024x1024, 28 steps",
        "A800",
        18.0,
        Source("TeaCache", f"{_TEACACHE}/TeaCache4FLUX/README.md"),
        0.028,
        _FLUX_DECODER,
        packed_latents(1024, 1024),
        _BFLOAT16,
        (1, 10, 100, 1000),
    ),
    Model(
        "FLUX.1-dev",
        "1024x1024, 28 steps",
        "L20",
        23.25,
        _CACHE_DIT,
        0.028,
        _FLUX_DECODER,
        packed_latents(1024, 1024),
        _BFLOAT16,
        (1, 10, 100, 1000),
    ),
    Model(
        "Qwen-Image",
        "1328x1328, 50 steps",
        "L20, weights offloaded to the CPU",
        181.0,
        _CACHE_DIT,
        0.047,
        _QWEN_DECODER,
        packed_latents(1328, 1328),
        _BFLOAT16,
        (1, 10, 100, 1000),
    ),
    Model(
        "Wan2.1-T2V-1.3B",
        "832x480, 81 frames, 50 steps",
        "A800",
        175.0,
        Source("TeaCache", f"{_TEACACHE}/TeaCache4Wan2.1/README.md"),
        3.0,
        _WAN_DECODER_480P,
        wan_latents(480, 832, 81),
        _FLOAT32,
        (0.1, 1, 10, 100),
    ),
    Model(
        "Wan2.1-T2V-14B",
        "1280x720, 81 frames, 50 steps",
        "A800",
        3300.0,
        Source("TeaCache", f"{_TEACACHE}/TeaCache4Wan2.1/README.md"),
        6.9,
        _WAN_DECODER,
        wan_latents(720, 1280, 81),
        _FLOAT32,
        (0.01, 0.1, 1, 10),
    ),
    Model(
        "Wan2.2-I2V-A14B",
        "1280x720, 81 frames, 40 steps",
        "8 H100",
        250.7,
        Source("Morphic", "https://www.morphic.com/kr/blog/boosting-wan2-2-i2v-56-faster"),
        6.9,
        _WAN_DECODER,
        wan_latents(720, 1280, 81),
        _FLOAT32,
        (0.1, 1, 10, 100),
    ),
)
