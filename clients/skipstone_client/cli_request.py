"""What `generate` and `explain` may both be told of a request, on the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from skipstone_shared.orchestration import CacheMode, ReuseKind

PromptArgument = Annotated[str, typer.Argument(help="What to show.")]
StepsOption = Annotated[int | None, typer.Option("--steps", help="Denoising steps.")]
SeedOption = Annotated[
    int | None, typer.Option("--seed", help="Seed of the noise; none: a new one.")
]
GuidanceOption = Annotated[float | None, typer.Option("--guidance", help="Guidance scale.")]
HeightOption = Annotated[int | None, typer.Option("--height", help="Height in pixels.")]
WidthOption = Annotated[int | None, typer.Option("--width", help="Width in pixels.")]
NumFramesOption = Annotated[
    int | None, typer.Option("--num-frames", help="Frames, for video models.")
]
NegativePromptOption = Annotated[str, typer.Option("--negative-prompt", help="What to avoid.")]
CacheModeOption = Annotated[
    CacheMode | None, typer.Option("--cache-mode", help="What the cache may do.")
]
MinSimilarityOption = Annotated[
    float | None,
    typer.Option("--min-similarity", help="Least similarity of a donor, 0 to 1; only raises."),
]
MaxSkipStepsOption = Annotated[
    int | None, typer.Option("--max-skip-steps", help="Most steps to skip; only lowers.")
]
ReuseKindOption = Annotated[
    ReuseKind | None, typer.Option("--reuse-kind", help="How a donor's latent is used.")
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
