"""Measures a model folder on captions whose attribute combinations were never trained on.

    PYTHONPATH=models python -m skipstone_bundled.evaluate models/skipstone-scenes

Prints one JSON line: the share of objects with right colour and place, with right shape too, with
right size, and of pictures with right background, number of objects, and everything.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import DiffusionPipeline
from PIL import Image

from skipstone_bundled.captions import random_wording, read_caption, write_caption
from skipstone_bundled.checker import SceneCheck, check_scene
from skipstone_bundled.scenes import held_out_scenes, is_held_out

HELD_OUT_COUNT: Final = 200
HELD_OUT_SEED: Final = 2026
HELD_OUT_FILE: Final = Path(__file__).parent / "held_out_captions.txt"


def held_out_captions() -> list[str]:
    """Returns 200 captions with at least one held-out object each; always the same."""
    rng = random.Random(HELD_OUT_SEED)
    scenes = held_out_scenes(HELD_OUT_COUNT, HELD_OUT_SEED)
    return [write_caption(scene, random_wording(rng)) for scene in scenes]


def generate(
    pipeline: Any, captions: Sequence[str], steps: int, guidance_scale: float, seed: int = 0
) -> list[Image.Image]:
    """Makes one picture per caption, one after the other, caption i with seed `seed + i`."""
    pictures = []
    for index, caption in enumerate(captions):
        result = pipeline(
            caption,
            num_inference_steps=steps,
            guidance_scale=guidance_scale,
            generator=torch.Generator().manual_seed(seed + index),
        )
        pictures.append(result.images[0])
    return pictures


def shares(captions: Sequence[str], checks: Sequence[SceneCheck]) -> dict[str, float]:
    """Returns the share of objects and of pictures with each attribute right, 0 to 1."""
    objects = [item for check in checks for item in check.objects]
    expected = [item for caption in captions for item in read_caption(caption).objects]
    unseen = [item for item, scene in zip(objects, expected, strict=True) if is_held_out(scene)]
    return {
        "colour_and_place": _share([item.colour_and_place for item in objects]),
        "colour_place_and_shape": _share([item.colour_place_and_shape for item in objects]),
        "shape": _share([item.shape for item in objects]),
        "size": _share([item.size for item in objects]),
        "held_out_colour_and_place": _share([item.colour_and_place for item in unseen]),
        "held_out_colour_place_and_shape": _share([item.colour_place_and_shape for item in unseen]),
        "background": _share([check.background for check in checks]),
        "count": _share([check.count for check in checks]),
        "everything": _share([check.everything for check in checks]),
    }


def main() -> None:
    """Measures the folder named on the command line."""
    parser = argparse.ArgumentParser(description="Measures the bundled model.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--guidance", type=float, default=3.0)
    parser.add_argument("--count", type=int, default=HELD_OUT_COUNT)
    parser.add_argument("--sheet", type=Path, help="writes the first 40 pictures as one picture")
    arguments = parser.parse_args()
    pipeline = DiffusionPipeline.from_pretrained(arguments.folder)
    pipeline.set_progress_bar_config(disable=True)
    captions = held_out_captions()[: arguments.count]
    started = time.monotonic()
    pictures = generate(pipeline, captions, arguments.steps, arguments.guidance)
    seconds = (time.monotonic() - started) / len(pictures)
    checks = [
        check_scene(picture, read_caption(caption))
        for picture, caption in zip(pictures, captions, strict=True)
    ]
    figures: dict[str, Any] = {
        "captions": len(captions),
        "steps": arguments.steps,
        "guidance_scale": arguments.guidance,
        "seconds_per_picture": round(seconds, 3),
        **shares(captions, checks),
    }
    print(json.dumps(figures))
    if arguments.sheet:
        contact_sheet(pictures[:40]).save(arguments.sheet)


def contact_sheet(pictures: Sequence[Image.Image], columns: int = 8, zoom: int = 2) -> Image.Image:
    """Puts pictures of one size side by side, row by row, enlarged without smoothing."""
    width, height = (side * zoom for side in pictures[0].size)
    rows = -(-len(pictures) // columns)
    sheet = Image.new("RGB", (columns * (width + 2), rows * (height + 2)))
    for index, picture in enumerate(pictures):
        corner = (index % columns * (width + 2), index // columns * (height + 2))
        sheet.paste(picture.resize((width, height), Image.Resampling.NEAREST), corner)
    return sheet


def _share(values: Sequence[bool]) -> float:
    return round(sum(values) / len(values), 4) if values else 0.0


if __name__ == "__main__":
    main()
