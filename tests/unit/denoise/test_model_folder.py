"""A model that cannot be loaded is told before torch is imported, in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from skipstone_denoise.model_folder import ModelUnusable, check_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The smallest thing that looks like a pipeline."""
    model = tmp_path / "model"
    for part in ("transformer", "scheduler"):
        (model / part).mkdir(parents=True)
    index = {
        "_class_name": "TinyPipeline",
        "_diffusers_version": "0.42.1",
        "transformer": ["diffusers", "TinyTransformer"],
        "scheduler": ["diffusers", "TinyScheduler"],
        "image_encoder": [None, None],
        "boundary_ratio": None,
    }
    (model / "model_index.json").write_text(json.dumps(index))
    (model / "transformer/config.json").write_text("{}")
    (model / "scheduler/scheduler_config.json").write_text("{}")
    save_file({"w": np.ones(64, np.float32)}, model / "transformer/model.safetensors")
    return model


def test_a_complete_folder_is_accepted(folder: Path) -> None:
    check_model(str(folder), "", allow_download=False)


def _no_index(folder: Path) -> None:
    (folder / "model_index.json").unlink()


def _index_of_something_else(folder: Path) -> None:
    (folder / "model_index.json").write_text("[]")


def _broken_json(folder: Path) -> None:
    (folder / "scheduler/scheduler_config.json").write_text('{"shift": ')


def _missing_component(folder: Path) -> None:
    (folder / "scheduler/scheduler_config.json").unlink()
    (folder / "scheduler").rmdir()


def _no_weights(folder: Path) -> None:
    (folder / "transformer/model.safetensors").unlink()


def _truncated_weights(folder: Path) -> None:
    path = folder / "transformer/model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def _empty_weights(folder: Path) -> None:
    (folder / "transformer/model.safetensors").write_bytes(b"")


def _weights_that_are_a_web_page(folder: Path) -> None:
    (folder / "transformer/model.safetensors").write_text("<html>not found</html>")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_no_index, "model_index.json cannot be read"),
        (_index_of_something_else, "names no pipeline class"),
        (_broken_json, "scheduler_config.json cannot be read"),
        (_missing_component, "its folder scheduler is missing"),
        (_no_weights, "no weights in safetensors format"),
        (_truncated_weights, "bytes instead of"),
        (_empty_weights, "is no safetensors file"),
        (_weights_that_are_a_web_page, "is no safetensors file"),
    ],
)
def test_a_damaged_folder_is_refused_saying_what_is_wrong(
    folder: Path, damage: Callable[[Path], None], said: str
) -> None:
    damage(folder)
    with pytest.raises(ModelUnusable, match=said):
        check_model(str(folder), "", allow_download=False)


@pytest.mark.parametrize("model", ["/no/such/folder", "models/none-such", "nobody/no-such-model"])
def test_a_model_that_is_nowhere_is_refused_unless_it_may_be_fetched(model: str) -> None:
    with pytest.raises(ModelUnusable, match="neither a folder"):
        check_model(model, "", allow_download=False)
    check_model(model, "", allow_download=True)
