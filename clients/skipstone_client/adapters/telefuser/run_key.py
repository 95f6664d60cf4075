"""What the latents of a TeleFuser request depend on, as far as its cache is told.

The host does not tell the shape of its latents before it denoises. So the key rests on all that
decides it: every entry of ``PPL_CONFIG`` and every field of the request but those that cannot
matter. The host itself drops a latent of another shape.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Mapping
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import xxhash

from skipstone_client.engine_runs import UNKNOWN_LATENTS, EngineRun
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import MAX_SEED
from skipstone_shared.latents import GuidanceMode, LatentFingerprint, canonical_hash
from skipstone_shared.noise_shares import FLOW

_WITHOUT_EFFECT = frozenset(
    {"task_id", "prompt", "seed", "output_path", "output_format", "latent_data", "negative_prompt"}
)
"""Fields of a request that stand elsewhere in the key, or change nothing of its latents."""

_NAMES_ONLY = frozenset({"name", "seed"})
"""Entries of ``PPL_CONFIG`` that change nothing of the latents of a request."""

_LIBRARIES = ("telefuser", "torch")
_CHUNK_BYTES = 1 << 20


class RunKeys:
    """Describes the runs of one pipeline file. Threads may share it."""

    def __init__(self, ppl_config: Mapping[str, Any]) -> None:
        """Reads what is the same for all requests.

        Args:
            ppl_config: ``PPL_CONFIG`` of the pipeline file.

        Raises:
            InvalidArgument: it does not say how many steps a run has, or has a value that
                cannot be told.
        """
        self._ppl = dict(ppl_config)
        self.num_inference_steps = _steps(self._ppl.get("num_inference_steps"))
        self._shift = _number(self._ppl, ("sigma_shift", "shift"), 1.0)
        self._sigmas = flow_sigmas(self.num_inference_steps, self._shift)
        self._config_hash = canonical_hash(
            {
                str(name): _with_texts(_plain(value, f"PPL_CONFIG.{name}"), _by_size)
                for name, value in self._ppl.items()
                if name not in _NAMES_ONLY
            }
        )
        self._weights_hash = model_listing_hash(str(self._ppl.get("model_root", "")))
        self._libraries = ",".join(f"{name}={_version_of(name)}" for name in _LIBRARIES)

    def run(self, engine_ctx: Mapping[str, Any], seed: int | None) -> EngineRun:
        """The run of one request.

        Args:
            engine_ctx: The host's fields of it.
            seed: Its seed; None: the pipeline file's.

        Raises:
            InvalidArgument: a field or the seed cannot be told, or a field says that the run has
                other steps.
        """
        steps = engine_ctx.get("num_inference_steps")
        if steps not in (None, self.num_inference_steps):
            raise InvalidArgument(
                f"the request has {steps} steps, PPL_CONFIG {self.num_inference_steps}; which of "
                "them the pipeline runs is not known",
                field="num_inference_steps",
            )
        scales = _scales(self._ppl)
        fingerprint = LatentFingerprint(
            model_id=str(self._ppl.get("model_root", "")),
            pipeline_class="telefuser",
            weights_hash=self._weights_hash,
            text_encoder_id="",
            vae_id="",
            latents=UNKNOWN_LATENTS,
            latent_packing="/".join(
                ["telefuser", *(self._first(engine_ctx, n) for n in ("resolution", "aspect_ratio"))]
            ),
            height=_whole(engine_ctx.get("height", self._ppl.get("height"))),
            width=_whole(engine_ctx.get("width", self._ppl.get("width"))),
            num_frames=_whole(engine_ctx.get("num_frames", self._ppl.get("num_frames"))),
            scheduler_class=f"telefuser.{self._ppl.get('sample_solver', '')}",
            scheduler_config_hash=self._config_hash,
            sigmas_hash=canonical_hash(list(self._sigmas)),
            num_inference_steps=self.num_inference_steps,
            prediction_type=FLOW,
            guidance_mode=(
                GuidanceMode.SEPARATE if any(s > 1.0 for s in scales) else GuidanceMode.NONE
            ),
            guidance_scales=scales,
            negative_prompt=str(engine_ctx.get("negative_prompt") or ""),
            reference_hashes=_field_hashes(engine_ctx),
            expert_boundary=_number(self._ppl, ("boundary",), 0.0),
            library_versions=self._libraries,
        )
        return EngineRun(fingerprint, self._sigmas, self._seed(seed))

    def _seed(self, given: int | None) -> int:
        """The seed of a request that gives one or leaves it to the pipeline file.

        Raises:
            InvalidArgument: neither tells one: whatever the host draws, its run is no repeat.
        """
        seed = self._ppl.get("seed", 0) if given is None else given
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise InvalidArgument(
                f"the seed is {seed!r}", field="seed", allowed="a whole number, or none at all"
            )
        return seed & MAX_SEED

    def _first(self, engine_ctx: Mapping[str, Any], name: str) -> str:
        return str(_plain(engine_ctx.get(name) or self._ppl.get(name) or "", name))


def flow_sigmas(num_inference_steps: int, shift: float) -> tuple[float, ...]:
    """Noise levels of flow matching with a timestep shift: N + 1 values from 1 to 0.

    ``sigma = shift * u / (1 + (shift - 1) * u)`` for evenly spaced u (Esser et al., 2024, arXiv
    2403.03206, equation 23).
    """
    shares = [1.0 - step / num_inference_steps for step in range(num_inference_steps + 1)]
    return tuple(shift * u / (1.0 + (shift - 1.0) * u) for u in shares)


def model_listing_hash(model_root: str) -> str:
    """Hash of names and sizes of a model's files; of nothing when the folder is not here.

    Reading the weights themselves would take minutes of a host's start.
    """
    root = Path(model_root)
    if not model_root or not root.is_dir():
        return ""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return canonical_hash([[str(f.relative_to(root)), f.stat().st_size] for f in files])


def _field_hashes(engine_ctx: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields of a request that the key has no place of their own for, files by content."""
    hashes = []
    for name in sorted(set(engine_ctx) - _WITHOUT_EFFECT):
        value = engine_ctx[name]
        if value in (None, ""):
            continue
        hashes.append(f"{name}={canonical_hash(_field(value, name))}")
    return tuple(hashes)


