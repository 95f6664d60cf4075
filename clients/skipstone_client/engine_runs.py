"""What an engine that denoises itself says of a run, and what it is told of its reuse."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from skipstone_shared.latents import DType, LatentFingerprint, TensorSpec
from skipstone_shared.noise_shares import FLOW
from skipstone_shared.orchestration import Fallback, HitTier, ReuseKind
from skipstone_shared.tensor_messages import Array

UNKNOWN_LATENTS = TensorSpec(DType.FLOAT32, ())
"""Stands in a fingerprint where an engine does not know the shape of its latents yet. Then the
other fields must tell it (height, width, frames, packing), and the engine checks what it gets."""


@dataclasses.dataclass(frozen=True, slots=True)
class EngineRun:
    """One run of an engine.

    Attributes:
        fingerprint: Everything but prompt and seed that its latents depend on.
        sigmas: Noise level entering each step and that of the clean latent:
            ``num_inference_steps + 1`` values, 0 and up; for flow matching the share of noise, 0 to
            1, else noise over signal.
        seed: Seed of its noise, 0 to 2**63 - 1.
    """

    fingerprint: LatentFingerprint
    sigmas: tuple[float, ...]
    seed: int

    @property
    def num_inference_steps(self) -> int:
        """N."""
        return self.fingerprint.num_inference_steps

    @property
    def latents(self) -> TensorSpec | None:
        """Element type and shape of its latents; None when they are not known."""
        return self.fingerprint.latents if self.fingerprint.latents.shape else None

    @property
    def is_flow(self) -> bool:
        """Whether its model is one of flow matching."""
        return self.fingerprint.prediction_type == FLOW


@dataclasses.dataclass(frozen=True, slots=True)
class SolverState:
    """What a multistep solver remembers beside the latents.

    Attributes:
        parts: Tensors by name, 1 to 128 characters of ``[a-z0-9_.]``, none named ``latents``.
        state_json: Scalars as a JSON object of up to 16 KiB, or empty.
    """

    parts: Mapping[str, Array] = dataclasses.field(default_factory=dict)
    state_json: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Donor:
    """A stored latent that was read, checked, and may be started from.

    Attributes:
        kind: How it is used: its trajectory is continued, or it is clean and to be renoised; None
            for the exact tier: it is clean and the very result.
        start_step: Step the run starts at; ``num_inference_steps`` for the exact tier.
        latents: The latents, over bytes of their own.
        solver: What its solver remembered; empty unless its engine stored it.
        depth: Resumed runs between it and noise.
    """

    kind: ReuseKind | None
    start_step: int
    latents: Array
    solver: SolverState
    depth: int


@dataclasses.dataclass(frozen=True, slots=True)
class ReuseProvenance:
    """Where a run started, why there, and what became of its snapshots so far.

    Attributes:
        request_id: The id under which all services log the request.
        tier: ``MISS`` also where a donor was found and could not be used.
        reason: Why, as ``Provenance.reason`` of the orchestrator or of a refused donor.
        skip_steps: Steps not run.
        kind: How the donor is used; None from noise and for the exact tier.
        similarity: Of the donor, or of the best candidate.
        rerank_score: What the gate gave it.
        donor_entry_id: The donor; empty on a miss.
        entry_id: Entry that the run is stored under; empty when nothing is stored.
        compatibility_key: Key of the run; empty when the lookup failed.
        fallbacks: What went wrong on the way to the start.
        failures: Why snapshots are not stored, by step.
        saved: Whether the entry can be found; None until that is known.
        save_failure: Why it cannot.
    """

    request_id: str
    tier: HitTier
    reason: str
    skip_steps: int = 0
    kind: ReuseKind | None = None
    similarity: float | None = None
    rerank_score: float | None = None
    donor_entry_id: str = ""
    entry_id: str = ""
    compatibility_key: str = ""
    fallbacks: tuple[Fallback, ...] = ()
    failures: Mapping[int, str] = dataclasses.field(default_factory=dict)
    saved: bool | None = None
    save_failure: str = ""
