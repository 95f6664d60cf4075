"""What `generate` and `explain` may both be told of a request, on the command line."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Annotated, TypeVar

import typer

from skipstone_shared.generation import MAX_SEED
from skipstone_shared.orchestration import CacheMode, ReuseKind

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


PromptArgument = Annotated[str, typer.Argument(help="What to show.")]
StepsOption = Annotated[int | None, typer.Option("--steps", help="Denoising steps.")]
SeedOption = Annotated[
    int | None,
    typer.Option("--seed", help=f"Seed of the noise, 0 to {MAX_SEED}; none: a new one."),
]
GuidanceOption = Annotated[float | None, typer.Option("--guidance", help="Guidance scale.")]
HeightOption = Annotated[int | None, typer.Option("--height", help="Height in pixels.")]
WidthOption = Annotated[int | None, typer.Option("--width", help="Width in pixels.")]
NumFramesOption = Annotated[
    int | None, typer.Option("--num-frames", help="Frames, for video models.")
]
NegativePromptOption = Annotated[str, typer.Option("--negative-prompt", help="What to avoid.")]
CacheModeOption = Annotated[
    CacheMode | None,
    typer.Option(
        "--cache-mode",
        parser=one_of(CacheMode),
        metavar=_words(CacheMode),
        help="What the cache may do.",
    ),
]
MinSimilarityOption = Annotated[
    float | None,
    typer.Option("--min-similarity", help="Least similarity of a donor, 0 to 1; only raises."),
]
MaxSkipStepsOption = Annotated[
    int | None, typer.Option("--max-skip-steps", help="Most steps to skip; only lowers.")
]
ReuseKindOption = Annotated[
    ReuseKind | None,
    typer.Option(
        "--reuse-kind",
        parser=one_of(ReuseKind),
        metavar=_words(ReuseKind),
        help="How a donor's latent is used.",
    ),
]
ReproducibleOption = Annotated[
    bool, typer.Option("--reproducible", help="Only what a full run gives: exact hit or miss.")
]
DonorChoicesOption = Annotated[
    int | None,
    typer.Option("--donor-choices", help="Draw the donor among this many of the best; 1: none."),
]
DonorMarginOption = Annotated[
    float | None,
    typer.Option("--donor-margin", help="Most that the score of a drawn donor may lie below."),
]
