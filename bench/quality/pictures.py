"""Pictures of the executor's own engine, each made once and kept, so that a stopped run goes on."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from skipstone_bundled.captions import read_caption
from skipstone_bundled.checker import check_scene
from skipstone_denoise.config import DenoiseSettings
from skipstone_denoise.diffusers_engine import DiffusersEngine
from skipstone_denoise.pipeline_loader import load_pipeline
from skipstone_latent_kv.lmdb_store import LmdbStore
from skipstone_shared.denoise_runs import (
    DenoiseFinished,
    DenoiseRequest,
    DenoiseStarted,
    GenerationPlan,
    ResumeFrom,
    ResumeKind,
    SnapshotPlan,
)
from skipstone_shared.errors import EntryNotFound
from skipstone_shared.generation import (
    Artifact,
    BlockCacheConfig,
    BlockCachePreset,
    GenerationParams,
)
from skipstone_shared.latents import LatentRef, canonical_hash

MODEL: Final = Path("models/skipstone-scenes")
GUIDANCE_SCALE: Final = 3.0
NAMESPACE: Final = "quality"
PATIENT_MS: Final = 60_000
"""No deadline of a store may decide how a picture comes out."""

Pixels = npt.NDArray[np.float32]
"""`(64, 64, 3)`, RGB, 0 to 255."""


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """What decides a picture.

    Attributes:
        prompt: Caption.
        seed: Of the noise.
        steps: N of the schedule.
        preset: Block caching; None for none.
        donor: Full run whose snapshot this one starts from; None from noise.
        skip_steps: Steps not run.
        kind: How the donor's snapshot is used.
    """

    prompt: str
    seed: int
    steps: int
    preset: BlockCachePreset | None = None
    donor: Run | None = None
    skip_steps: int = 0
    kind: ResumeKind | None = None

    def params(self) -> GenerationParams:
        """The parameters of the request."""
        return GenerationParams(
            self.prompt,
            num_inference_steps=self.steps,
            guidance_scale=GUIDANCE_SCALE,
            seed=self.seed,
            block_cache=BlockCacheConfig(preset=self.preset) if self.preset else None,
        )

    @property
    def donor_step(self) -> int:
        """Step whose snapshot of the donor is used."""
        return self.skip_steps if self.kind is ResumeKind.TRAJECTORY else self.steps


@dataclasses.dataclass(frozen=True, slots=True)
class Picture:
    """What a run gave.

    Attributes:
        run_id: Name of its file.
        executed_steps: Steps that ran.
        full_calls: The same as full denoiser calls: block caching runs a share of the blocks.
        attributes: Per attribute asked for, whether the picture has it: of every object colour,
            place, shape and size, then background and number of objects.
        seconds: It took.
    """

    run_id: str
    executed_steps: int
    full_calls: float
    attributes: tuple[bool, ...]
    seconds: float


class PictureStore:
    """Pictures made so far and the latents they can donate, in a folder."""

    def __init__(self, folder: Path) -> None:
        """Opens it.

        Args:
            folder: Made if need be.
        """
        self._journal = folder / "pictures.jsonl"
        self._files = folder / "pictures"
        self._files.mkdir(parents=True, exist_ok=True)
        self.latents = LmdbStore(folder / "latents")
        self._pictures: dict[str, Picture] = {}
        if self._journal.exists():
            for line in self._journal.read_text().splitlines():
                row = json.loads(line)
                picture = Picture(**{**row, "attributes": tuple(row["attributes"])})
                self._pictures[picture.run_id] = picture

    def get(self, run_id: str) -> Picture | None:
        """A picture's record; None when it was not made yet."""
        return self._pictures.get(run_id)

    def pixels(self, run_id: str) -> Pixels:
        """A picture that was made."""
        with Image.open(self._path(run_id)) as image:
            return np.asarray(image.convert("RGB"), dtype=np.float32)

    def add(self, picture: Picture, artifact: Artifact) -> None:
        """Keeps a picture: the file first, since the record is what counts."""
        self._path(picture.run_id).write_bytes(artifact.data)
        with self._journal.open("a") as file:
            file.write(json.dumps(dataclasses.asdict(picture)) + "\n")
        self._pictures[picture.run_id] = picture

    def close(self) -> None:
        """Closes the latents."""
        self.latents.close()

    def _path(self, run_id: str) -> Path:
        return self._files / f"{run_id}.png"


