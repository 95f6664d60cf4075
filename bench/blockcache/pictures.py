"""The bundled model: its runs under any transformer, and drift in its pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from diffusers import DiffusionPipeline
from torch import Tensor, nn

from skipstone_bundled.evaluate import HELD_OUT_FILE
from skipstone_client.block_cache_sweep.drift import drift_between

FOLDER: Final = Path("models/skipstone-scenes")
GUIDANCE_SCALE: Final = 3.0


class BundledModel:
    """The bundled pipeline, whose transformer is replaced for one run at a time."""

    name = "skipstone-scenes"

    def __init__(self) -> None:
        """Loads it."""
        self._pipeline = DiffusionPipeline.from_pretrained(FOLDER)
        self._pipeline.set_progress_bar_config(disable=True)
        self.transformer: nn.Module = self._pipeline.transformer
        self.blocks = len(self._pipeline.transformer.transformer_blocks)

    def latents(
        self,
        transformer: nn.Module,
        prompt: str,
        steps: int,
        seed: int,
        begin_step: Callable[[int], None] = lambda step_index: None,
    ) -> Tensor:
        """Returns the final latents of a run, `(1, 4, 32, 32)`.

        Args:
            transformer: What runs: the pipeline's own transformer or a cached one.
            prompt: What to show.
            steps: Denoising steps.
            seed: Of the first noise.
            begin_step: Told the step index before each step.
        """
        parts = {**self._pipeline.components, "transformer": transformer}
        pipeline: Any = type(self._pipeline)(**parts)
        pipeline.set_progress_bar_config(disable=True)

        def next_step(_pipeline: Any, step_index: int, _timestep: Any, inputs: Any) -> Any:
            begin_step(step_index + 1)
            return inputs

        begin_step(0)
        latents: Tensor = pipeline(
            prompt,
            num_inference_steps=steps,
            guidance_scale=GUIDANCE_SCALE,
            generator=torch.Generator().manual_seed(seed),
            output_type="latent",
            callback_on_step_end=next_step,
        ).images
        return latents

    def picture(self, latents: Tensor) -> np.ndarray:
        """Decodes latents to `(64, 64, 3)`, float, 0 to 255, rounded as a picture file is."""
        vae = self._pipeline.vae
        with torch.inference_mode():
            decoded = vae.decode(latents / vae.config.scaling_factor, return_dict=False)[0]
        image = self._pipeline.image_processor.postprocess(decoded, output_type="np")[0]
        return np.round(np.asarray(image) * 255.0)


def prompts(count: int) -> list[str]:
    """Returns captions whose combinations of attributes the model was never trained on."""
    return HELD_OUT_FILE.read_text().splitlines()[:count]


def psnr_db(picture: np.ndarray, reference: np.ndarray) -> float:
    """Returns the peak signal-to-noise ratio; 99 for equal pictures."""
    return min(99.0, drift_between(reference, picture).psnr_db)


def relative_l1(latents: Sequence[Tensor], references: Sequence[Tensor]) -> list[float]:
    """Returns `mean|x - full| / mean|full|` of each pair."""
    return [
        float((mine - full).abs().mean() / full.abs().mean())
        for mine, full in zip(latents, references, strict=True)
    ]
