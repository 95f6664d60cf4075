"""Dataclasses of ``latents`` <-> messages of ``skipstone/latent/v1``."""

from __future__ import annotations

from skipstone.latent.v1 import latent_pb2
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.latents import (
    AdapterFingerprint,
    GuidanceMode,
    LatentFingerprint,
    LatentRef,
    SnapshotMetadata,
    TensorPart,
    checked_entry_id,
)
from skipstone_shared.optional_fields import new_message
from skipstone_shared.snapshot_rules import checked_metadata
from skipstone_shared.tensor_messages import (
    dtype_from_message,
    dtype_to_message,
    spec_from_message,
    spec_to_message,
)

_GUIDANCE_TO_MESSAGE: dict[GuidanceMode, latent_pb2.GuidanceMode.ValueType] = {
    GuidanceMode.NONE: latent_pb2.GUIDANCE_MODE_NONE,
    GuidanceMode.BATCHED: latent_pb2.GUIDANCE_MODE_BATCHED,
    GuidanceMode.SEPARATE: latent_pb2.GUIDANCE_MODE_SEPARATE,
}
_GUIDANCE_FROM_MESSAGE = {message: mode for mode, message in _GUIDANCE_TO_MESSAGE.items()}


def ref_to_message(ref: LatentRef) -> latent_pb2.LatentRef:
    """The message of a reference."""
    return new_message(
        latent_pb2.LatentRef,
        store=ref.store,
        namespace=ref.namespace,
        entry_id=ref.entry_id,
        step_index=ref.step_index,
        spec=spec_to_message(ref.spec) if ref.spec is not None else None,
        xxh3_64=ref.xxh3_64,
        size_bytes=ref.size_bytes,
        sigma=ref.sigma,
        compatibility_key=ref.compatibility_key,
    )


def ref_from_message(message: latent_pb2.LatentRef) -> LatentRef:
    """The reference of a message.

    Raises:
        InvalidArgument: a bad entry id, step or spec.
    """
    if message.step_index < 0:
        raise InvalidArgument("step_index is negative", field="step_index", allowed="0 and up")
    return LatentRef(
        store=message.store,
        namespace=message.namespace,
        entry_id=checked_entry_id(message.entry_id),
        step_index=message.step_index,
        spec=spec_from_message(message.spec) if message.HasField("spec") else None,
        xxh3_64=message.xxh3_64,
        size_bytes=message.size_bytes,
        sigma=message.sigma,
        compatibility_key=message.compatibility_key,
    )


def metadata_to_message(metadata: SnapshotMetadata) -> latent_pb2.SnapshotMetadata:
    """The message of a snapshot's metadata."""
    return new_message(
        latent_pb2.SnapshotMetadata,
        entry_id=metadata.entry_id,
        step_index=metadata.step_index,
        num_inference_steps=metadata.num_inference_steps,
        sigma=metadata.sigma,
        compatibility_key=metadata.compatibility_key,
        parts=[
            latent_pb2.TensorPart(name=part.name, spec=spec_to_message(part.spec))
            for part in metadata.parts
        ],
        scheduler_state_json=metadata.scheduler_state_json,
        depth=metadata.depth,
    )


def metadata_from_message(message: latent_pb2.SnapshotMetadata) -> SnapshotMetadata:
    """The metadata of a message.

    Raises:
        InvalidArgument: a field is out of its range.
    """
    return checked_metadata(
        SnapshotMetadata(
            entry_id=message.entry_id,
            step_index=message.step_index,
            num_inference_steps=message.num_inference_steps,
            sigma=message.sigma,
            compatibility_key=message.compatibility_key,
            parts=tuple(TensorPart(p.name, spec_from_message(p.spec)) for p in message.parts),
            scheduler_state_json=message.scheduler_state_json,
            depth=message.depth,
        )
    )


def fingerprint_to_message(fingerprint: LatentFingerprint) -> latent_pb2.LatentFingerprint:
    """The message of a fingerprint."""
    return latent_pb2.LatentFingerprint(
        model_id=fingerprint.model_id,
        model_revision=fingerprint.model_revision,
        weights_hash=fingerprint.weights_hash,
        adapters=[
            latent_pb2.AdapterFingerprint(name=a.name, weights_hash=a.weights_hash, scale=a.scale)
            for a in fingerprint.adapters
        ],
        text_encoder_id=fingerprint.text_encoder_id,
        text_encoder_dtype=dtype_to_message(fingerprint.text_encoder_dtype),
        vae_id=fingerprint.vae_id,
        latent_packing=fingerprint.latent_packing,
        latents=spec_to_message(fingerprint.latents),
        height=fingerprint.height,
        width=fingerprint.width,
        num_frames=fingerprint.num_frames,
        scheduler_class=fingerprint.scheduler_class,
        scheduler_config_hash=fingerprint.scheduler_config_hash,
        sigmas_hash=fingerprint.sigmas_hash,
        num_inference_steps=fingerprint.num_inference_steps,
        prediction_type=fingerprint.prediction_type,
        guidance_scales=fingerprint.guidance_scales,
        guidance_mode=_GUIDANCE_TO_MESSAGE[fingerprint.guidance_mode],
        negative_prompt=fingerprint.negative_prompt,
        reference_hashes=fingerprint.reference_hashes,
        expert_boundary=fingerprint.expert_boundary,
        block_cache=fingerprint.block_cache,
        policy_version=fingerprint.policy_version,
        library_versions=fingerprint.library_versions,
        pipeline_class=fingerprint.pipeline_class,
    )


def fingerprint_from_message(message: latent_pb2.LatentFingerprint) -> LatentFingerprint:
    """The fingerprint of a message.

    Raises:
        InvalidArgument: a required enum is unset, or the latents have a bad spec.
    """
    if message.guidance_mode not in _GUIDANCE_FROM_MESSAGE:
        raise InvalidArgument(
            f"guidance_mode {message.guidance_mode} is not a mode",
            field="fingerprint.guidance_mode",
            allowed=", ".join(mode.value for mode in GuidanceMode),
        )
    return LatentFingerprint(
        model_id=message.model_id,
        model_revision=message.model_revision,
        weights_hash=message.weights_hash,
        adapters=tuple(
            AdapterFingerprint(a.name, a.weights_hash, a.scale) for a in message.adapters
        ),
        text_encoder_id=message.text_encoder_id,
        text_encoder_dtype=dtype_from_message(message.text_encoder_dtype),
        vae_id=message.vae_id,
        latent_packing=message.latent_packing,
        latents=spec_from_message(message.latents),
        height=message.height,
        width=message.width,
        num_frames=message.num_frames,
        scheduler_class=message.scheduler_class,
        scheduler_config_hash=message.scheduler_config_hash,
        sigmas_hash=message.sigmas_hash,
        num_inference_steps=message.num_inference_steps,
        prediction_type=message.prediction_type,
        guidance_scales=tuple(message.guidance_scales),
        guidance_mode=_GUIDANCE_FROM_MESSAGE[message.guidance_mode],
        negative_prompt=message.negative_prompt,
        reference_hashes=tuple(message.reference_hashes),
        expert_boundary=message.expert_boundary,
        block_cache=message.block_cache,
        policy_version=message.policy_version,
        library_versions=message.library_versions,
        pipeline_class=message.pipeline_class,
    )
