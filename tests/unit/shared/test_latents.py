"""Keys, checksums and tensor layout: what decides whether two latents may be exchanged."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from skipstone.latent.v1 import latent_pb2
from skipstone_shared.errors import DataCorrupt, InvalidArgument
from skipstone_shared.latent_messages import (
    fingerprint_from_message,
    fingerprint_to_message,
    metadata_from_message,
    metadata_to_message,
    ref_from_message,
    ref_to_message,
)
from skipstone_shared.latents import (
    AdapterFingerprint,
    DType,
    GuidanceMode,
    LatentFingerprint,
    LatentRef,
    SnapshotMetadata,
    TensorPart,
    TensorSpec,
    canonical_hash,
    checked_entry_id,
    checked_namespace,
    checksum,
    compatibility_key,
)
from skipstone_shared.tensor_messages import (
    array_bytes,
    array_from_bytes,
    array_spec,
    arrays_from_parts,
    dtype_from_message,
    is_finite,
    parts_of,
    spec_from_message,
    spec_to_message,
    vector_from_bytes,
)

FINGERPRINT = LatentFingerprint(
    model_id="scenes",
    pipeline_class="CogView4Pipeline",
    weights_hash="aa",
    text_encoder_id="GlmModel-bb",
    vae_id="AutoencoderKL-cc",
    latents=TensorSpec(DType.FLOAT32, (1, 8, 16, 16)),
    height=64,
    width=64,
    scheduler_class="FlowMatchEulerDiscreteScheduler",
    scheduler_config_hash="dd",
    sigmas_hash="ee",
    num_inference_steps=30,
    prediction_type="flow",
    guidance_mode=GuidanceMode.SEPARATE,
    guidance_scales=(5.0,),
    adapters=(AdapterFingerprint("style", "ff", 0.5),),
)
CHANGES: dict[str, Any] = {
    "model_id": "other",
    "pipeline_class": "SD3",
    "weights_hash": "ab",
    "text_encoder_id": "x",
    "vae_id": "x",
    "latents": TensorSpec(DType.FLOAT16, (1, 8, 16, 16)),
    "height": 128,
    "width": 128,
    "scheduler_class": "x",
    "scheduler_config_hash": "x",
    "sigmas_hash": "x",
    "num_inference_steps": 31,
    "prediction_type": "epsilon",
    "guidance_mode": GuidanceMode.BATCHED,
    "guidance_scales": (5.0000001,),
    "model_revision": "x",
    "adapters": (AdapterFingerprint("style", "ff", 0.6),),
    "text_encoder_dtype": DType.BFLOAT16,
    "latent_packing": "flux_2x2",
    "num_frames": 5,
    "negative_prompt": "blurry",
    "reference_hashes": ("x",),
    "expert_boundary": 0.875,
    "block_cache": "{}",
    "policy_version": "x",
    "library_versions": "diffusers=0.43",
}
METADATA = SnapshotMetadata(
    entry_id="x1",
    step_index=4,
    num_inference_steps=30,
    sigma=0.75,
    compatibility_key=compatibility_key(FINGERPRINT),
    parts=(TensorPart("latents", TensorSpec(DType.BFLOAT16, (1, 4))),),
    scheduler_state_json='{"lower_order_nums": 2}',
    depth=1,
)
DTYPES = [DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16, DType.INT64, DType.FLOAT64]


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(LatentFingerprint)])
def test_every_field_of_a_fingerprint_changes_the_key(field: str) -> None:
    changed = dataclasses.replace(FINGERPRINT, **{field: CHANGES[field]})
    assert compatibility_key(changed) != compatibility_key(FINGERPRINT)


def test_the_key_is_the_same_on_both_sides_of_the_wire() -> None:
    restored = fingerprint_from_message(fingerprint_to_message(FINGERPRINT))
    assert restored == FINGERPRINT
    assert compatibility_key(restored) == compatibility_key(FINGERPRINT)
    assert len(compatibility_key(FINGERPRINT)) == 32


def test_a_whole_number_given_as_an_int_has_the_key_that_its_message_has() -> None:
    """An engine computes the key of what it built, the orchestrator that of what it received."""
    ints = dataclasses.replace(
        FINGERPRINT,
        guidance_scales=(5,),
        expert_boundary=1,
        adapters=(AdapterFingerprint("style", "ff", 1),),
    )
    restored = fingerprint_from_message(fingerprint_to_message(ints))
    assert compatibility_key(restored) == compatibility_key(ints)


def test_a_value_that_is_not_finite_has_no_key() -> None:
    with pytest.raises(ValueError):
        canonical_hash({"guidance": math.nan})


def test_the_checksum_of_parts_is_that_of_the_whole() -> None:
    assert checksum(b"ab", b"c") == checksum(b"abc") != checksum(b"abd")


def test_references_and_metadata_come_back_as_they_were_sent() -> None:
    ref = LatentRef("default", "x1", 4, "host:1", METADATA.parts[0].spec, 2**64 - 1, 8, 0.75, "k")
    assert ref_from_message(ref_to_message(ref)) == ref
    assert metadata_from_message(metadata_to_message(METADATA)) == METADATA


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("entry_id", "../etc"),
        ("step_index", 31),
        ("sigma", math.nan),
        ("num_inference_steps", 0),
        ("parts", ()),
        ("parts", (TensorPart("noise", TensorSpec(DType.FLOAT32, (1,))),)),
        ("parts", (TensorPart("latents", TensorSpec(DType.INT64, (1,))),)),
        ("parts", METADATA.parts * 2),
    ],
)
def test_bad_metadata_is_refused(field: str, value: Any) -> None:
    message = metadata_to_message(dataclasses.replace(METADATA, **{field: value}))
    with pytest.raises(InvalidArgument):
        metadata_from_message(message)


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_keep_every_bit(dtype: DType) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(dtype.numpy)
    restored = array_from_bytes(bytes(array_bytes(array)), array_spec(array))
    assert restored.dtype == array.dtype
    assert restored.tobytes() == array.tobytes()


def test_an_array_of_any_layout_is_written_in_c_order() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3).T
    assert bytes(array_bytes(array)) == np.ascontiguousarray(array).tobytes()


def test_parts_are_cut_where_they_were_joined() -> None:
    arrays = {
        "latents": np.ones((2, 2), ml_dtypes.bfloat16),
        "scheduler.last_sample": np.full((3,), 7.0, np.float32),
    }
    data = b"".join(bytes(array_bytes(array)) for array in arrays.values())
    restored = arrays_from_parts(data, parts_of(arrays))
    assert list(restored) == list(arrays)
    assert all(restored[name].tobytes() == arrays[name].tobytes() for name in arrays)
    with pytest.raises(DataCorrupt):
        arrays_from_parts(data[:-1], parts_of(arrays))


def test_an_element_type_that_cannot_be_stored_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        array_spec(np.zeros(2, np.complex64))
    with pytest.raises(InvalidArgument):
        dtype_from_message(latent_pb2.DTYPE_UNSPECIFIED)


@pytest.mark.parametrize("shape", [(2, 0), (-1,), (1,) * 33])
def test_a_shape_that_no_array_has_is_refused(shape: tuple[int, ...]) -> None:
    message = spec_to_message(TensorSpec(DType.FLOAT32, shape))
    with pytest.raises(InvalidArgument) as raised:
        spec_from_message(message)
    assert raised.value.field == "shape"


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.is_floating])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_one_value_that_is_not_finite_is_seen(dtype: DType, bad: float) -> None:
    array = np.zeros(5, dtype.numpy)
    assert is_finite(array)
    array[3] = bad
    assert not is_finite(array)


def test_a_large_double_is_finite() -> None:
    assert is_finite(np.array([1e300]))


def test_vectors_need_whole_floats() -> None:
    for data in (b"", b"abc"):
        with pytest.raises(InvalidArgument):
            vector_from_bytes(data)


def test_names_are_checked() -> None:
    assert checked_namespace("") == "default"
    for bad in ("a/b", "x" * 65, "ü"):
        with pytest.raises(InvalidArgument):
            checked_namespace(bad)
    for bad in ("", "x" * 129, "a b"):
        with pytest.raises(InvalidArgument):
            checked_entry_id(bad)
