"""Everything that makes the latents of a run its own, as a `LatentFingerprint`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import diffusers
import torch
import transformers
import xxhash
from accelerate.utils.modeling import get_state_dict_offloaded_model
from diffusers import ConfigMixin

from skipstone_client.torch_arrays import dtype_of
from skipstone_denoise.model_profile import ModelProfile
from skipstone_denoise.schedule import Schedule, config_hash
from skipstone_shared.generation import GenerationParams, ReferenceInput
from skipstone_shared.latents import (
    AdapterFingerprint,
    DType,
    GuidanceMode,
    LatentFingerprint,
    TensorSpec,
)

POLICY_VERSION = "snapshot-1"
"""Changes when snapshots of the same fingerprint are no longer interchangeable."""

_CHUNK_ELEMENTS = 1 << 24

# Where a prompt is cut and how it is padded and wrapped; none of it stands in the vocabulary.
_TOKENIZER_SETTINGS = (
    "model_max_length",
    "padding_side",
    "truncation_side",
    "special_tokens_map",
    "chat_template",
)


@dataclasses.dataclass(frozen=True, slots=True)
class ModelFingerprint:
    """The part of a fingerprint that is the same for all runs of a loaded model."""

    model_id: str
    model_revision: str
    pipeline_class: str
    weights_hash: str
    text_encoder_id: str
    text_encoder_dtype: DType
    vae_id: str
    latent_packing: str
    expert_boundary: float
    library_versions: str


def fingerprint_model(pipeline: Any, model_id: str, model_revision: str) -> ModelFingerprint:
    """Hashes a loaded pipeline; reads every weight once."""
    modules = {
        name: part
        for name, part in sorted(pipeline.components.items())
        if isinstance(part, torch.nn.Module)
    }
    encoders = {n: m for n, m in modules.items() if n.startswith("text_encoder")}
    denoisers = {n: m for n, m in modules.items() if n not in encoders and n != "vae"}
    tokenizers = {n: t for n, t in sorted(pipeline.components.items()) if n.startswith("tokenizer")}
    return ModelFingerprint(
        model_id=model_id,
        model_revision=model_revision,
        pipeline_class=type(pipeline).__name__,
        weights_hash="+".join(
            [
                f"settings:{_settings_hash(pipeline)}",
                *(f"{n}:{module_hash(m)}" for n, m in denoisers.items()),
            ]
        ),
        text_encoder_id="+".join(
            [
                *(f"{type(m).__name__}:{module_hash(m)}" for m in encoders.values()),
                *(f"{type(t).__name__}:{_tokenizer_hash(t)}" for t in tokenizers.values() if t),
            ]
        ),
        text_encoder_dtype=_dtype_of_modules(list(encoders.values())),
        vae_id=f"{type(pipeline.vae).__name__}:{module_hash(pipeline.vae)}",
        latent_packing="packed" if hasattr(pipeline, "_pack_latents") else "none",
        expert_boundary=float(pipeline.config.get("boundary_ratio") or 0.0),
        library_versions=(
            f"diffusers={diffusers.__version__},torch={torch.__version__},"
            f"transformers={transformers.__version__},ftfy={_ftfy_version()}"
        ),
    )


def with_settings(model: ModelFingerprint, settings: Mapping[str, str]) -> ModelFingerprint:
    """The fingerprint of a model that computes in another way than the libraries do by default."""
    told = [model.library_versions, *(f"{name}={value}" for name, value in settings.items())]
    return dataclasses.replace(model, library_versions=",".join(told))


def fingerprint_run(
    model: ModelFingerprint,
    profile: ModelProfile,
    params: GenerationParams,
    schedule: Schedule,
    latent_shape: tuple[int, ...],
    guidance_mode: GuidanceMode,
    block_cache: str,
    adapters: tuple[AdapterFingerprint, ...] = (),
) -> LatentFingerprint:
    """The fingerprint of a run with parameters whose defaults are filled in.

    Args:
        model: What is the same for all runs.
        profile: The model.
        params: Parameters.
        schedule: Noise levels of the run.
        latent_shape: Shape of the latents in the loop.
        guidance_mode: How guidance is evaluated.
        block_cache: Canonical JSON of the block-cache settings in force; empty when off.
        adapters: Those that the models apply.
    """
    if params.height is None or params.width is None or params.num_inference_steps is None:
        raise ValueError("a fingerprint needs parameters with their defaults filled in")
    if profile.takes_frame_rate:
        model = with_settings(model, {"frame_rate": f"{profile.frame_rate:g}"})
    scales = (params.guidance_scale, params.guidance_scale_2)
    return LatentFingerprint(
        **{field.name: getattr(model, field.name) for field in dataclasses.fields(model)},
        latents=TensorSpec(profile.loop_dtype, latent_shape),
        height=params.height,
        width=params.width,
        num_frames=params.num_frames or 1,
        scheduler_class=schedule.scheduler_class,
        scheduler_config_hash=schedule.config_hash,
        sigmas_hash=schedule.sigmas_hash,
        num_inference_steps=params.num_inference_steps,
        prediction_type=schedule.prediction_type,
        guidance_scales=tuple(float(scale) for scale in scales if scale is not None),
        guidance_mode=guidance_mode,
        negative_prompt=params.negative_prompt,
        reference_hashes=tuple(reference_hash(r) for r in params.reference_inputs),
        block_cache=block_cache,
        policy_version=POLICY_VERSION,
        adapters=adapters,
    )


def module_hash(module: torch.nn.Module) -> str:
    """XXH3 (128 bit) of a module's configuration and of all its tensors, in the order of names."""
    digest = xxhash.xxh3_128()
    config = getattr(module, "config", {})
    settings = config.to_dict() if hasattr(config, "to_dict") else dict(config)
    digest.update(config_hash(settings).encode())
    for name, tensor in sorted(_weights(module).items()):
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}\n".encode())
        # In pieces, so that weights on a device need no second copy on the host.
        for piece in tensor.detach().reshape(-1).split(_CHUNK_ELEMENTS):
            digest.update(piece.contiguous().cpu().view(torch.uint8).numpy())
    return digest.hexdigest()


