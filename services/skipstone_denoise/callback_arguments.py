"""What the arguments of a stock pipeline's call say to the cache, or why they cannot be told."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import xxhash
from PIL import Image

from skipstone_client.torch_arrays import to_array
from skipstone_denoise.model_profile import ModelProfile
from skipstone_shared.generation import MAX_SEED, GenerationParams
from skipstone_shared.latents import canonical_hash

_NOT_LATENTS = frozenset({"prompt", "generator", "output_type", "return_dict"})
"""Arguments that stand elsewhere in a request, or change nothing of its latents."""

_IN_PARAMS = frozenset(
    {
        "negative_prompt",
        "num_inference_steps",
        "guidance_scale",
        "height",
        "width",
        "num_frames",
    }
)
_OPAQUE = ("latents", "callback")
"""Begin the names of arguments that change latents in ways no key can tell: noise of the caller's
own, code of the caller's own."""


class NotCacheable(Exception):
    """A call that is made without the cache; the text says why."""


@dataclasses.dataclass(frozen=True, slots=True)
class CallSays:
    """What a call says.

    Attributes:
        prompt: The prompt.
        seed: Seed of its generator.
        params: The parameters that stand in a fingerprint, as far as the call gives them.
        hashes: All other arguments by name, hashed.
    """

    prompt: str
    seed: int
    params: GenerationParams
    hashes: tuple[str, ...]


def bound_arguments(
    pipeline: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a call by name.

    Raises:
        TypeError: the pipeline does not take them.
    """
    signature = inspect.signature(type(pipeline).__call__)
    bound = dict(signature.bind(pipeline, *args, **kwargs).arguments)
    bound.pop("self", None)
    return bound


def read_call(arguments: Mapping[str, Any], profile: ModelProfile, defaults: Any) -> CallSays:
    """Reads the arguments of a call.

    Args:
        arguments: By name; the generator is there.
        profile: The model.
        defaults: The pipeline class, for what the call does not give.

    Raises:
        NotCacheable: one of them cannot be told.
    """
    known = inspect.signature(defaults.__call__).parameters
    given = {
        name: value
        for name, value in arguments.items()
        if value is not None and not _equal(value, known.get(name))
    }
    for name in given:
        if name.startswith(_OPAQUE):
            raise NotCacheable(f"the call gives {name}")
    second = profile.second_guidance
    params = GenerationParams(
        prompt=_text(given.get("prompt"), "prompt"),
        negative_prompt=_text(given.get("negative_prompt", ""), "negative_prompt"),
        num_inference_steps=int(given.get("num_inference_steps", profile.default_steps)),
        guidance_scale=_number(given.get("guidance_scale", profile.default_guidance_scale)),
        guidance_scale_2=_number(given.get(second, profile.default_second_guidance)),
        height=int(given.get("height", profile.default_height)),
        width=int(given.get("width", profile.default_width)),
        num_frames=int(given.get("num_frames", profile.default_num_frames)),
    )
    others = sorted(given.keys() - _NOT_LATENTS - _IN_PARAMS - {second})
    hashes = tuple(f"{name}={argument_hash(given[name], name)}" for name in others)
    where = torch.device(arguments["generator"].device).type
    if where != "cpu":
        # The same seed is other noise there.
        hashes = (*hashes, f"generator={where}")
    return CallSays(params.prompt, fresh_seed(arguments["generator"]), params, hashes)


def fresh_seed(generator: Any) -> int:
    """The seed of a generator that nothing was drawn from yet.

    Raises:
        NotCacheable: it is none, or numbers were drawn: its seed does not tell the noise.
    """
    if not isinstance(generator, torch.Generator):
        raise NotCacheable("generator is not one torch.Generator")
    seed = generator.initial_seed()
    unused = torch.Generator(generator.device).manual_seed(seed)
    if not torch.equal(unused.get_state(), generator.get_state()):
        raise NotCacheable("numbers were drawn from the generator; give a fresh one with each call")
    return seed & MAX_SEED


def argument_hash(value: Any, name: str) -> str:
    """Hash of a plain value, an array, a tensor, a picture, or a list of these.

    Raises:
        NotCacheable: it is none of these.
    """
    if isinstance(value, Image.Image):
        return _digest(f"{value.mode}{value.size}", value.tobytes())
    if isinstance(value, torch.Tensor):
        value = to_array(value)
    if isinstance(value, np.ndarray):
        return _digest(f"{value.dtype}{value.shape}", np.ascontiguousarray(value).tobytes())
    if isinstance(value, list | tuple):
        return canonical_hash([argument_hash(item, name) for item in value])
    try:
        return canonical_hash(value)
    except (TypeError, ValueError):
        raise NotCacheable(f"{name} is a {type(value).__name__}") from None


def _digest(form: str, data: bytes) -> str:
    digest = xxhash.xxh3_128(form.encode())
    digest.update(data)
    return digest.hexdigest()


def _equal(value: Any, parameter: inspect.Parameter | None) -> bool:
    """Whether a plain value is the pipeline's own default."""
    if parameter is None or not isinstance(value, str | int | float | bool):
        return False
    return type(value) is type(parameter.default) and value == parameter.default


def _text(value: Any, name: str) -> str:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str):
        raise NotCacheable(f"{name} is not one text")
    return value


def _number(value: Any) -> float | None:
    if value is None or isinstance(value, int | float):
        return None if value is None else float(value)
    raise NotCacheable("a guidance scale is not one number")