def _field(value: Any, name: str) -> Any:
    return _with_texts(_plain(value, name), lambda text: _by_content(text, name))


def _by_content(text: str, name: str) -> str:
    """What a field says, or the content of the file that it names.

    What is called a path must be one; what is called otherwise is one where there is such a file.
    """
    if text and (name.endswith(("_path", "_paths")) or os.path.isfile(text)):
        return f"file:{_file_hash(text, name)}"
    return text


def _by_size(text: str) -> Any:
    """What an entry says, with the size of the file, or the sizes of the folder, that it names.

    An adapter may have gigabytes, which nobody wants to read at a start.
    """
    if os.path.isfile(text):
        return [text, os.path.getsize(text)]
    if os.path.isabs(text) and os.path.isdir(text):
        return [text, model_listing_hash(text)]
    return text


def _with_texts(value: Any, told: Callable[[str], Any]) -> Any:
    """A plain value with what is told of each of its texts in their place."""
    if isinstance(value, list):
        return [_with_texts(item, told) for item in value]
    if isinstance(value, dict):
        return {key: _with_texts(item, told) for key, item in value.items()}
    return told(value) if isinstance(value, str) else value


def _file_hash(path: str, name: str) -> str:
    digest = xxhash.xxh3_128()
    try:
        with open(path, "rb") as file:
            for chunk in iter(functools.partial(file.read, _CHUNK_BYTES), b""):
                digest.update(chunk)
    except OSError as error:
        raise InvalidArgument(f"{name} {path} cannot be read: {error}", field=name) from None
    return digest.hexdigest()


def _plain(value: Any, name: str) -> Any:
    """A value as JSON has it; enums by value, other things by the text that names them."""
    if isinstance(value, Enum):
        return _plain(value.value, name)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item, name) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, name) for item in value]
    text = getattr(value, "__qualname__", None) or str(value)
    if " at 0x" in text:
        raise InvalidArgument(f"{name} is a {type(value).__name__}, which no key can tell")
    return f"{type(value).__name__}:{text}"


def _steps(value: Any) -> int:
    first = value[0] if isinstance(value, list | tuple) and value else value
    if isinstance(first, bool) or not isinstance(first, int) or first < 1:
        raise InvalidArgument(
            f"PPL_CONFIG.num_inference_steps is {value!r}",
            field="PPL_CONFIG.num_inference_steps",
            allowed="a whole number of 1 and up, or a list that begins with one",
        )
    return first


def _scales(ppl_config: Mapping[str, Any]) -> tuple[float, ...]:
    return tuple(
        float(value)
        for name, value in sorted(ppl_config.items())
        if ("cfg_scale" in name or "guidance_scale" in name)
        and isinstance(value, int | float)
        and math.isfinite(value)
    )


def _number(config: Mapping[str, Any], names: tuple[str, ...], default: float) -> float:
    for name in names:
        value = config.get(name)
        if isinstance(value, int | float) and math.isfinite(value) and value > 0:
            return float(value)
    return default


def _whole(value: Any) -> int:
    """A size, or 0 where it is told otherwise."""
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else 0


def _version_of(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "none"
