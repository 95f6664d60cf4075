"""What callers may ask for, in the names of OpenAI's API and in Skipstone's own."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from skipstone_gateway.http_errors import invalid
from skipstone_shared.block_cache_json import parse_block_cache
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import (
    MAX_PROMPT_BYTES,
    MAX_SEED,
    AdapterSelection,
    GenerationParams,
    ReferenceInput,
    VideoFormat,
)
from skipstone_shared.orchestration import CacheMode, CacheOptions, ReuseKind

ModelT = TypeVar("ModelT", bound=BaseModel)

MAX_PICTURES = 10

_SIZE = re.compile(r"(\d{1,5})x(\d{1,5})")


class Size(NamedTuple):
    """Pixels; None takes the model's default."""

    width: int | None
    height: int | None


class RequestBody(BaseModel):
    """A body whose fields are all known: a misspelt option must not silently do nothing."""

    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=())

    @model_validator(mode="after")
    def _known_fields_only(self) -> Self:
        for name in self.model_extra or ():
            raise PydanticCustomError(
                "extra_forbidden", "not known: {name}", {"name": name, "known": known(type(self))}
            )
        return self


def known(model: type[BaseModel]) -> list[str]:
    """Names that a body may have."""
    return sorted(model.model_fields)


class Options(RequestBody):
    """Skipstone's own options of a generation: the object `skipstone` of a request."""

    namespace: str = ""
    seed: Annotated[int | None, Field(ge=0, le=MAX_SEED)] = None
    negative_prompt: Annotated[str, Field(max_length=MAX_PROMPT_BYTES)] = ""
    steps: Annotated[int | None, Field(ge=1)] = None
    guidance_scale: float | None = None
    guidance_scale_2: float | None = None
    shift: float | None = None
    num_frames: Annotated[int | None, Field(ge=1)] = None
    video_format: VideoFormat | None = None
    adapters: dict[str, float] = Field(default_factory=dict)
    block_cache: str | dict[str, Any] | None = None
    cache_mode: CacheMode | None = None
    allow_exact: bool | None = None
    allow_approximate: bool | None = None
    min_similarity: float | None = None
    max_skip_steps: Annotated[int | None, Field(ge=0)] = None
    reproducible: bool = False
    reuse_kind: ReuseKind | None = None
    donor_choices: Annotated[int | None, Field(ge=1)] = None

    def cache(self) -> CacheOptions:
        """How the cache is used."""
        return CacheOptions(
            mode=self.cache_mode,
            allow_exact=self.allow_exact,
            allow_approximate=self.allow_approximate,
            min_similarity=self.min_similarity,
            max_skip_steps=self.max_skip_steps,
            reproducible=self.reproducible,
            reuse_kind=self.reuse_kind,
            donor_choices=self.donor_choices,
        )

    def params(
        self, prompt: str, size: str, number: int = 0, references: tuple[ReferenceInput, ...] = ()
    ) -> GenerationParams:
        """The parameters of one generation.

        Args:
            prompt: What to show.
            size: `WIDTHxHEIGHT` or `auto`.
            number: Which one of several of a request; each has the next seed.
            references: Pictures that condition it.

        Raises:
            InvalidArgument: The size or the block cache is not one.
        """
        width, height = parsed_size(size)
        return GenerationParams(
            prompt,
            negative_prompt=self.negative_prompt,
            num_inference_steps=self.steps,
            guidance_scale=self.guidance_scale,
            guidance_scale_2=self.guidance_scale_2,
            height=height,
            width=width,
            num_frames=self.num_frames,
            video_format=self.video_format,
            seed=None if self.seed is None else (self.seed + number) % (MAX_SEED + 1),
            reference_inputs=references,
            adapters=tuple(AdapterSelection(n, scale) for n, scale in self.adapters.items()),
            block_cache=None if self.block_cache is None else parse_block_cache(self.block_cache),
            shift=self.shift,
        )


class ImageRequest(RequestBody):
    """Body of `POST /v1/images/generations`.

    `quality`, `style`, `background`, `moderation`, `output_compression` and `user` are taken and
    change nothing: clients send them by habit.
    """

    prompt: Annotated[str, Field(min_length=1, max_length=MAX_PROMPT_BYTES)]
    model: str = ""
    n: Annotated[int, Field(ge=1, le=MAX_PICTURES)] = 1
    size: str = "auto"
    response_format: Literal["b64_json", "url"] = "b64_json"
    output_format: Literal["png"] = "png"
    stream: bool = False
    partial_images: Annotated[int, Field(ge=0, le=3)] = 0
    quality: str | None = None
    style: str | None = None
    background: str | None = None
    moderation: str | None = None
    output_compression: int | None = None
    user: str | None = None
    skipstone: Options = Field(default_factory=Options)


class VideoRequest(RequestBody):
    """Body of `POST /v1/videos`, as JSON or as a form."""

    prompt: Annotated[str, Field(min_length=1, max_length=MAX_PROMPT_BYTES)]
    model: str = ""
    size: str = "auto"
    seconds: Annotated[float | None, Field(gt=0.0, le=600.0)] = None
    skipstone: Options = Field(default_factory=Options)


class ExplainRequest(RequestBody):
    """Body of `POST /api/explain`."""

    prompt: Annotated[str, Field(min_length=1, max_length=MAX_PROMPT_BYTES)]
    size: str = "auto"
    skipstone: Options = Field(default_factory=Options)


def parsed_size(size: str) -> Size:
    """Width and height of a size as OpenAI writes it.

    Raises:
        InvalidArgument: It is none.
    """
    if size == "auto":
        return Size(None, None)
    match = _SIZE.fullmatch(size)
    if match is None:
        raise InvalidArgument(
            f"{size!r} is no size", field="size", allowed="auto, or WIDTHxHEIGHT such as 1024x1024"
        )
    return Size(int(match[1]), int(match[2]))


def parsed(model: type[ModelT], body: object) -> ModelT:
    """A body that did not come through FastAPI.

    Raises:
        InvalidArgument: It is not what the model says; names the field.
    """
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise invalid(error.errors()) from None
