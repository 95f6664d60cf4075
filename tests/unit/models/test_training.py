"""Training: it must call the models as the pipeline does, and go on where it stopped."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from skipstone_bundled.averaging import GradientAverage, count_parameters
from skipstone_bundled.captions import captions, tokenize, vocabulary
from skipstone_bundled.checkpoints import TimeBudget, learning_rate_factor, load_checkpoint
from skipstone_bundled.components import build_tokenizer
from skipstone_bundled.export import build_pipeline, export_pipeline
from skipstone_bundled.scenes import random_scene, training_scenes
from skipstone_bundled.train_autoencoder import (
    build_autoencoder,
    draw_batch,
    encode,
    standardise_latents,
)
from skipstone_bundled.train_transformer import (
    BatchMaker,
    Denoiser,
    TrainingPlan,
    build_denoiser,
    build_pool,
    draw_sigmas,
    encode_captions,
    train_transformer,
)


@pytest.fixture(scope="module")
def denoiser() -> Denoiser:
    """A denoiser whose zero-initialised layers are random, so that every input matters."""
    torch.manual_seed(0)
    model = build_denoiser(build_tokenizer())
    with torch.no_grad():
        for parameter in model.transformer.parameters():
            if not parameter.any():
                parameter.normal_(0.0, 0.05)
    return model.eval()


def test_the_tokenizer_splits_as_the_grammar_does() -> None:
    tokenizer, words = build_tokenizer(), vocabulary()
    rng = random.Random(0)
    for caption in captions(random_scene(rng), 10, rng):
        ids = tokenizer(caption.upper()).input_ids
        assert tokenizer.convert_ids_to_tokens(ids) == ["[BOS]", *tokenize(caption), "[EOS]"]
    assert len(tokenizer) == len(words) + 4


def test_an_unknown_word_and_an_empty_prompt_have_tokens() -> None:
    tokenizer = build_tokenizer()
    assert tokenizer.convert_ids_to_tokens(tokenizer("a zebra").input_ids) == [
        "[BOS]", "a", "[UNK]", "[EOS]",
    ]  # fmt: skip
    assert tokenizer.convert_ids_to_tokens(tokenizer("").input_ids) == ["[BOS]", "[EOS]"]


@pytest.mark.parametrize("caption", ["", "a small red circle on the left on a gray background"])
def test_training_and_pipeline_predict_the_same_velocity(denoiser: Denoiser, caption: str) -> None:
    """Padding, text layer, sizes and timestep: whatever differed would be lost quality."""
    pipeline = build_pipeline(denoiser, build_autoencoder())
    pipeline.set_progress_bar_config(disable=True)
    noise = torch.randn(1, 4, 32, 32, generator=torch.Generator().manual_seed(1))
    result = pipeline(
        caption, latents=noise, num_inference_steps=1, guidance_scale=1.0, output_type="latent"
    ).images
    with torch.no_grad():
        ids = encode_captions(pipeline.tokenizer, [caption])
        velocity = denoiser(noise, ids, torch.ones(1))
    # One Euler step from sigma 1 to 0.
    assert torch.allclose(result, noise - velocity, atol=1e-5)
    assert velocity.std() > 0.01


def test_standardising_changes_the_latents_and_not_the_pictures() -> None:
    torch.manual_seed(2)
    model = build_autoencoder()
    pictures = draw_batch(training_scenes(0), random.Random(0), 16)
    with torch.no_grad():
        before = model.decode(encode(model, pictures)).sample
        standardise_latents(model, pictures)
        latents = encode(model, pictures)
        after = model.decode(latents).sample
    assert torch.allclose(before, after, atol=1e-4)
    assert torch.allclose(latents.mean(dim=(0, 2, 3)), torch.zeros(4), atol=1e-4)
    assert torch.allclose(latents.std(dim=(0, 2, 3)), torch.ones(4), atol=1e-3)


def test_workers_end_up_with_the_same_mean_gradient() -> None:
    """Were they not equal bit for bit, the workers' models would drift apart."""
    models = [nn.Linear(3, 2) for _ in range(2)]
    average = GradientAverage(2, count_parameters(models[0]), extras=1)
    means: dict[int, list[float]] = {}
    for rank, model in enumerate(models):
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, float(rank))

    def work(rank: int) -> None:
        means[rank] = average.average(rank, models[rank], [10.0 * rank])

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert means == {0: [5.0], 1: [5.0]}
    for model in models:
        assert all(
            torch.equal(parameter.grad, torch.full_like(parameter, 0.5))
            for parameter in model.parameters()
            if parameter.grad is not None
        )


def test_a_training_goes_on_where_it_stopped(tmp_path: Path) -> None:
    pool = build_pool(build_autoencoder(), 48, seed=0)
    path = tmp_path / "transformer.pt"
    train_transformer(TrainingPlan(path, minutes=0.001), pool, workers=1)
    first = load_checkpoint(path)
    assert first is not None
    train_transformer(TrainingPlan(path, minutes=first["spent_seconds"] / 60 + 0.001), pool, 1)
    second = load_checkpoint(path)
    assert second is not None
    assert second["update"] > first["update"] >= 1
    assert second["spent_seconds"] > first["spent_seconds"]


def test_batches_have_one_text_length_and_some_empty_captions() -> None:
    tokenizer = build_tokenizer()
    pool = build_pool(build_autoencoder(), 48, seed=0)
    batches = BatchMaker(pool, tokenizer, seed=0)
    empty = encode_captions(tokenizer, [""])[0]
    lengths, empties = set(), 0
    for index in range(40):
        latents, ids = batches.draw(16, short=index % 2 == 0)
        assert latents.shape == (16, 4, 32, 32)
        lengths.add(ids.shape[1])
        empties += sum(torch.equal(row, empty) for row in ids)
    assert lengths == {16, 32}
    assert empties == 20 * 4


def test_noise_levels_lie_between_clean_and_noise() -> None:
    sigmas = draw_sigmas(4000)
    assert sigmas.min() >= 0.0
    assert sigmas.max() <= 1.0
    assert 0.6 < sigmas.median() < 0.75


def test_the_learning_rate_rises_by_updates_and_falls_by_time() -> None:
    assert learning_rate_factor(0.0, 0, 100) == pytest.approx(0.01)
    assert learning_rate_factor(0.0, 99, 100) == pytest.approx(1.0)
    assert learning_rate_factor(0.5, 500, 100) == pytest.approx(0.51)
    assert learning_rate_factor(1.0, 900, 100) == pytest.approx(0.02)


def test_the_time_budget_counts_earlier_starts() -> None:
    assert TimeBudget(1.0, spent_seconds=60.0).progress == 1.0
    assert TimeBudget(1.0, spent_seconds=30.0).progress == pytest.approx(0.5, abs=0.05)


def test_an_exported_folder_loads_with_the_stock_class_and_draws(
    denoiser: Denoiser, tmp_path: Path
) -> None:
    import diffusers

    torch.manual_seed(3)
    export_pipeline(build_denoiser(build_tokenizer()), build_autoencoder(), tmp_path)
    pipeline = diffusers.DiffusionPipeline.from_pretrained(tmp_path)
    pipeline.set_progress_bar_config(disable=True)
    assert type(pipeline).__name__ == "CogView4Pipeline"
    (picture,) = pipeline("a big blue ring", num_inference_steps=1).images
    assert picture.size == (64, 64)
