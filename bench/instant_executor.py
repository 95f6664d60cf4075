"""A denoise executor whose model takes no time, so that what surrounds it can be seen and measured.

It is the service of Skipstone with another engine: the same gRPC face, the same client of
latent_kv. A run tells its steps at once, gives an artifact of some bytes, stores the clean latent
(random numbers) as the executor does after it, and reads the donor of a resume. Latents have
`LATENT_FRAME_BYTES` for each of `params.num_frames`, so that a request says how large they are.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import sys
from collections.abc import Callable, Generator
from typing import ClassVar, Final

import ml_dtypes
import numpy as np
from pydantic import Field

from skipstone_client.latent_kv import LatentKVClient
from skipstone_denoise.engine import never_cancelled
from skipstone_denoise.server import mount
from skipstone_denoise.store_directory import StoreDirectory
from skipstone_shared.config import CallerSettings, load_settings
from skipstone_shared.denoise_runs import (
    DenoiseCapabilities,
    DenoiseEvent,
    DenoiseFinished,
    DenoiseRequest,
    DenoiseStarted,
    DenoiseStats,
    GenerationPlan,
    ResumeKind,
    SchedulerResume,
    SnapshotPlan,
)
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import Artifact, GenerationParams, StepProgress
from skipstone_shared.grpc_server import Mounted, serve
from skipstone_shared.latents import (
    LATENTS_PART,
    GuidanceMode,
    LatentFingerprint,
    LatentRef,
    SnapshotMetadata,
    canonical_hash,
    compatibility_key,
)
from skipstone_shared.tensor_messages import Array, array_spec, parts_of

_FRAME: Final = (16, 64, 64)
LATENT_FRAME_BYTES: Final = 2 * 16 * 64 * 64
"""Bytes of latents for each of the frames that a request asks for."""

_MAX_FRAMES = 1024
_KINDS = (ResumeKind.RENOISE, ResumeKind.DECODE)


class InstantSettings(CallerSettings):
    """Runs no model: for benchmarks."""

    service_name: ClassVar[str] = "denoise"

    latent_kv_target: str = ""
    """gRPC target of the latent_kv service."""

    artifact_bytes: int = Field(default=100_000, ge=1)
    """Bytes of the picture or video of a run."""


class InstantEngine:
    """A `DenoiseEngine` that computes nothing. For any thread."""

    def __init__(self, stores: Callable[[str], LatentKVClient], artifact_bytes: int) -> None:
        """Takes the stores that snapshots go to and donors come from."""
        self._stores = stores
        noise = np.random.default_rng(0).bytes(artifact_bytes)
        self._artifact = Artifact("image/png", noise, 64, 64)
        self._finished = itertools.count(1)
        self._last = 0

    def get_capabilities(self) -> DenoiseCapabilities:
        """Those of a model that skips any step."""
        return DenoiseCapabilities(
            instance_id="instant",
            model_id="instant",
            pipeline_class="Instant",
            scheduler_class="FlowMatchEulerDiscreteScheduler",
            default_steps=4,
            max_steps=1000,
            default_guidance_scale=1.0,
            default_height=64,
            default_width=64,
            size_multiple=64,
            min_size=64,
            max_size=64,
            max_concurrent_requests=64,
            resume_kinds=_KINDS,
            scheduler_resume=SchedulerResume.EXACT,
            max_num_frames=_MAX_FRAMES,
        )

    def plan(self, params: GenerationParams) -> GenerationPlan:
        """Fills in what is not given."""
        steps, frames = params.num_inference_steps or 4, params.num_frames or 1
        if not 1 <= frames <= _MAX_FRAMES:
            raise InvalidArgument(f"params.num_frames is {frames}", field="params.num_frames")
        about = LatentFingerprint(
            model_id="instant",
            pipeline_class="Instant",
            weights_hash="none",
            text_encoder_id="none",
            vae_id="none",
            latents=array_spec(_latents(frames)),
            height=64,
            width=64,
            scheduler_class="FlowMatchEulerDiscreteScheduler",
            scheduler_config_hash="none",
            sigmas_hash=canonical_hash(steps),
            num_inference_steps=steps,
            prediction_type="flow",
            guidance_mode=GuidanceMode.NONE,
            num_frames=frames,
        )
        return GenerationPlan(
            params=dataclasses.replace(
                params, num_inference_steps=steps, num_frames=frames, seed=None
            ),
            fingerprint=about,
            compatibility_key=compatibility_key(about),
            sigmas=tuple(1 - step / steps for step in range(steps + 1)),
            resume_kinds=_KINDS,
            instance_id="instant",
        )

    def run(
        self, request: DenoiseRequest, cancelled: Callable[[], bool] = never_cancelled
    ) -> Generator[DenoiseEvent, None, None]:
        """Tells all that a run tells, at once."""
        plan, skipped = self.plan(request.params), 0
        steps = len(plan.sigmas) - 1
        if request.resume is not None:
            resume = request.resume
            self._stores(resume.donor.store).read_latent(request.namespace, resume.donor)
            skipped = steps if resume.kind is ResumeKind.DECODE else resume.skip_steps
        yield DenoiseStarted(skipped)
        for step in range(skipped, steps):
            yield StepProgress(step, steps, 0.0, False)
        if request.wants_artifact:
            yield self._artifact
        kept = () if request.snapshots is None else self._keep(request, request.snapshots, plan)
        self._last = next(self._finished)
        yield DenoiseFinished(steps - skipped, skipped, plan.compatibility_key, kept)

    def _keep(
        self, request: DenoiseRequest, wanted: SnapshotPlan, plan: GenerationPlan
    ) -> tuple[LatentRef, ...]:
        """Stores the clean latent; other steps are not asked for by default."""
        steps = len(plan.sigmas) - 1
        arrays = {LATENTS_PART: _latents(plan.fingerprint.num_frames)}
        about = SnapshotMetadata(
            wanted.entry_id, steps, steps, 0.0, plan.compatibility_key, parts_of(arrays)
        )
        store = self._stores(wanted.store)
        ref = store.write_arrays(request.namespace, about, arrays, lease_s=wanted.lease_s)
        return (dataclasses.replace(ref, store=wanted.store),)

    def compare_latents(self, first: LatentRef, second: LatentRef, namespace: str = "") -> float:
        """All latents of a size are equal."""
        return 0.0

    def get_stats(self) -> DenoiseStats:
        """Runs so far."""
        return DenoiseStats(finished_count=self._last)

    def close(self) -> None:
        """Nothing runs on after its caller."""


@functools.cache
def _latents(frames: int) -> Array:
    values = np.random.default_rng(0).standard_normal((1, _FRAME[0], frames, *_FRAME[1:]))
    return values.astype(ml_dtypes.bfloat16)


def _build(settings: InstantSettings) -> Mounted:
    stores = StoreDirectory(settings.latent_kv_target, settings.credentials())
    return mount(InstantEngine(stores, settings.artifact_bytes), [stores.close])


if __name__ == "__main__":
    _settings = load_settings(InstantSettings)
    sys.exit(serve(_settings, lambda: _build(_settings)))
