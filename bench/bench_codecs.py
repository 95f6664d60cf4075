"""Codecs of latent_kv: bytes and error of each, on latents of the bundled model.

Measures, per codec and kind of snapshot (early, middle, clean), the relative L2 error of the
latents that are read, their bytes over those written, and for clean ones the PSNR of the picture
decoded from them against the one decoded from the latents as they were. The rival is `lossless`.
Prints one JSON line per figure.
"""

from __future__ import annotations

import argparse
import json
import statistics
from typing import Any, Final, get_args

import numpy as np
import numpy.typing as npt
import torch
from diffusers import DiffusionPipeline

from blockcache.pictures import FOLDER, prompts
from skipstone_client.block_cache_sweep.drift import drift_between
from skipstone_latent_kv.latent_codec import CodecName, decode, encode
from skipstone_shared.tensor_messages import Array, array_bytes, arrays_from_parts, parts_of

STEPS: Final = 30
GUIDANCE: Final = 3.0
Floats = npt.NDArray[np.float32]

KINDS: Final = {"early": 5, "middle": 15, "clean": STEPS}
"""Step that the snapshot enters."""


def main() -> None:
    """Runs all codecs on the latents of some prompts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=8, help="runs whose latents are measured")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    pipeline = DiffusionPipeline.from_pretrained(FOLDER)
    pipeline.set_progress_bar_config(disable=True)
    runs = [snapshots(pipeline, text, seed) for seed, text in enumerate(prompts(arguments.prompts))]
    for codec in get_args(CodecName):
        for kind in KINDS:
            show(pipeline, codec, kind, [run[kind] for run in runs])


def snapshots(pipeline: Any, prompt: str, seed: int) -> dict[str, Array]:
    """The latents of one run that enter the steps of `KINDS`."""
    kept: dict[int, Array] = {}

    def keep(_: Any, step: int, __: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        kept[step + 1] = tensors["latents"].numpy().copy()
        return tensors

    pipeline(
        prompt,
        num_inference_steps=STEPS,
        guidance_scale=GUIDANCE,
        generator=torch.Generator().manual_seed(seed),
        callback_on_step_end=keep,
        output_type="latent",
    )
    return {kind: kept[step] for kind, step in KINDS.items()}


def show(pipeline: Any, codec: CodecName, kind: str, arrays: list[Array]) -> None:
    """Prints the figures of one codec on one kind of snapshot."""
    sizes, errors, psnrs = [], [], []
    for array in arrays:
        parts = parts_of({"latents": array})
        encoded = encode(memoryview(array_bytes(array)), parts, codec)
        read = arrays_from_parts(decode(encoded, parts), parts)["latents"]
        sizes.append(len(encoded) / array.nbytes)
        exact = array.astype(np.float64)
        errors.append(
            float(np.linalg.norm(read.astype(np.float64) - exact) / np.linalg.norm(exact))
        )
        if kind == "clean" and errors[-1]:
            drift = drift_between(picture(pipeline, array), picture(pipeline, read))
            psnrs.append(drift.psnr_db)
    figures = {"bytes_over_lossless": sizes, "relative_l2_error": errors, "picture_psnr_db": psnrs}
    for figure, values in figures.items():
        if values:
            line = {"figure": figure, "codec": codec, "snapshot": kind, "n": len(values)}
            line |= {"median": float(f"{statistics.median(values):.4g}")}
            print(json.dumps(line | {"worst": worst(figure, values)}), flush=True)


def worst(figure: str, values: list[float]) -> float:
    """The worst of some values: the lowest PSNR, the highest of all else."""
    value = min(values) if figure == "picture_psnr_db" else max(values)
    return float(f"{value:.4g}")


@torch.no_grad()
def picture(pipeline: Any, latents: Array) -> Floats:
    """The picture of clean latents, values 0 to 255."""
    scaled = torch.from_numpy(np.array(latents)) / pipeline.vae.config.scaling_factor
    decoded = pipeline.vae.decode(scaled).sample / 2 + 0.5
    pixels: Floats = (255.0 * decoded.clip(0.0, 1.0)).numpy()
    return pixels


if __name__ == "__main__":
    main()
