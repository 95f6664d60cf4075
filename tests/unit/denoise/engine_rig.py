"""An engine around a tiny pipeline and a store in memory, and one way to run requests on it."""

from __future__ import annotations

import dataclasses
import io
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from skipstone_denoise.config import DenoiseSettings
from skipstone_denoise.diffusers_engine import DiffusersEngine
from skipstone_denoise.engine import never_cancelled
from skipstone_denoise.pipeline_loader import prepared_pipeline
from skipstone_shared.denoise_runs import (
    DenoiseEvent,
    DenoiseFinished,
    DenoiseRequest,
    DenoiseStarted,
    ResumeFrom,
    ResumeKind,
    SnapshotPlan,
)
from skipstone_shared.errors import LatentNotFound
from skipstone_shared.generation import (
    Artifact,
    GenerationParams,
    ReferenceInput,
    ReferenceRole,
)
from skipstone_shared.latents import LATENTS_PART, LatentRef, SnapshotMetadata, checksum
from skipstone_shared.stored_entries import Snapshot
from skipstone_shared.tensor_messages import arrays_from_parts

STEPS = 6
PARAMS = GenerationParams(
    "a red circle", num_inference_steps=STEPS, height=16, width=16, seed=7, guidance_scale=3.0
)
EVERY_STEP = SnapshotPlan("donor", key_steps=tuple(range(1, STEPS)))


class MemoryLatents:
    """A `LatentStore` in a dictionary; tests change what is in it and what it does."""

    def __init__(self) -> None:
        self.snapshots: dict[tuple[str, str, int], Snapshot] = {}
        self.before_read: Callable[[], None] = lambda: None
        self.before_write: Callable[[], None] = lambda: None

    def read_latent(self, namespace: str, ref: LatentRef) -> Snapshot:
        self.before_read()
        try:
            return self.snapshots[namespace, ref.entry_id, ref.step_index]
        except KeyError:
            raise LatentNotFound(f"no latent {ref.entry_id}/{ref.step_index}") from None

    def write_latent(
        self,
        namespace: str,
        metadata: SnapshotMetadata,
        data: Iterable[bytes | memoryview],
        *,
        size_bytes: int,
        xxh3_64: int,
        lease_s: float | None = None,
    ) -> LatentRef:
        self.before_write()
        ref = LatentRef(
            namespace=namespace,
            entry_id=metadata.entry_id,
            step_index=metadata.step_index,
            spec=metadata.parts[0].spec,
            xxh3_64=xxh3_64,
            size_bytes=size_bytes,
            sigma=metadata.sigma,
            compatibility_key=metadata.compatibility_key,
        )
        key = namespace, metadata.entry_id, metadata.step_index
        self.snapshots[key] = Snapshot(ref, metadata, b"".join(data))
        return ref

    def put(self, namespace: str, metadata: SnapshotMetadata, data: bytes) -> LatentRef:
        """Stores bytes under their own checksum."""
        return self.write_latent(
            namespace, metadata, [data], size_bytes=len(data), xxh3_64=checksum(data)
        )

    def array(self, ref: LatentRef) -> npt.NDArray[np.generic]:
        snapshot = self.snapshots[ref.namespace, ref.entry_id, ref.step_index]
        return arrays_from_parts(snapshot.data, snapshot.metadata.parts)[LATENTS_PART]


@dataclasses.dataclass(frozen=True)
class Outcome:
    events: list[DenoiseEvent]

    @property
    def started(self) -> DenoiseStarted:
        assert isinstance(self.events[0], DenoiseStarted)
        return self.events[0]

    @property
    def finished(self) -> DenoiseFinished:
        assert isinstance(self.events[-1], DenoiseFinished)
        return self.events[-1]

    @property
    def picture(self) -> bytes:
        (artifact,) = (event for event in self.events if isinstance(event, Artifact))
        return artifact.data

    @property
    def refs(self) -> dict[int, LatentRef]:
        return {ref.step_index: ref for ref in self.finished.snapshots}


class Rig:
    """One engine with its store."""

    def __init__(self, pipeline: Any, **settings: Any) -> None:
        self.store = MemoryLatents()
        # A loaded machine must not turn a slow test into a failed one.
        patient = {"resume_read_timeout_ms": 20_000, "snapshot_wait_ms": 20_000}
        self.engine = DiffusersEngine(
            prepared_pipeline(pipeline),
            DenoiseSettings(**{"model": "tiny", **patient, **settings}),
            lambda _target: self.store,
        )
        self.pipeline = pipeline

    def run(
        self,
        params: GenerationParams = PARAMS,
        *,
        snapshots: SnapshotPlan | None = None,
        resume: ResumeFrom | None = None,
        cancelled: Callable[[], bool] = never_cancelled,
        **request: Any,
    ) -> Outcome:
        wanted = DenoiseRequest("", params, resume=resume, snapshots=snapshots, **request)
        return Outcome(list(self.engine.run(wanted, cancelled)))

    def run_at_once(self, requests: list[GenerationParams]) -> list[bytes]:
        """The pictures of requests that run beside each other, in their order."""
        pictures: list[bytes] = [b""] * len(requests)

        def work(place: int) -> None:
            pictures[place] = self.run(requests[place]).picture

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(requests))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return pictures


@contextmanager
def open_rig(pipeline: Any, **settings: Any) -> Iterator[Rig]:
    rig = Rig(pipeline, **settings)
    try:
        yield rig
    finally:
        rig.engine.close()


def picture_of(colour: str) -> ReferenceInput:
    """A picture to begin with."""
    buffer = io.BytesIO()
    Image.new("RGB", (64, 64), colour).save(buffer, "PNG")
    return ReferenceInput(ReferenceRole.IMAGE, "image/png", buffer.getvalue())


def trajectory(ref: LatentRef) -> ResumeFrom:
    return ResumeFrom(ref, ref.step_index, ResumeKind.TRAJECTORY)
