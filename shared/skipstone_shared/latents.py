"""Latents and what makes two of them interchangeable, as plain dataclasses.

The messages of ``skipstone/latent/v1/latent.proto`` say what each field means; these classes are
what domain code works with. ``latent_messages`` converts between the two.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from enum import Enum

import ml_dtypes
import numpy as np
import numpy.typing as npt
import xxhash

from skipstone_shared.errors import InvalidArgument

LATENTS_PART = "latents"
"""Name of the first part of every snapshot."""

DEFAULT_NAMESPACE = "default"

ENTRY_ID_PATTERN = re.compile(r"[A-Za-z0-9_.-]{1,128}")
NAMESPACE_PATTERN = re.compile(r"[A-Za-z0-9_.-]{1,64}")
PART_NAME_PATTERN = re.compile(r"[a-z0-9_.]{1,128}")


class DType(Enum):
    """Element type of a tensor; the value is its name in messages, reports and files."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    INT64 = "int64"
    FLOAT64 = "float64"

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The numpy dtype; bfloat16 comes from ml_dtypes, since numpy has none."""
        return _NUMPY_DTYPES[self]

    @property
    def is_floating(self) -> bool:
        """Whether values can be NaN or infinite."""
        return self is not DType.INT64

    @classmethod
    def of(cls, array: npt.NDArray[np.generic]) -> DType:
        """The element type of an array.

        Raises:
            InvalidArgument: the array has another element type.
        """
        try:
            return cls(array.dtype.name)
        except ValueError:
            allowed = ", ".join(d.value for d in cls)
            raise InvalidArgument(
                f"element type {array.dtype.name} cannot be stored", field="dtype", allowed=allowed
            ) from None


_NUMPY_DTYPES: dict[DType, np.dtype[np.generic]] = {
    DType.FLOAT32: np.dtype("<f4"),
    DType.FLOAT16: np.dtype("<f2"),
    DType.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
    DType.INT64: np.dtype("<i8"),
    DType.FLOAT64: np.dtype("<f8"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class TensorSpec:
    """Element type and shape of one tensor; bytes are C order and little-endian."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def num_elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Number of bytes."""
        return self.num_elements * self.dtype.numpy.itemsize


@dataclasses.dataclass(frozen=True, slots=True)
class TensorPart:
    """One named tensor inside a snapshot."""

    name: str
    spec: TensorSpec


@dataclasses.dataclass(frozen=True, slots=True)
class SnapshotMetadata:
    """Everything about a snapshot except its bytes.

    Attributes:
        entry_id: Entry it belongs to.
        step_index: Step this latent enters, 0-based; ``num_inference_steps`` for the clean latent.
        num_inference_steps: Steps of the run it was taken from.
        sigma: Noise level, 0 (clean) and up.
        compatibility_key: 32 hexadecimal digits.
        parts: The tensors in the order of their bytes; the first is named ``latents``.
        scheduler_state_json: Scalars of the scheduler, a JSON object, or empty.
        depth: Resumed runs between this latent and noise; 0 for a full run.
    """

    entry_id: str
    step_index: int
    num_inference_steps: int
    sigma: float
    compatibility_key: str
    parts: tuple[TensorPart, ...]
    scheduler_state_json: str = ""
    depth: int = 0

    @property
    def size_bytes(self) -> int:
        """Bytes of all parts together."""
        return sum(part.spec.size_bytes for part in self.parts)

    @property
    def is_clean(self) -> bool:
        """Whether this is the latent that left the last step."""
        return self.step_index == self.num_inference_steps


@dataclasses.dataclass(frozen=True, slots=True)
class LatentRef:
    """Reference to one stored snapshot: what services pass instead of bytes.

    Attributes:
        store: gRPC target of the store; empty means the receiver's own.
        namespace: Namespace of the entry.
        entry_id: Entry the snapshot belongs to.
        step_index: Step the latent enters.
        spec: Spec of the part named ``latents``; None matches anything.
        xxh3_64: Checksum of all bytes; 0 matches anything.
        size_bytes: Bytes of all parts together.
        sigma: Noise level.
        compatibility_key: Key of the run that wrote it.
    """

    namespace: str
    entry_id: str
    step_index: int
    store: str = ""
    spec: TensorSpec | None = None
    xxh3_64: int = 0
    size_bytes: int = 0
    sigma: float = 0.0
    compatibility_key: str = ""


