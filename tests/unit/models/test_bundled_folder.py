"""The committed model folder: loads offline as it is, small, in one precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skipstone_bundled.evaluate import HELD_OUT_COUNT, HELD_OUT_FILE, held_out_captions

FOLDER = Path(__file__).parents[3] / "models" / "skipstone-scenes"
PROMPT = "a large red circle on the left on a gray background"


@pytest.fixture(scope="module")
def pipeline() -> Any:
    """The pipeline, loaded as every user loads it."""
    from diffusers import DiffusionPipeline

    loaded = DiffusionPipeline.from_pretrained(FOLDER, local_files_only=True)
    loaded.set_progress_bar_config(disable=True)
    return loaded


def draw(pipeline: Any, prompt: str, seed: int = 0, **options: Any) -> np.ndarray[Any, Any]:
    """Draws with 4 steps, `(64, 64, 3)`, float32, 0 to 1."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    result = pipeline(
        prompt, num_inference_steps=4, generator=generator, output_type="np", **options
    )
    picture: np.ndarray[Any, Any] = result.images[0]
    return picture


def test_the_folder_stays_under_its_size_limit() -> None:
    size = sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file())
    assert size <= 16 * 2**20


def test_all_parts_load_as_float32_and_there_are_eight_blocks(pipeline: Any) -> None:
    import torch

    parts = (pipeline.text_encoder, pipeline.transformer, pipeline.vae)
    assert {part.dtype for part in parts} == {torch.float32}
    assert len(pipeline.transformer.transformer_blocks) >= 8


def test_equal_seeds_give_equal_pictures_and_others_do_not(pipeline: Any) -> None:
    first = draw(pipeline, PROMPT)
    assert first.shape == (64, 64, 3)
    assert np.array_equal(first, draw(pipeline, PROMPT))
    assert not np.array_equal(first, draw(pipeline, PROMPT, seed=1))


def test_prompt_and_guidance_both_matter(pipeline: Any) -> None:
    first = draw(pipeline, PROMPT)
    assert not np.array_equal(first, draw(pipeline, PROMPT.replace("red", "blue")))
    assert not np.array_equal(first, draw(pipeline, PROMPT, guidance_scale=1.0))


def test_the_held_out_captions_in_the_file_are_those_that_are_measured() -> None:
    captions = HELD_OUT_FILE.read_text().splitlines()
    assert len(captions) == HELD_OUT_COUNT
    assert captions == held_out_captions()
