"""Any transformers text model gives unit vectors, however it is pooled, or says why it cannot."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.unit.embedding.conftest import SaveModel
from transformers import AutoModel, AutoTokenizer

from skipstone_embedding.model_files import ModelFiles, find_model
from skipstone_embedding.transformers_encoder import EncoderOptions, TransformersEncoder
from skipstone_shared.embeddings import Embedding, EmbeddingInput
from skipstone_shared.errors import FailedPrecondition, Internal, InvalidArgument

TEXTS = ["a red fox", "fox", "a blue fox in snow in snow in snow", "snow", "a a a a a a a a a a"]


def load(directory: Path, **options: Any) -> TransformersEncoder:
    return TransformersEncoder(find_model(str(directory)), EncoderOptions(**options))


def embed(encoder: TransformersEncoder, *texts: str, instruction: str = "") -> list[Embedding]:
    results = encoder.encode([EmbeddingInput(text=text) for text in texts], instruction)
    assert all(isinstance(result, Embedding) for result in results)
    return results  # type: ignore[return-value]


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_vectors_are_those_of_the_bare_model(save_model: SaveModel, pooling: str) -> None:
    directory = save_model()
    model = AutoModel.from_pretrained(directory).eval()
    tokenizer = AutoTokenizer.from_pretrained(directory)
    for text, result in zip(TEXTS, embed(load(directory, pooling=pooling), *TEXTS), strict=True):
        tokens = tokenizer(text, return_tensors="pt")
        with torch.inference_mode():
            hidden = model(**tokens).last_hidden_state[0].numpy()
        pooled = {"mean": hidden.mean(axis=0), "cls": hidden[0], "last": hidden[-1]}[pooling]
        np.testing.assert_allclose(result.vector, pooled / np.linalg.norm(pooled), atol=1e-6)
        assert result.num_tokens == tokens["input_ids"].shape[1]
        assert not result.truncated


def test_a_text_too_long_is_cut_and_says_so(save_model: SaveModel) -> None:
    encoder = load(save_model(max_tokens=8))
    fits, long, longer = embed(encoder, "fox " * 6, "fox " * 7, "fox " * 6 + "red blue")
    assert (fits.num_tokens, fits.truncated) == (8, False)
    assert (long.num_tokens, long.truncated) == (8, True)
    np.testing.assert_allclose(long.vector, longer.vector, atol=1e-6)


def test_bad_texts_without_a_good_one_are_refused_one_by_one(save_model: SaveModel) -> None:
    results = load(save_model()).encode([EmbeddingInput(text=text) for text in ("", " \n")])
    assert [type(result) for result in results] == [InvalidArgument, InvalidArgument]


def test_max_tokens_can_be_lowered(save_model: SaveModel) -> None:
    encoder = load(save_model(max_tokens=32), max_tokens=5)
    assert encoder.get_capabilities().max_tokens == 5
    (result,) = embed(encoder, "a red fox in snow")
    assert (result.num_tokens, result.truncated) == (5, True)


def test_an_instruction_is_put_into_the_template(save_model: SaveModel) -> None:
    directory = save_model()
    plain = load(directory)
    taking = load(directory, template="{instruction} in {text}", default_instruction="blue")
    expected = embed(plain, "red in fox", "blue in fox", "fox")
    got = [
        embed(taking, "fox", instruction="red")[0],
        embed(taking, "fox")[0],
        embed(plain, "fox", instruction="passed over")[0],
    ]
    for mine, wanted in zip(got, expected, strict=True):
        np.testing.assert_allclose(mine.vector, wanted.vector, atol=1e-6)


def test_a_vector_that_is_not_finite_is_an_error_of_its_input(save_model: SaveModel) -> None:
    directory = save_model()
    weights = load_file(directory / "model.safetensors")
    name = next(name for name in weights if name.endswith("word_embeddings.weight"))
    weights[name][7] = math.nan  # the word "blue"
    save_file(weights, directory / "model.safetensors", {"format": "pt"})
    encoder = load(directory)
    good, bad = encoder.encode([EmbeddingInput(text="red"), EmbeddingInput(text="blue")])
    assert isinstance(good, Embedding)
    assert isinstance(bad, Internal)


def test_a_text_without_a_known_token_is_refused(save_model: SaveModel) -> None:
    """All such texts would have the same vector and so be equal to each other."""
    (result,) = load(save_model()).encode([EmbeddingInput(text="\u200b\u200d")])
    assert isinstance(result, InvalidArgument)
    assert result.field == "text"


def test_the_model_id_changes_with_whatever_changes_the_vectors(save_model: SaveModel) -> None:
    one, same, other = save_model("m"), save_model("same"), save_model("other", seed=1)
    files = [ModelFiles("m", path) for path in (one, same, other)]
    encoders = [TransformersEncoder(item) for item in files]
    encoders += [
        TransformersEncoder(files[0], EncoderOptions(pooling="cls")),
        TransformersEncoder(files[0], EncoderOptions(max_tokens=7)),
        TransformersEncoder(files[0], EncoderOptions(dtype="bfloat16")),
        TransformersEncoder(files[0], EncoderOptions(template="{instruction}{text}")),
    ]
    ids = [encoder.get_capabilities().model_id for encoder in encoders]
    assert ids[0] == ids[1]
    assert all(a != b for a, b in itertools.combinations(ids[1:], 2))
    assert all(id_.startswith("m/") for id_ in ids)


def test_low_precision_still_gives_float32_unit_vectors(save_model: SaveModel) -> None:
    for result in embed(load(save_model(), dtype="bfloat16"), *TEXTS):
        assert result.vector.dtype == np.float32
        assert abs(float(np.linalg.norm(result.vector)) - 1) < 1e-5


def test_weights_that_do_not_fit_are_refused(save_model: SaveModel) -> None:
    """transformers would fill them up with random numbers and only warn."""
    directory = save_model()
    weights = load_file(directory / "model.safetensors")
    del weights[next(name for name in weights if "layer.1" in name)]
    save_file(weights, directory / "model.safetensors", {"format": "pt"})
    with pytest.raises(FailedPrecondition, match="cannot be loaded: weights are missing"):
        load(directory)


def test_a_broken_model_is_refused_in_one_sentence(save_model: SaveModel) -> None:
    directory = save_model()
    (directory / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(FailedPrecondition, match=r"model tiny in .* cannot be loaded") as caught:
        load(directory)
    assert "\n" not in caught.value.message
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"model_type": "no-such-model"}))
    with pytest.raises(FailedPrecondition, match="cannot be loaded"):
        load(directory)


@pytest.mark.parametrize("device", ["cuda:99", "warp-drive"])
def test_a_device_that_is_not_there_is_refused(save_model: SaveModel, device: str) -> None:
    with pytest.raises(FailedPrecondition, match=f"device {device} cannot be used"):
        load(save_model(), device=device)
