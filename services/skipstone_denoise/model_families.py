"""The families of models that are served and tested, and what no inspection can tell of them.

All else of a model is found by looking at its pipeline (`model_inspection`), so a pipeline that is
not listed here runs too.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any

DEFAULT_FRAME_RATE = 16
"""Frames per second of videos of unknown models; most are trained at about that rate."""


RATE_PARAMETERS = ("frame_rate", "fps")
"""Names by which pipelines are told the frame rate, where their latents depend on it."""


class Guidance(Enum):
    """What `guidance_scale` and the negative prompt do in a family."""

    SEPARATE = "guidance_scale; a second call with the negative prompt"
    BATCHED = "guidance_scale; the negative prompt in the same batch"
    DISTILLED = "guidance_scale is an input of the model; no negative prompt"
    NO_NEGATIVE = "guidance_scale; a second call with the empty prompt"
    TRUE = "guidance_scale_2 (true_cfg_scale), only with a negative prompt"
    DISTILLED_AND_TRUE = (
        "guidance_scale is an input of the model; guidance_scale_2 (true_cfg_scale), only with a "
        "negative prompt"
    )
    OF_THE_MODEL = "set in the model's guider; the negative prompt in a second call"


@dataclasses.dataclass(frozen=True, slots=True)
class ModelFamily:
    """One family.

    Attributes:
        title: Its name.
        page: Its page under docs/models, without `.md`.
        pipelines: Class names of its pipelines in diffusers, and the guidance of each.
        frame_rate: Frames per second of a loaded pipeline's videos; None for pictures.
        kin: What class names of the family begin with, also those that are not listed; of video
            families only.
        block_cache: Whether blocks can be reused inside a request.
    """

    title: str
    page: str
    pipelines: Mapping[str, Guidance]
    frame_rate: Callable[[Any], int] | None = None
    block_cache: bool = True
    kin: str = ""


def _wan_rate(pipeline: Any) -> int:
    """Wan 2.2 5B, the one with a timestep per token, makes 24; the others 16."""
    return 24 if pipeline.config.get("expand_timesteps") else 16


def _cogvideox_rate(pipeline: Any) -> int:
    """CogVideoX 1.5, the one with patches in time, makes 16; the others 8."""
    return 16 if pipeline.transformer.config.get("patch_size_t") else 8


def _same(guidance: Guidance, *pipelines: str) -> Mapping[str, Guidance]:
    return MappingProxyType(dict.fromkeys(pipelines, guidance))


FAMILIES: tuple[ModelFamily, ...] = (
    ModelFamily(
        "Wan 2.1 and 2.2",
        "wan",
        _same(Guidance.SEPARATE, "WanPipeline", "WanImageToVideoPipeline"),
        _wan_rate,
        kin="Wan",
    ),
    ModelFamily("Qwen-Image", "qwen-image", _same(Guidance.TRUE, "QwenImagePipeline")),
    ModelFamily("Flux.1", "flux1", _same(Guidance.DISTILLED_AND_TRUE, "FluxPipeline")),
    ModelFamily(
        "Flux.2",
        "flux2",
        MappingProxyType(
            {
                "Flux2Pipeline": Guidance.DISTILLED,
                "Flux2KleinPipeline": Guidance.NO_NEGATIVE,
            }
        ),
    ),
    ModelFamily(
        "Stable Diffusion 3.5", "sd35", _same(Guidance.BATCHED, "StableDiffusion3Pipeline")
    ),
    ModelFamily("Z-Image", "z-image", _same(Guidance.BATCHED, "ZImagePipeline")),
    ModelFamily(
        "LTX-Video",
        "ltx",
        _same(Guidance.BATCHED, "LTXPipeline", "LTXImageToVideoPipeline"),
        lambda _pipeline: 25,
        kin="LTX",
    ),
    ModelFamily(
        "HunyuanVideo",
        "hunyuan-video",
        MappingProxyType(
            {
                "HunyuanVideoPipeline": Guidance.DISTILLED_AND_TRUE,
                "HunyuanVideo15Pipeline": Guidance.OF_THE_MODEL,
            }
        ),
        lambda _pipeline: 24,
        kin="HunyuanVideo",
    ),
    ModelFamily(
        "CogVideoX",
        "cogvideox",
        _same(Guidance.BATCHED, "CogVideoXPipeline", "CogVideoXImageToVideoPipeline"),
        _cogvideox_rate,
        kin="CogVideoX",
    ),
    ModelFamily("PixArt", "pixart", _same(Guidance.BATCHED, "PixArtSigmaPipeline")),
    ModelFamily(
        "Stable Diffusion XL",
        "sdxl",
        _same(Guidance.BATCHED, "StableDiffusionXLPipeline"),
        block_cache=False,
    ),
)


def family_of(pipeline: Any) -> ModelFamily | None:
    """The family of a loaded pipeline; None for one that is not listed."""
    name = type(pipeline).__name__
    return next((family for family in FAMILIES if name in family.pipelines), None)


def native_frame_rate(pipeline: Any) -> float:
    """Frames per second at which the motion of a pipeline's videos is natural.

    That of its family; else what it tells the model when a call does not say.
    """
    name = type(pipeline).__name__
    for family in FAMILIES:
        if family.frame_rate is not None and name.startswith(family.kin):
            return family.frame_rate(pipeline)
    parameters = inspect.signature(type(pipeline).__call__).parameters
    told = (parameters[name].default for name in RATE_PARAMETERS if name in parameters)
    return next((rate for rate in told if isinstance(rate, int | float)), DEFAULT_FRAME_RATE)
