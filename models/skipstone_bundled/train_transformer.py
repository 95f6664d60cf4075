"""Trains text encoder and transformer together by flow matching on the autoencoder's latents.

Flow matching: Lipman et al., 2022, arXiv 2210.02747; logit-normal sigmas: Esser et al., 2024,
arXiv 2403.03206, section 3.1; classifier-free guidance: Ho and Salimans, 2022, arXiv 2207.12598.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import AutoencoderKL, CogView4Transformer2DModel
from torch import Tensor, nn
from transformers import GlmModel, PreTrainedTokenizerFast

from skipstone_bundled.averaging import GradientAverage, count_parameters, run_workers
from skipstone_bundled.captions import random_wording, tokenize, write_caption
from skipstone_bundled.checkpoints import (
    TimeBudget,
    learning_rate_factor,
    load_checkpoint,
    save_checkpoint,
)
from skipstone_bundled.components import (
    TEXT_PADDING,
    build_text_encoder,
    build_tokenizer,
    build_transformer,
)
from skipstone_bundled.drawing import PICTURE_SIZE
from skipstone_bundled.scenes import Scene, training_scenes
from skipstone_bundled.train_autoencoder import draw_batch, encode

POOL_SIZE: Final = 32_000
"""Pictures that are drawn and encoded once before the training."""

_BATCH = 16  # of each worker
_LEARNING_RATE = 1e-3
_WARMUP_UPDATES = 200
_CHECKPOINT_EVERY = 200
_EMA_DECAY = 0.999
# One-object captions mostly fit 16 tokens, and the pipeline pads the empty prompt to 16: so the
# batches of that length carry the empty captions, with pictures of the whole pool.
_EMPTY_SHARE = {16: 0.25, 32: 0.0}

_log = logging.getLogger(__name__)


class Denoiser(nn.Module):
    """Text encoder and transformer as one module, called as the pipeline calls them."""

    def __init__(self, text_encoder: GlmModel, transformer: CogView4Transformer2DModel) -> None:
        """Holds the two models."""
        super().__init__()
        self.text_encoder = text_encoder
        self.transformer = transformer

    def forward(self, latents: Tensor, token_ids: Tensor, sigma: Tensor) -> Tensor:
        """Predicts the velocity `noise - clean`, in the shape of the latents.

        Args:
            latents: `(batch, 4, 32, 32)`, float32.
            token_ids: `(batch, tokens)`, padded on the left to a multiple of 16.
            sigma: `(batch,)`, 0 (clean) to 1 (noise).
        """
        text = self.text_encoder(token_ids, output_hidden_states=True).hidden_states[-2]
        size = torch.full((len(latents), 2), float(PICTURE_SIZE))
        prediction: Tensor = self.transformer(
            hidden_states=latents,
            encoder_hidden_states=text,
            timestep=sigma * 1000.0,
            original_size=size,
            target_size=size,
            crop_coords=torch.zeros_like(size),
            return_dict=False,
        )[0]
        return prediction


@dataclass(frozen=True)
class Pool:
    """Scenes with the latents of one picture each, `(n, 4, 32, 32)`, float16."""

    scenes: list[Scene]
    latents: Tensor

    def indices(self, objects: int) -> list[int]:
        """Returns where the scenes of that many objects are."""
        return [i for i, scene in enumerate(self.scenes) if len(scene.objects) == objects]


def build_pool(autoencoder: AutoencoderKL, size: int, seed: int) -> Pool:
    """Draws and encodes the training pictures."""
    source, rng = training_scenes(seed), random.Random(seed)
    scenes = [next(source) for _ in range(size)]
    parts = []
    for start in range(0, size, 256):
        chunk = scenes[start : start + 256]
        parts.append(encode(autoencoder, draw_batch(iter(chunk), rng, len(chunk))).half())
    return Pool(scenes, torch.cat(parts))


def load_pool(path: Path, autoencoder: AutoencoderKL, size: int, seed: int) -> Pool:
    """Returns the training pictures, drawn and encoded at the first call only."""
    state = load_checkpoint(path)
    if state is None or len(state["latents"]) != size:
        pool = build_pool(autoencoder, size, seed)
        save_checkpoint(path, {"latents": pool.latents})
        return pool
    source = training_scenes(seed)
    return Pool([next(source) for _ in range(size)], state["latents"])


def encode_captions(tokenizer: PreTrainedTokenizerFast, captions: list[str]) -> Tensor:
    """Turns captions into token ids, padded as the pipeline pads them."""
    ids: Tensor = tokenizer(captions, padding="longest", return_tensors="pt").input_ids
    missing = -ids.shape[1] % TEXT_PADDING
    return nn.functional.pad(ids, (missing, 0), value=tokenizer.pad_token_id)


def draw_sigmas(count: int) -> Tensor:
    """Draws noise levels: logit-normal around 0.73, every fifth evenly so that ends are seen.

    Colours and places are decided above sigma 0.8; around 0.57, as in smaller pictures, the model
    had not begun to learn them after 1,200 updates.
    """
    logit_normal = torch.sigmoid(1.0 + 1.2 * torch.randn(count))
    return torch.where(torch.rand(count) < 0.2, torch.rand(count), logit_normal)


def short_share(progress: float) -> float:
    """Share of the batches with one object a picture: most at first, so that words come first."""
    return max(0.3, 0.8 - progress)


class BatchMaker:
    """Draws training batches of one text length each."""

    def __init__(self, pool: Pool, tokenizer: PreTrainedTokenizerFast, seed: int) -> None:
        """Sorts the pool by number of objects."""
        self._pool = pool
        self._tokenizer = tokenizer
        self._rng = random.Random(seed)
        self._singles, self._pairs = pool.indices(1), pool.indices(2)

    def draw(self, count: int, short: bool) -> tuple[Tensor, Tensor]:
        """Draws a batch.

        Args:
            count: Size of the batch.
            short: Captions of one object and empty ones, in 16 tokens; else mostly of two objects,
                in 32 tokens.

        Returns:
            Clean latents `(count, 4, 32, 32)`, float32, and token ids `(count, 16 | 32)`.
        """
        length = 16 if short else 32
        empty = round(count * _EMPTY_SHARE[length])
        # One in eight longer batches is of single objects: their longer wordings.
        single = short or self._rng.random() < 0.125
        chosen = self._rng.choices(self._singles if single else self._pairs, k=count - empty)
        captions = [self._write(self._pool.scenes[index], length) for index in chosen]
        chosen += self._rng.choices(range(len(self._pool.scenes)), k=empty)
        ids = encode_captions(self._tokenizer, captions + [""] * empty)
        ids = nn.functional.pad(ids, (length - ids.shape[1], 0), value=self._tokenizer.pad_token_id)
        return self._pool.latents[chosen].float(), ids

    def _write(self, scene: Scene, length: int) -> str:
        while True:
            caption = write_caption(scene, random_wording(self._rng))
            if len(tokenize(caption)) + 2 <= length:
                return caption


@dataclass(frozen=True)
class TrainingPlan:
    """What every worker of a training needs to know.

    Attributes:
        path: Checkpoint file, written every 200 updates and at the end.
        minutes: Time budget of the whole training, restarts included.
        seed: Seed of weights, captions and noise.
        compile_blocks: Compiles the transformer blocks: slower to start, faster to run.
    """

    path: Path
    minutes: float
    seed: int = 0
    compile_blocks: bool = False


def train_transformer(plan: TrainingPlan, pool: Pool, workers: int = 2) -> Denoiser:
    """Trains a denoiser, or goes on with the training found at the plan's path.

    Args:
        plan: Where, how long and how.
        pool: The training pictures.
        workers: Worker processes, of one thread each.

    Returns:
        The model with averaged weights.
    """
    pool.latents.share_memory_()  # type: ignore[no-untyped-call]
    model = build_denoiser(build_tokenizer())
    average = GradientAverage(workers, count_parameters(model), extras=2)
    run_workers(_train_worker, workers, (plan, pool, average))
    return load_average(plan.path)


def load_average(path: Path) -> Denoiser:
    """Reads the averaged model from a training's checkpoint.

    Raises:
        FileNotFoundError: There is no checkpoint.
    """
    state = load_checkpoint(path)
    if state is None:
        raise FileNotFoundError(path)
    model = build_denoiser(build_tokenizer())
    model.load_state_dict(state["average"])
    return model


def build_denoiser(tokenizer: PreTrainedTokenizerFast) -> Denoiser:
    """Returns text encoder and transformer with random weights."""
    return Denoiser(build_text_encoder(len(tokenizer)), build_transformer())


def _train_worker(rank: int, plan: TrainingPlan, pool: Pool, average: GradientAverage) -> None:
    torch.manual_seed(plan.seed)
    tokenizer = build_tokenizer()
    run = _Run(tokenizer, rank, average)
    if state := load_checkpoint(plan.path):
        run.load(state)
    if plan.compile_blocks:
        for block in run.model.transformer.transformer_blocks:
            block.compile()
    # Other pictures and noise for every worker and every start.
    seed = plan.seed + 7919 * run.update + rank
    torch.manual_seed(seed)
    batches = BatchMaker(pool, tokenizer, seed)
    budget = TimeBudget(plan.minutes, run.spent_seconds)
    losses: list[float] = []
    while run.progress < 1.0:
        # All workers choose alike, so that none waits for another one's longer batch.
        chance = random.Random(f"{plan.seed}:{run.update}").random()
        batch = batches.draw(_BATCH, short=chance < short_share(run.progress))
        losses.append(run.train_once(*batch, budget.progress))
        if rank == 0 and (run.update % _CHECKPOINT_EVERY == 0 or run.progress >= 1.0):
            mean = sum(losses) / len(losses)
            _log.info("update %d, loss %.4f, %.0f s", run.update, mean, budget.spent_seconds)
            losses.clear()
            save_checkpoint(plan.path, run.state(budget.spent_seconds))


class _Run:
    """One worker's training in progress: model, averaged model, optimizer and counters."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerFast, rank: int, average: GradientAverage
    ) -> None:
        self.model, self.average = build_denoiser(tokenizer), build_denoiser(tokenizer)
        self.average.load_state_dict(self.model.state_dict())
        self.average.requires_grad_(False)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=_LEARNING_RATE,
            betas=(0.9, 0.99),
            weight_decay=0.01,
            fused=True,
        )
        self.update = 0
        self.progress = 0.0
        self.spent_seconds = 0.0
        self._rank = rank
        self._gradients = average

    def state(self, spent_seconds: float) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "update": self.update,
            "spent_seconds": spent_seconds,
        }

    def load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.update, self.spent_seconds = state["update"], state["spent_seconds"]

    def train_once(self, clean: Tensor, token_ids: Tensor, progress: float) -> float:
        sigma, noise = draw_sigmas(len(clean)), torch.randn_like(clean)
        level = sigma[:, None, None, None]
        prediction = self.model((1.0 - level) * clean + level * noise, token_ids, sigma)
        loss = (prediction - (noise - clean)).square().mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        # The workers' clocks differ; their mean is the progress that all of them use.
        mean_loss, self.progress = self._gradients.average(
            self._rank, self.model, [float(loss.detach()), progress]
        )
        factor = learning_rate_factor(self.progress, self.update, _WARMUP_UPDATES)
        self.optimizer.param_groups[0]["lr"] = _LEARNING_RATE * factor
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.update += 1
        if self._rank == 0:
            self._average_weights()
        return mean_loss

    def _average_weights(self) -> None:
        # While young, the average forgets the random start quickly.
        keep = min(_EMA_DECAY, (1.0 + self.update) / (10.0 + self.update))
        averages: list[Tensor] = list(self.average.parameters())
        weights: list[Tensor] = list(self.model.parameters())
        with torch.no_grad():
            torch._foreach_lerp_(averages, weights, 1.0 - keep)
