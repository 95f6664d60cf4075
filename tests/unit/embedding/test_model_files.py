"""A model that is not here is told at once, without a network."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.embedding.conftest import SaveModel

from skipstone_embedding.model_files import find_minilm, find_model
from skipstone_shared.errors import FailedPrecondition


def test_the_packaged_model_is_found() -> None:
    files = find_minilm()
    assert files.name == "all-MiniLM-L6-v2"
    assert (files.directory / "model.safetensors").is_file()


def test_a_directory_is_found_and_named_after_itself(save_model: SaveModel) -> None:
    assert find_model(str(save_model("my-model"))).name == "my-model"


@pytest.mark.parametrize("missing", ["model.safetensors", "config.json"])
def test_a_directory_without_a_needed_file_is_refused(save_model: SaveModel, missing: str) -> None:
    directory = save_model()
    (directory / missing).unlink()
    with pytest.raises(FailedPrecondition, match=f"model tiny: no .* in {directory}"):
        find_model(str(directory))


def test_a_path_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FailedPrecondition, match="is not a directory"):
        find_model(str(tmp_path / "none"))


@pytest.mark.parametrize("model", ["nobody/no-model", "no-model", "bad id!", "a/b/c"])
def test_an_id_that_is_not_in_the_cache_is_refused_without_asking_the_hub(model: str) -> None:
    with pytest.raises(FailedPrecondition, match=f"model {model} is not a directory"):
        find_model(model)


def test_the_digest_changes_with_weights_and_tokenizer(save_model: SaveModel) -> None:
    files = find_model(str(save_model()))
    digests = {files.digest()}
    # Whether a text is lowercased may stand in the last one alone.
    for name in ("model.safetensors", "tokenizer.json", "config.json", "tokenizer_config.json"):
        path = files.directory / name
        path.write_bytes(path.read_bytes() + b" ")
        digests.add(files.digest())
    (files.directory / "README.md").write_text("words")
    digests.add(files.digest())
    assert len(digests) == 5