class GuidanceMode(Enum):
    """How classifier-free guidance is evaluated."""

    NONE = "none"
    BATCHED = "batched"
    SEPARATE = "separate"


@dataclasses.dataclass(frozen=True, slots=True)
class AdapterFingerprint:
    """One adapter (for example a LoRA) as it takes part in a request."""

    name: str
    weights_hash: str
    scale: float


@dataclasses.dataclass(frozen=True, slots=True)
class LatentFingerprint:
    """Everything that makes two latents non-interchangeable; see the proto for each field.

    Two runs may share latents only when all fields are equal. The positive prompt and the seed are
    not part of it.
    """

    model_id: str
    pipeline_class: str
    weights_hash: str
    text_encoder_id: str
    vae_id: str
    latents: TensorSpec
    height: int
    width: int
    scheduler_class: str
    scheduler_config_hash: str
    sigmas_hash: str
    num_inference_steps: int
    prediction_type: str
    guidance_mode: GuidanceMode
    guidance_scales: tuple[float, ...] = ()
    model_revision: str = ""
    adapters: tuple[AdapterFingerprint, ...] = ()
    text_encoder_dtype: DType = DType.FLOAT32
    latent_packing: str = "none"
    num_frames: int = 1
    negative_prompt: str = ""
    reference_hashes: tuple[str, ...] = ()
    expert_boundary: float = 0.0
    block_cache: str = ""
    policy_version: str = ""
    library_versions: str = ""


def compatibility_key(fingerprint: LatentFingerprint) -> str:
    """Hash of a fingerprint: 32 hexadecimal digits. The one function that makes this key.

    Whole numbers given as ints count as the floats that they are once a message carried them.
    """
    as_sent = dataclasses.replace(
        fingerprint,
        guidance_scales=tuple(float(scale) for scale in fingerprint.guidance_scales),
        expert_boundary=float(fingerprint.expert_boundary),
        adapters=tuple(
            dataclasses.replace(adapter, scale=float(adapter.scale))
            for adapter in fingerprint.adapters
        ),
    )
    return canonical_hash(dataclasses.asdict(as_sent))


def canonical_hash(value: object) -> str:
    """XXH3 (128 bit) of the canonical JSON of a value: 32 hexadecimal digits.

    Floats are written by ``repr`` and so compare exactly; enums by value; tuples as lists. NaN and
    infinities are refused, since they would compare unequal to themselves.

    Raises:
        ValueError: a float is not finite.
    """
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_enum_value
    )
    return xxhash.xxh3_128_hexdigest(text.encode())


def _enum_value(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"{type(value).__name__} has no canonical form")


def checksum(*buffers: bytes | memoryview) -> int:
    """XXH3 (64 bit, seed 0) of the concatenation of buffers."""
    digest = xxhash.xxh3_64()
    for buffer in buffers:
        digest.update(buffer)
    return digest.intdigest()


def checked_namespace(namespace: str) -> str:
    """The namespace, ``default`` when it is empty.

    Raises:
        InvalidArgument: it does not match NAMESPACE_PATTERN.
    """
    if not namespace:
        return DEFAULT_NAMESPACE
    if not NAMESPACE_PATTERN.fullmatch(namespace):
        raise InvalidArgument(
            f"namespace {namespace[:80]!r} is not a name",
            field="namespace",
            allowed="1 to 64 characters of [A-Za-z0-9_.-]",
        )
    return namespace


def checked_entry_id(entry_id: str) -> str:
    """The entry id.

    Raises:
        InvalidArgument: it does not match ENTRY_ID_PATTERN.
    """
    if not ENTRY_ID_PATTERN.fullmatch(entry_id):
        raise InvalidArgument(
            f"entry_id {entry_id[:80]!r} is not an entry id",
            field="entry_id",
            allowed="1 to 128 characters of [A-Za-z0-9_.-]",
        )
    return entry_id
