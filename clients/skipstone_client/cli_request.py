"""What `generate`, `explain` and `warm` may be told of a request, on the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from skipstone_client.cli_block_cache import BlockCacheOption, block_cache_config
from skipstone_client.json_values import plain
from skipstone_client.reference_files import ReferenceFile, ReferenceFiles, check_together
from skipstone_client.request_texts import adapter_of, key_steps_of
from skipstone_shared.generation import (
    MAX_SEED,
    GenerationParams,
    ReferenceRole,
    VideoFormat,
)
from skipstone_shared.orchestration import CacheMode, CacheOptions, ReuseKind

EnumT = TypeVar("EnumT", bound=Enum)


def one_of(kind: type[EnumT]) -> Callable[[str], EnumT]:
    """Reads a word as a value of an enum; what is none is refused with those there are."""

    def read(word: str) -> EnumT:
        try:
            return kind(word)
        except ValueError:
            known = ", ".join(value.value for value in kind)
            raise typer.BadParameter(f"{word!r} is none of {known}") from None

    return read


def _words(kind: type[Enum]) -> str:
    return f"[{'|'.join(value.value for value in kind)}]"


def told_options(*groups: Any) -> dict[str, Any]:
    """What was said on the command line, under the names of its options, as JSON has it."""
    return {
        field.name: plain(getattr(group, field.name))
        for group in groups
        for field in dataclasses.fields(group)
        if getattr(group, field.name) != field.default
    }


PromptArgument = Annotated[str, typer.Argument(help="What to show.")]
SeedOption = Annotated[
    int | None,
    typer.Option("--seed", help=f"Seed of the noise, 0 to {MAX_SEED}; none: a new one."),
]
KeyStepsOption = Annotated[
    str,
    typer.Option(
        "--key-steps", metavar="STEPS", help="Steps whose latents are stored, such as 5,10,15."
    ),
]


@dataclasses.dataclass(frozen=True, slots=True)
class RequestOptions:
    """What to generate, beside its prompt and seed."""

    steps: Annotated[int | None, typer.Option("--steps", help="Denoising steps.")] = None
    guidance: Annotated[float | None, typer.Option("--guidance", help="Guidance scale.")] = None
    guidance_2: Annotated[
        float | None,
        typer.Option(
            "--guidance-2",
            help="Second guidance scale: of Wan2.2's second expert, or Qwen-Image's true CFG.",
        ),
    ] = None
    height: Annotated[int | None, typer.Option("--height", help="Height in pixels.")] = None
    width: Annotated[int | None, typer.Option("--width", help="Width in pixels.")] = None
    num_frames: Annotated[
        int | None, typer.Option("--num-frames", help="Frames, for video models.")
    ] = None
    video_format: Annotated[
        VideoFormat | None,
        typer.Option("--video-format", help="What a video is sent as; gif is for previews."),
    ] = None
    shift: Annotated[
        float | None, typer.Option("--shift", help="Timestep shift of the scheduler.")
    ] = None
    negative_prompt: Annotated[str, typer.Option("--negative-prompt", help="What to avoid.")] = ""
    image: Annotated[
        list[Path] | None,
        typer.Option(
            "--image", metavar="PATH", help="Picture to start from: PNG or JPEG, up to 3 MiB."
        ),
    ] = None
    mask: Annotated[
        Path | None, typer.Option("--mask", help="Mask of an inpainting, likewise.")
    ] = None
    last_frame: Annotated[
        Path | None, typer.Option("--last-frame", help="Last frame of a video, likewise.")
    ] = None
    adapter: Annotated[
        list[str] | None,
        typer.Option(
            "--adapter",
            metavar="NAME[=SCALE]",
            help="Adapter that the executor has loaded; repeat it for several, in order.",
        ),
    ] = None
    block_cache: BlockCacheOption = None

    def params(self, prompt: str, seed: int | None) -> GenerationParams:
        """The parameters of a generation, without its files.

        Raises:
            InvalidArgument: A text cannot be read; names its option.
        """
        return GenerationParams(
            prompt=prompt,
            negative_prompt=self.negative_prompt,
            num_inference_steps=self.steps,
            guidance_scale=self.guidance,
            guidance_scale_2=self.guidance_2,
            height=self.height,
            width=self.width,
            num_frames=self.num_frames,
            seed=seed,
            video_format=self.video_format,
            adapters=tuple(adapter_of(text, "--adapter") for text in self.adapter or ()),
            block_cache=block_cache_config(self.block_cache),
            shift=self.shift,
        )

    def references(self) -> tuple[ReferenceFile, ...]:
        """The files that condition a generation.

        Raises:
            InvalidArgument: One cannot be used; names its option.
        """
        files = ReferenceFiles()
        named = [(ReferenceRole.IMAGE, path, "--image") for path in self.image or ()]
        if self.mask is not None:
            named.append((ReferenceRole.MASK, self.mask, "--mask"))
        if self.last_frame is not None:
            named.append((ReferenceRole.LAST_FRAME, self.last_frame, "--last-frame"))
        found = tuple(files.look_at(*name) for name in named)
        check_together(found, "--image")
        return found

    def whole_params(self, prompt: str, seed: int | None) -> GenerationParams:
        """The parameters of a generation, with its files.

        Raises:
            InvalidArgument: A text or a file cannot be used; names its option.
        """
        inputs = tuple(file.read() for file in self.references())
        return dataclasses.replace(self.params(prompt, seed), reference_inputs=inputs)


@dataclasses.dataclass(frozen=True, slots=True)
class CacheChoices:
    """How the cache is used."""

    cache_mode: Annotated[
        CacheMode | None,
        typer.Option(
            "--cache-mode",
            parser=one_of(CacheMode),
            metavar=_words(CacheMode),
            help="What the cache may do.",
        ),
    ] = None
    exact: Annotated[
        bool | None, typer.Option("--exact/--no-exact", help="Whether a stored result may answer.")
    ] = None
    approximate: Annotated[
        bool | None,
        typer.Option("--approximate/--no-approximate", help="Whether it may start from a donor."),
    ] = None
    min_similarity: Annotated[
        float | None,
        typer.Option("--min-similarity", help="Least similarity of a donor, 0 to 1; only raises."),
    ] = None
    max_skip_steps: Annotated[
        int | None, typer.Option("--max-skip-steps", help="Most steps to skip; only lowers.")
    ] = None
    key_steps: KeyStepsOption = ""
    top_k: Annotated[int | None, typer.Option("--top-k", help="Candidates to look at.")] = None
    reuse_kind: Annotated[
        ReuseKind | None,
        typer.Option(
            "--reuse-kind",
            parser=one_of(ReuseKind),
            metavar=_words(ReuseKind),
            help="How a donor's latent is used.",
        ),
    ] = None
    reproducible: Annotated[
        bool, typer.Option("--reproducible", help="Only what a full run gives: exact hit or miss.")
    ] = False
    donor_choices: Annotated[
        int | None,
        typer.Option(
            "--donor-choices", help="Draw the donor among this many of the best; 1: none."
        ),
    ] = None
    donor_margin: Annotated[
        float | None,
        typer.Option("--donor-margin", help="Most that the score of a drawn donor may lie below."),
    ] = None

    def options(self) -> CacheOptions:
        """The same as a request has it.

        Raises:
            InvalidArgument: A text cannot be read; names its option.
        """
        return CacheOptions(
            mode=self.cache_mode,
            allow_exact=self.exact,
            allow_approximate=self.approximate,
            min_similarity=self.min_similarity,
            max_skip_steps=self.max_skip_steps,
            key_steps=key_steps_of(self.key_steps, "--key-steps"),
            top_k=self.top_k,
            reproducible=self.reproducible,
            reuse_kind=self.reuse_kind,
            donor_choices=self.donor_choices,
            donor_margin=self.donor_margin,
        )
