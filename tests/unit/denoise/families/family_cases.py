"""Every tested pipeline of every family, and what is expected of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tests.unit.denoise.families import picture_pipelines as pictures
from tests.unit.denoise.families import video_pipelines as videos
from tests.unit.denoise.tiny_pipelines import (
    flux_pipeline,
    pixart_pipeline,
    wan_dual_pipeline,
    wan_pipeline,
)

from skipstone_shared.latents import GuidanceMode

SEPARATE, BATCHED, NONE = GuidanceMode.SEPARATE, GuidanceMode.BATCHED, GuidanceMode.NONE


@dataclasses.dataclass(frozen=True)
class FamilyCase:
    """One pipeline, at its least size of 16x16 pixels or more, with two latent frames.

    Attributes:
        build: Makes it.
        latents: Shape of its latents in the loop.
        mode: How it evaluates guidance when asked for it.
        packed: Whether latents are packed in patches by the pipeline.
        size: Pixels of an edge.
        takes_negative: Whether it takes a negative prompt.
        picture: Whether it takes a picture: never, optionally, always.
        block_cache: Whether its blocks can be cached.
        trajectory: Whether it is resumed from steps in between.
        frame_rate: Frames per second; 0 for pictures.
    """

    build: Callable[[], Any]
    latents: tuple[int, ...]
    mode: GuidanceMode
    packed: bool = False
    size: int = 16
    takes_negative: bool = True
    picture: str = "never"
    block_cache: bool = True
    trajectory: bool = True
    frame_rate: int = 0


_WAN = (1, 4, 2, 2, 2)
_PACKED = (1, 16, 16)

CASES: dict[str, FamilyCase] = {
    "wan": FamilyCase(wan_pipeline, _WAN, SEPARATE, frame_rate=16),
    "wan-two-experts": FamilyCase(wan_dual_pipeline, _WAN, SEPARATE, frame_rate=16),
    "wan-2.1-i2v": FamilyCase(videos.wan21_i2v, _WAN, SEPARATE, picture="always", frame_rate=16),
    "wan-2.2-i2v": FamilyCase(videos.wan22_i2v, _WAN, SEPARATE, picture="always", frame_rate=16),
    "wan-2.2-5b": FamilyCase(videos.wan22_5b, _WAN, SEPARATE, frame_rate=24),
    "wan-2.2-5b-i2v": FamilyCase(
        videos.wan22_5b_i2v, _WAN, SEPARATE, picture="always", frame_rate=24
    ),
    "qwen-image": FamilyCase(pictures.qwen_image, _PACKED, SEPARATE, packed=True),
    "flux1": FamilyCase(flux_pipeline, _PACKED, SEPARATE, packed=True),
    "flux2": FamilyCase(
        pictures.flux2, _PACKED, NONE, packed=True, takes_negative=False, picture="optionally"
    ),
    "flux2-klein": FamilyCase(
        pictures.flux2_klein,
        _PACKED,
        SEPARATE,
        packed=True,
        takes_negative=False,
        picture="optionally",
    ),
    "sd35": FamilyCase(pictures.sd35, (1, 4, 8, 8), BATCHED),
    "z-image": FamilyCase(pictures.z_image, (1, 4, 8, 8), BATCHED),
    "ltx": FamilyCase(videos.ltx, (1, 128, 8), BATCHED, packed=True, size=32, frame_rate=25),
    "ltx-i2v": FamilyCase(
        videos.ltx_i2v,
        (1, 128, 8),
        BATCHED,
        packed=True,
        size=32,
        picture="always",
        frame_rate=25,
    ),
    "hunyuan-video": FamilyCase(videos.hunyuan_video, _WAN, SEPARATE, frame_rate=24),
    "hunyuan-video-1.5": FamilyCase(videos.hunyuan_video_15, _WAN, SEPARATE, frame_rate=24),
    "cogvideox": FamilyCase(videos.cogvideox, (1, 2, 4, 2, 2), BATCHED, frame_rate=8),
    "cogvideox-i2v": FamilyCase(
        videos.cogvideox_i2v, (1, 2, 4, 2, 2), BATCHED, picture="always", frame_rate=8
    ),
    "cogvideox-dpm": FamilyCase(
        videos.cogvideox_dpm, (1, 2, 4, 2, 2), BATCHED, trajectory=False, frame_rate=8
    ),
    "pixart": FamilyCase(pixart_pipeline, (1, 4, 8, 8), BATCHED),
    "sdxl": FamilyCase(pictures.sdxl, (1, 4, 8, 8), BATCHED, block_cache=False),
}

LONG = frozenset({"hunyuan-video-1.5", "flux2-klein"})
"""Cases that take seconds: a thousand tokens of text, or 28 layers that read it twice."""
