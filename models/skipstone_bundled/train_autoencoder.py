"""Trains the autoencoder: 64x64 pixels to latents `(4, 32, 32)` and back.

The result is standardised: every latent channel has mean 0 and standard deviation 1 over training
pictures. The change of scale is folded into the 1x1 convolutions between the latents and the rest
(`quant_conv`, `post_quant_conv`), because the pipeline knows one `scaling_factor` for all channels
only.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

import numpy as np
import torch
from diffusers import AutoencoderKL
from torch import Tensor, nn

from skipstone_bundled.averaging import GradientAverage, count_parameters, run_workers
from skipstone_bundled.checkpoints import (
    TimeBudget,
    learning_rate_factor,
    load_checkpoint,
    save_checkpoint,
)
from skipstone_bundled.drawing import PICTURE_SIZE, draw_scene
from skipstone_bundled.scenes import Scene, training_scenes

LATENT_CHANNELS: Final = 4
_BATCH = 8  # of each worker
_LEARNING_RATE = 1.5e-3
_WARMUP_UPDATES = 50
# Weight of the Kullback-Leibler term per latent value against the error per pixel value: latents
# stay smooth and near a normal distribution, at a cost too small to see in the pictures.
_KL_WEIGHT = 1e-6
_CHECKPOINT_EVERY = 250
_OBJECT_CONTRAST = 0.25  # of the range -1 to 1; the light of the background stays below
_OBJECT_WEIGHT = 4.0

_log = logging.getLogger(__name__)


def build_autoencoder() -> AutoencoderKL:
    """Returns the autoencoder with random weights (0.66 M parameters)."""
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(16, 32),
        layers_per_block=1,
        latent_channels=LATENT_CHANNELS,
        norm_num_groups=8,
        sample_size=PICTURE_SIZE,
        scaling_factor=1.0,
        mid_block_add_attention=False,
    )


def draw_batch(scenes: Iterator[Scene], rng: random.Random, count: int) -> Tensor:
    """Draws pictures as a tensor `(count, 3, 64, 64)`, float32, -1 to 1."""
    pictures = [np.asarray(draw_scene(next(scenes), rng)) for _ in range(count)]
    pixels = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2)
    return pixels.float() / 127.5 - 1.0


def train_autoencoder(path: Path, minutes: float, seed: int = 0, workers: int = 2) -> AutoencoderKL:
    """Trains an autoencoder, or goes on with the training found at `path`.

    Args:
        path: Checkpoint file, written every 250 updates and at the end.
        minutes: Time budget of the whole training, restarts included.
        seed: Seed of the weights and of the pictures.
        workers: Worker processes, of one thread each.
    """
    state = load_checkpoint(path)
    if state is None or not state["finished"]:
        model = build_autoencoder()
        average = GradientAverage(workers, count_parameters(model), extras=2)
        run_workers(_train_worker, workers, (path, minutes, seed, average))
        state = load_checkpoint(path)
        assert state is not None
        model.load_state_dict(state["model"])
        scenes, rng = training_scenes(seed), random.Random(seed)
        standardise_latents(model, draw_batch(scenes, rng, 512))
        state["model"], state["finished"] = model.state_dict(), True
        save_checkpoint(path, state)
    model = build_autoencoder()
    model.load_state_dict(state["model"])
    return model


def _train_worker(
    rank: int, path: Path, minutes: float, seed: int, average: GradientAverage
) -> None:
    torch.manual_seed(seed)
    model = build_autoencoder().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE, weight_decay=0.0)
    update, progress, spent = 0, 0.0, 0.0
    if state := load_checkpoint(path):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        update, spent = state["update"], state["spent_seconds"]
    budget = TimeBudget(minutes, spent)
    seed += 7919 * update + rank  # other pictures for every worker and every start
    torch.manual_seed(seed)
    scenes, rng = training_scenes(seed), random.Random(seed)
    while progress < 1.0:
        loss = _loss(model, draw_batch(scenes, rng, _BATCH))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        extras = [float(loss.detach()), budget.progress]
        mean_loss, progress = average.average(rank, model, extras)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        factor = learning_rate_factor(progress, update, _WARMUP_UPDATES)
        optimizer.param_groups[0]["lr"] = _LEARNING_RATE * factor
        optimizer.step()
        update += 1
        if rank == 0 and (update % _CHECKPOINT_EVERY == 0 or progress >= 1.0):
            _log.info("autoencoder update %d, loss %.5f", update, mean_loss)
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "update": update,
                "spent_seconds": budget.spent_seconds,
                "finished": False,
            }
            save_checkpoint(path, state)


def standardise_latents(model: AutoencoderKL, pictures: Tensor) -> None:
    """Gives every latent channel mean 0 and standard deviation 1 over these pictures.

    Decoding an encoded picture gives the same pixels before and after.
    """
    with torch.no_grad():
        latents = encode(model, pictures)
        mean, deviation = latents.mean(dim=(0, 2, 3)), latents.std(dim=(0, 2, 3))
        quant, post = model.quant_conv, model.post_quant_conv
        # z' = (z - mean) / deviation; the log variance moves by -2 log(deviation).
        quant.weight.div_(torch.cat([deviation, torch.ones_like(deviation)])[:, None, None, None])
        quant.bias[:LATENT_CHANNELS].sub_(mean).div_(deviation)
        quant.bias[LATENT_CHANNELS:].sub_(2.0 * deviation.log())
        post.bias.add_(post.weight[:, :, 0, 0] @ mean)
        post.weight.mul_(deviation[None, :, None, None])


def encode(model: AutoencoderKL, pictures: Tensor, batch: int = 64) -> Tensor:
    """Encodes pictures `(n, 3, 64, 64)`, -1 to 1, to mean latents `(n, 4, 32, 32)`."""
    with torch.no_grad():
        parts = [model.encode(part).latent_dist.mean for part in torch.split(pictures, batch)]
    return torch.cat(parts).contiguous()


def _loss(model: AutoencoderKL, pixels: Tensor) -> Tensor:
    pixels = pixels.to(memory_format=torch.channels_last)
    posterior = model.encode(pixels).latent_dist
    difference = model.decode(posterior.sample()).sample - pixels
    kl = posterior.kl().mean() / posterior.mean[0].numel()
    # The absolute error keeps edges sharp, the squared one colours exact.
    error = difference.square() + 0.2 * difference.abs()
    loss = (_pixel_weights(pixels) * error).mean() + _KL_WEIGHT * kl
    return cast(Tensor, loss)


def _pixel_weights(pixels: Tensor) -> Tensor:
    """Weighs objects up, `(batch, 1, 64, 64)`: they are what matters, and 5 % of the pixels."""
    background = pixels.flatten(2).median(dim=2).values[:, :, None, None]
    is_object = (pixels - background).abs().amax(dim=1, keepdim=True) > _OBJECT_CONTRAST
    near_object = nn.functional.max_pool2d(is_object.float(), 3, stride=1, padding=1)
    return 1.0 + _OBJECT_WEIGHT * near_object