class Studio:
    """Makes pictures that the store has not got; nothing is computed twice."""

    def __init__(self, store: PictureStore, threads: int) -> None:
        """Loads the engine.

        Args:
            store: Where pictures are kept.
            threads: CPU threads of one operation.
        """
        torch.set_num_threads(threads)
        settings = DenoiseSettings(
            model=str(MODEL),
            max_concurrent_requests=1,
            resume_read_timeout_ms=PATIENT_MS,
            snapshot_write_timeout_ms=PATIENT_MS,
            snapshot_wait_ms=PATIENT_MS,
        )
        self._store = store
        self._engine = DiffusersEngine(
            load_pipeline(
                settings.model, revision="", allow_download=False, device="cpu", dtype="float32"
            ),
            settings,
            lambda target: store.latents,
        )
        self._weights = weights_hash()
        self._plans: dict[tuple[int, BlockCachePreset | None], GenerationPlan] = {}

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the engine and closes the store."""
        self._engine.close()
        self._store.close()

    def plan(self, run: Run) -> GenerationPlan:
        """The plan of a run; that of its schedule and block caching."""
        key = run.steps, run.preset
        if key not in self._plans:
            self._plans[key] = self._engine.plan(run.params())
        return self._plans[key]

    def run_id(self, run: Run) -> str:
        """Name of a run: a hash of all that decides its picture, the code apart."""
        donor = self.run_id(run.donor) if run.donor else ""
        settings = self.plan(run).fingerprint.block_cache
        return canonical_hash(
            [self._weights, run.prompt, run.seed, run.steps, settings, donor, run.skip_steps,
             run.kind.value if run.kind else ""]
        )  # fmt: skip

    def has(self, run: Run) -> bool:
        """Whether a run's picture was made before."""
        return self._store.get(self.run_id(run)) is not None

    def pixels(self, run: Run) -> Pixels:
        """A picture that was made before."""
        return self._store.pixels(self.run_id(run))

    def picture(self, run: Run) -> Picture:
        """The record of a run's picture, which is made now if it was not before."""
        run_id = self.run_id(run)
        return self._store.get(run_id) or self._make(run, run_id)

    def _make(self, run: Run, run_id: str, key_steps: tuple[int, ...] = ()) -> Picture:
        resume = None
        if run.donor is not None:
            assert run.kind is not None, "a run with a donor says how it is used"
            resume = ResumeFrom(self._donated(run), run.skip_steps, run.kind)
        snapshots = SnapshotPlan(run_id, key_steps) if run.donor is None else None
        began = time.perf_counter()
        request = DenoiseRequest(NAMESPACE, run.params(), resume=resume, snapshots=snapshots)
        artifact, finished = _outcome(self._engine.run(request), run)
        seconds = time.perf_counter() - began
        if snapshots is not None:
            self._store.latents.commit_entry(NAMESPACE, run_id)
        picture = Picture(
            run_id,
            finished.executed_steps,
            _full_calls(finished),
            attributes_of(artifact, run.prompt),
            round(seconds, 4),
        )
        self._store.add(picture, artifact)
        return picture

    def _donated(self, run: Run) -> LatentRef:
        """The donor's snapshot; the donor runs again where an earlier version wrote it."""
        assert run.donor is not None, "asked for runs that have one"
        donor_id, key = self.run_id(run.donor), self.plan(run).compatibility_key
        for _ in range(2):
            for ref in self._stored(donor_id):
                if ref.step_index == run.donor_step and ref.compatibility_key == key:
                    return ref
            steps = () if run.donor_step == run.steps else (run.donor_step,)
            self._make(run.donor, donor_id, steps)
        raise AssertionError(f"the donor stored no snapshot of step {run.donor_step}")

    def _stored(self, run_id: str) -> Iterator[LatentRef]:
        try:
            entry = self._store.latents.get_entry(NAMESPACE, run_id)
        except EntryNotFound:
            return
        yield from (snapshot.ref for snapshot in entry.snapshots)


def _outcome(events: Iterator[Any], run: Run) -> tuple[Artifact, DenoiseFinished]:
    """The picture and how it went; a refused donor or a lost snapshot would spoil the figures."""
    artifact: Artifact | None = None
    for event in events:
        if isinstance(event, DenoiseStarted) and event.skip_steps != run.skip_steps:
            raise RuntimeError(f"donor refused: {event.refusal_reason}: {event.refusal_message}")
        if isinstance(event, Artifact):
            artifact = event
        if isinstance(event, DenoiseFinished):
            if event.snapshot_failures:
                raise RuntimeError(f"snapshot not stored: {event.snapshot_failures[0]}")
            assert artifact is not None, "a finished run has a picture"
            return artifact, event
    raise AssertionError("a run ends with DenoiseFinished")


def _full_calls(finished: DenoiseFinished) -> float:
    report = finished.block_cache
    if report is None or not report.block_calls_full:
        return float(finished.executed_steps)
    return finished.executed_steps * report.block_calls / report.block_calls_full


def attributes_of(artifact: Artifact, caption: str) -> tuple[bool, ...]:
    """Per attribute that a caption asks for, whether the picture has it."""
    with Image.open(io.BytesIO(artifact.data)) as image:
        check = check_scene(image.convert("RGB"), read_caption(caption))
    objects = [(item.colour, item.place, item.shape, item.size) for item in check.objects]
    return (*(held for item in objects for held in item), check.background, check.count)


def weights_hash() -> str:
    """Hash of the bundled model's weights."""
    digest = hashlib.sha256()
    for path in sorted(MODEL.glob("*/*.safetensors")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
