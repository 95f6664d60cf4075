"""Settings become an encoder, or an error that names the setting."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.unit.embedding.conftest import SaveModel

from skipstone_embedding.config import EmbeddingSettings
from skipstone_embedding.loading import load_encoder
from skipstone_shared.config import ConfigError, resolve_settings
from skipstone_shared.embeddings import Embedding, EmbeddingInput
from skipstone_shared.errors import FailedPrecondition


def settings(*argv: str) -> EmbeddingSettings:
    return resolve_settings(EmbeddingSettings, argv, {})[0]


def test_the_settings_reach_the_encoder(save_model: SaveModel) -> None:
    threads = torch.get_num_threads()
    encoder = load_encoder(
        settings(
            *("--model", str(save_model()), "--pooling", "cls", "--max-tokens", "6"),
            *("--max-batch-size", "5", "--instruction-template", "{instruction} {text}"),
            *("--num-threads", "1"),
        )
    )
    capabilities = encoder.get_capabilities()
    assert (capabilities.max_batch_size, capabilities.max_tokens) == (5, 6)
    inputs = [EmbeddingInput(text="fox"), EmbeddingInput(text="red fox")]
    (told,) = encoder.encode(inputs[:1], "red")
    (written,) = encoder.encode(inputs[1:])
    encoder.close()
    torch.set_num_threads(threads)
    assert isinstance(told, Embedding)
    assert isinstance(written, Embedding)
    np.testing.assert_allclose(told.vector, written.vector, atol=1e-6)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--model", "nobody/none"), "model nobody/none is not a directory"),
        (("--device", "cuda:99"), "device cuda:99 cannot be used"),
        (("--default-instruction", "find"), "default_instruction needs instruction_template"),
    ],
)
def test_what_cannot_be_loaded_is_named(argv: tuple[str, ...], message: str) -> None:
    with pytest.raises(FailedPrecondition, match=message):
        load_encoder(settings(*argv))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--instruction-template", "{text}"), "instruction_template needs"),
        (("--max-queue-size", "5"), "max_queue_size must be at least max_batch_size"),
        (("--max-batch-size", "1000"), "--max-batch-size"),
        (("--dtype", "int8"), "--dtype"),
        (("--pooling", "max"), "--pooling"),
        (("--modle", "minilm"), "did you mean --model"),
    ],
)
def test_settings_that_cannot_be_right_are_refused(argv: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings(*argv)


def test_a_directory_wins_over_an_id_of_the_same_name(
    save_model: SaveModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory: Path = save_model("tiny")
    monkeypatch.chdir(directory.parent)
    encoder = load_encoder(settings("--model", "tiny"))
    encoder.close()
    assert encoder.get_capabilities().model_id.startswith("tiny/")
