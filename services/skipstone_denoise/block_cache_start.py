"""Finds out at the start whether block caching works as configured."""

from __future__ import annotations

import copy
import io
from typing import Any

import torch
from PIL import Image

from skipstone_denoise.block_caching import BlockCaching
from skipstone_denoise.config import DenoiseSettings
from skipstone_denoise.model_folder import ModelUnusable
from skipstone_denoise.model_inspection import small_call
from skipstone_denoise.model_profile import ModelProfile
from skipstone_denoise.pipeline_probe import PLACEHOLDER_PROMPT, PipelineProbe
from skipstone_denoise.planning import Planner
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import GenerationParams, ReferenceInput


def usable_block_caching(
    pipeline: Any, settings: DenoiseSettings, profile: ModelProfile, probe: PipelineProbe
) -> BlockCaching:
    """Block caching of a loaded pipeline. Declared blocks are tried: one small step.

    Raises:
        ModelUnusable: a declaration does not fit.
    """
    try:
        caching = BlockCaching(pipeline, settings.block_adapters)
    except InvalidArgument as error:
        raise ModelUnusable(f"block_adapters: {error}") from None
    if caching.uses_declaration:
        _try_declaration(pipeline, caching, profile, probe)
    return caching


def check_default_block_cache(planner: Planner, profile: ModelProfile) -> None:
    """Plans a run in which the configured default is in force, if there is one.

    Raises:
        ModelUnusable: the model cannot do it.
    """
    if profile.default_block_cache is None:
        return
    params = GenerationParams(
        PLACEHOLDER_PROMPT,
        reference_inputs=_grey_references(profile),
        block_cache=profile.default_block_cache,
    )
    try:
        planner.plan(params)
    except InvalidArgument as error:
        raise ModelUnusable(f"the default block_cache cannot be: {error}") from None


def _try_declaration(
    pipeline: Any, caching: BlockCaching, profile: ModelProfile, probe: PipelineProbe
) -> None:
    name = type(pipeline.transformer).__name__

    def first_step(one_probe: PipelineProbe) -> torch.Tensor:
        arguments = small_call(pipeline, profile, profile.min_size)
        return one_probe.first_step(copy.deepcopy(pipeline.scheduler), arguments).latents

    try:
        cached = first_step(probe.of(caching.cached_pipeline()))
    except Exception as error:
        # Streams in the wrong places fail in as many ways as there are blocks.
        raise ModelUnusable(
            f"block_adapters.{name} does not fit, its first step fails: {error}"
        ) from error
    if not torch.equal(cached, first_step(probe)):
        raise ModelUnusable(
            f"block_adapters.{name} does not fit: with nothing reused its first step is not the "
            "model's own; check lists and pattern"
        )


def _grey_references(profile: ModelProfile) -> tuple[ReferenceInput, ...]:
    """A grey picture for every reference input that the model cannot do without."""
    picture = io.BytesIO()
    Image.new("RGB", (profile.default_width, profile.default_height), "grey").save(picture, "PNG")
    roles = profile.required_references
    return tuple(ReferenceInput(role, "image/png", picture.getvalue()) for role in roles)