def _weights(module: torch.nn.Module) -> Mapping[str, Any]:
    """All tensors by name, wherever they are kept while the module does not compute."""
    weights = module.state_dict()
    if any(tensor.is_meta for tensor in weights.values()):
        weights = get_state_dict_offloaded_model(module)
    return weights


def reference_hash(reference: ReferenceInput) -> str:
    """XXH3 (128 bit) of the role and the encoded bytes of a reference input."""
    digest = xxhash.xxh3_128(reference.role.value.encode())
    digest.update(reference.data)
    return digest.hexdigest()


def _settings_hash(pipeline: Any) -> str:
    """Hash of what a pipeline is built with besides models.

    That is flags such as `expand_timesteps`, and settings of processors of reference inputs.
    """
    components = pipeline.components
    settings: dict[str, Any] = {
        name: value for name, value in pipeline.config.items() if name not in components
    }
    for name, part in components.items():
        if part is None or isinstance(part, torch.nn.Module) or name == "scheduler":
            continue
        if hasattr(part, "tokenizer"):
            settings[name] = _tokenizer_hash(part)
        elif hasattr(part, "to_dict"):
            settings[name] = part.to_dict()
        elif isinstance(part, ConfigMixin):  # such as a guider
            settings[name] = config_hash(part.config)
    return config_hash(settings)


def _tokenizer_hash(tokenizer: Any) -> str:
    """Hash of a tokenizer, or of a processor in its place (Flux.2) with the tokenizer it holds."""
    if hasattr(tokenizer, "tokenizer"):
        own = _tokenizer_hash(tokenizer.tokenizer), repr(tokenizer.chat_template)
        return config_hash({"settings": tokenizer.to_dict(), "own": own})
    backend = getattr(tokenizer, "backend_tokenizer", None)
    text = backend.to_str() if backend is not None else repr(sorted(tokenizer.get_vocab().items()))
    digest = xxhash.xxh3_128(text.encode())
    for name in _TOKENIZER_SETTINGS:
        digest.update(f"{name}:{getattr(tokenizer, name, None)!r}\n".encode())
    return digest.hexdigest()


def _ftfy_version() -> str:
    """Version of the library with which some pipelines repair prompts, where it is installed."""
    try:
        return version("ftfy")
    except PackageNotFoundError:
        return "none"


def _dtype_of_modules(modules: list[torch.nn.Module]) -> DType:
    for module in modules:
        for parameter in module.parameters():
            return dtype_of(parameter.dtype)
    return DType.FLOAT32
