"""Looks at a model before torch is imported, so that a wrong path is told at once."""

from __future__ import annotations

import json
import struct
from pathlib import Path

_HEADER_LENGTH = struct.Struct("<Q")
_MAX_HEADER_BYTES = 100 << 20


class ModelUnusable(Exception):
    """The model cannot be loaded; the message says why and what to do."""


def check_model(model: str, revision: str, *, allow_download: bool) -> None:
    """Checks that a model can be loaded, as far as that shows without loading it.

    Raises:
        ModelUnusable: the folder is not there or broken, or the id is not in the local hub cache.
    """
    folder = Path(model)
    if folder.exists():
        _check_folder(folder)
    elif not allow_download:
        _check_hub_cache(model, revision)


def _check_folder(folder: Path) -> None:
    index = _read_json(folder / "model_index.json")
    if not isinstance(index, dict) or "_class_name" not in index:
        raise ModelUnusable(f"model {folder}: model_index.json names no pipeline class")
    for name, value in index.items():
        is_component = isinstance(value, list) and len(value) == 2 and value[0] is not None
        if is_component and not name.startswith("_"):
            _check_component(folder / name)


def _check_component(folder: Path) -> None:
    if not folder.is_dir():
        raise ModelUnusable(
            f"model {folder.parent} is incomplete: its folder {folder.name} is missing"
        )
    for path in sorted(folder.glob("*.json")):
        _read_json(path)
    weights = sorted(folder.glob("*.safetensors"))
    # Only what has weights has a config.json; a scheduler's or tokenizer's is called otherwise.
    if (folder / "config.json").exists() and not weights:
        raise ModelUnusable(f"{folder} has no weights in safetensors format; copy the model again")
    for path in weights:
        _check_weights(path)


def _read_json(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or error
        raise ModelUnusable(
            f"{path} cannot be read ({problem}); give the folder of a diffusers pipeline"
        ) from None


def _check_weights(path: Path) -> None:
    """Checks the header of a safetensors file and that all its tensors are in the file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(_HEADER_LENGTH.size)
        length = _HEADER_LENGTH.unpack(prefix)[0] if len(prefix) == _HEADER_LENGTH.size else -1
        if not 0 <= length <= min(size, _MAX_HEADER_BYTES):
            raise ModelUnusable(f"{path} is no safetensors file; copy it again")
        try:
            header = json.loads(file.read(length))
            ends = [t["data_offsets"][1] for name, t in header.items() if name != "__metadata__"]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ModelUnusable(f"{path} has a broken header; copy it again") from None
    expected = _HEADER_LENGTH.size + length + max(ends, default=0)
    if size != expected:
        raise ModelUnusable(f"{path} has {size} bytes instead of {expected}; copy it again")


def _check_hub_cache(model: str, revision: str) -> None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(model, "model_index.json", revision=revision or None)
    except HFValidationError:
        found = None
    if not isinstance(found, str):
        raise ModelUnusable(
            f"model {model} is neither a folder (seen from {Path.cwd()}) nor in the local hub "
            "cache; give the folder of a diffusers pipeline, or allow_download for a model id"
        )
