"""The columns of a file of prompts: what one row may say, under the names of the options."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)

from skipstone_client.artifact_names import MAX_STEM_BYTES
from skipstone_client.json_values import plain
from skipstone_client.request_texts import adapter_of, key_steps_of
from skipstone_shared.block_cache_json import block_cache_from_text, parse_block_cache
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import (
    MAX_SEED,
    AdapterSelection,
    BlockCacheConfig,
    GenerationParams,
    ReferenceRole,
    VideoFormat,
)
from skipstone_shared.orchestration import CacheMode, CacheOptions, ReuseKind

T = TypeVar("T")


def read_columns(fields: Mapping[str, Any]) -> AskedRow:
    """Checks what a row says.

    Raises:
        InvalidArgument: An unknown column or an impossible value; names it and what is allowed.
    """
    try:
        return AskedRow.model_validate(fields)
    except ValidationError as error:
        raise InvalidArgument(_told(error)) from None


def _told(error: ValidationError) -> str:
    first = error.errors()[0]
    name = str(first["loc"][0])
    if first["type"] != "extra_forbidden":
        return f"{name}: {first['msg'].removeprefix('Value error, ')}"
    near = difflib.get_close_matches(name, AskedRow.model_fields, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(AskedRow.model_fields)}"
    return f"{name} is no column; {hint}"


def _as_value_error(read: Callable[[Any], T]) -> Callable[[Any], T]:
    def checked(value: Any) -> T:
        try:
            return read(value)
        except InvalidArgument as error:
            raise ValueError(str(error)) from None

    return checked


def _no_switch(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("is a number, not true or false")  # pydantic would take it for 1 or 0
    return value


def _short_enough(name: str) -> str:
    size = len(name.encode())
    if size > MAX_STEM_BYTES:
        raise ValueError(f"has {size} bytes in UTF-8 (allowed: up to {MAX_STEM_BYTES})")
    return name


def _paths(value: object) -> object:
    return [value] if isinstance(value, str) else value


@_as_value_error
def _adapters(value: Any) -> tuple[AdapterSelection, ...]:
    if isinstance(value, Mapping):
        value = [f"{name}={scale}" for name, scale in value.items()]
    texts = value.split(",") if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError("is neither a text, a list of texts nor an object of scales")
    return tuple(adapter_of(text, "adapter") for text in texts)


@_as_value_error
def _key_steps(value: Any) -> object:
    if isinstance(value, str):
        return key_steps_of(value, "key_steps")
    return [value] if isinstance(value, int) else value


@_as_value_error
def _block_cache(value: Any) -> BlockCacheConfig:
    if isinstance(value, Mapping):
        return parse_block_cache(value)
    return block_cache_from_text(str(value))


_Int = Annotated[int, BeforeValidator(_no_switch)]
_Float = Annotated[float, BeforeValidator(_no_switch)]
_Paths = Annotated[list[str], BeforeValidator(_paths)]
_Adapters = Annotated[tuple[AdapterSelection, ...], BeforeValidator(_adapters)]
_KeySteps = Annotated[tuple[_Int, ...], BeforeValidator(_key_steps)]
_Name = Annotated[str, Field(pattern=r"^[\w][\w.-]*$"), AfterValidator(_short_enough)]


class AskedRow(BaseModel):
    """What a row says; None where it says nothing."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    prompt: str = Field(min_length=1)
    name: _Name | None = None
    negative_prompt: str | None = None
    steps: _Int | None = Field(None, validation_alias=AliasChoices("steps", "num_inference_steps"))
    guidance: _Float | None = Field(
        None, validation_alias=AliasChoices("guidance", "guidance_scale")
    )
    guidance_2: _Float | None = Field(
        None, validation_alias=AliasChoices("guidance_2", "guidance_scale_2")
    )
    height: _Int | None = None
    width: _Int | None = None
    num_frames: _Int | None = None
    video_format: VideoFormat | None = None
    seed: Annotated[_Int, Field(ge=0, le=MAX_SEED)] | None = None
    shift: _Float | None = None
    image: _Paths | None = None
    mask: str | None = None
    last_frame: str | None = None
    adapter: _Adapters | None = Field(None, validation_alias=AliasChoices("adapter", "adapters"))
    cache_config: Annotated[BlockCacheConfig, BeforeValidator(_block_cache)] | None = Field(
        None, validation_alias=AliasChoices("cache_config", "block_cache")
    )
    cache_mode: CacheMode | None = None
    exact: bool | None = Field(None, validation_alias=AliasChoices("exact", "allow_exact"))
    approximate: bool | None = Field(
        None, validation_alias=AliasChoices("approximate", "allow_approximate")
    )
    min_similarity: _Float | None = None
    max_skip_steps: _Int | None = None
    key_steps: _KeySteps | None = None
    top_k: _Int | None = None
    reuse_kind: ReuseKind | None = None
    reproducible: bool | None = None
    donor_choices: _Int | None = None
    donor_margin: _Float | None = None

    def told(self) -> dict[str, Any]:
        """What the row says, but for its files: as JSON has it."""
        said = self.model_dump(exclude_none=True, exclude={"image", "mask", "last_frame"})
        return {name: plain(value) for name, value in said.items()}

    def files(self) -> dict[ReferenceRole, list[str]]:
        """Names of its files by role, of the roles that it speaks of."""
        said = {
            ReferenceRole.IMAGE: self.image,
            ReferenceRole.MASK: None if self.mask is None else [self.mask],
            ReferenceRole.LAST_FRAME: None if self.last_frame is None else [self.last_frame],
        }
        return {role: names for role, names in said.items() if names is not None}

    def params(self, others: GenerationParams) -> GenerationParams:
        """What to generate, with what the row does not say taken from others."""
        changes: dict[str, Any] = {
            "negative_prompt": self.negative_prompt,
            "num_inference_steps": self.steps,
            "guidance_scale": self.guidance,
            "guidance_scale_2": self.guidance_2,
            "height": self.height,
            "width": self.width,
            "num_frames": self.num_frames,
            "video_format": self.video_format,
            "seed": self.seed,
            "shift": self.shift,
            "adapters": self.adapter,
            "block_cache": self.cache_config,
        }
        return dataclasses.replace(others, prompt=self.prompt, **_said(changes))

    def cache(self, others: CacheOptions) -> CacheOptions:
        """How to use the cache, likewise."""
        changes: dict[str, Any] = {
            "mode": self.cache_mode,
            "allow_exact": self.exact,
            "allow_approximate": self.approximate,
            "min_similarity": self.min_similarity,
            "max_skip_steps": self.max_skip_steps,
            "key_steps": self.key_steps,
            "top_k": self.top_k,
            "reuse_kind": self.reuse_kind,
            "reproducible": self.reproducible,
            "donor_choices": self.donor_choices,
            "donor_margin": self.donor_margin,
        }
        return dataclasses.replace(others, **_said(changes))


def _said(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
