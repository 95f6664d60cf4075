"""The snapshots and the save of one run, done beside its loop."""

from __future__ import annotations

import dataclasses
import functools
import logging
import threading
from collections.abc import Sequence

from skipstone_client._background_writer import BackgroundWriter
from skipstone_client._reuse_calls import ReuseCalls
from skipstone_client._reuse_flows import Flow
from skipstone_client._reuse_outcome import ReuseOutcome
from skipstone_client.donor_checks import WRITE_REASONS
from skipstone_client.engine_latents import copied_array, spec_of, work_on
from skipstone_client.engine_runs import EngineRun, SolverState
from skipstone_shared.embeddings import EncodedImage
from skipstone_shared.errors import SkipstoneError
from skipstone_shared.frame_samples import Picture, sampled_frames
from skipstone_shared.latents import LATENTS_PART, SnapshotMetadata
from skipstone_shared.request_context import request_scope
from skipstone_shared.snapshot_rules import checked_metadata
from skipstone_shared.tensor_messages import Array, is_finite, parts_of

_NO_SOLVER = SolverState()

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class RunEntry:
    """Where the snapshots of a run go.

    Attributes:
        entry_id: Entry they belong to.
        compatibility_key: Key of the run.
        depth: Resumed runs between its latents and noise.
    """

    entry_id: str
    compatibility_key: str
    depth: int


class RunRecorder:
    """Records one run. Used by the thread of the run; the work is done in the background."""

    def __init__(
        self,
        calls: ReuseCalls,
        writer: BackgroundWriter,
        outcome: ReuseOutcome,
        prompt: str,
        run: EngineRun,
        request_id: str,
    ) -> None:
        """Creates the recorder.

        Args:
            calls: To the services.
            writer: The background.
            outcome: Takes what becomes of it.
            prompt: Prompt of the run.
            run: The run.
            request_id: Under which the services log it.
        """
        self._calls = calls
        self._writer = writer
        self._outcome = outcome
        self._prompt = prompt
        self._run = run
        self._request_id = request_id
        self._given_up = threading.Event()

    @property
    def given_up(self) -> bool:
        """Whether nothing more of the run is stored."""
        return self._given_up.is_set()

    def give_up(self) -> None:
        """Stores nothing more of the run.

        What is written already ends by its lease. It is not deleted: the same request may have
        been saved by another engine meanwhile, under the same id.
        """
        self._given_up.set()

    def record(
        self, entry: RunEntry, step_index: int, latents: object, solver: SolverState | None
    ) -> Flow[None]:
        """Copies latents and has them stored as the snapshot that enters a step."""
        solver = solver or _NO_SOLVER
        try:
            wanted, found = self._run.latents, spec_of(latents)
            if wanted is not None and found != wanted:
                message = (
                    f"SPEC_MISMATCH: latents are {found.dtype.value}{list(found.shape)}, the "
                    f"fingerprint says {wanted.dtype.value}{list(wanted.shape)}"
                )
                self._outcome.fail(step_index, message)
                return
            copy = yield work_on(latents, lambda: copied_array(latents))
            arrays = {LATENTS_PART: copy, **solver.parts}
            metadata = self._metadata(entry, step_index, arrays, solver.state_json)
        except SkipstoneError as error:
            self._outcome.fail(step_index, f"{error.reason}: {error}")
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the run goes on
            self._outcome.fail(step_index, f"NOT_COPIED: {type(error).__name__}: {error}")
            return
        if not self._writer.submit(functools.partial(self._write, metadata, arrays)):
            self._outcome.drop(step_index)

    def save(self, entry: RunEntry, frames: Sequence[Picture] = (), count: int = 0) -> None:
        """Has the entry made findable, after its snapshots.

        Args:
            entry: The entry.
            frames: All frames of what the run made, in order; they must stay as they are.
            count: How many of them it is found by.
        """
        if not self._writer.submit(functools.partial(self._save, entry, frames, count)):
            self._outcome.not_saved("QUEUE_FULL: the background has too much to do")

    def _metadata(
        self, entry: RunEntry, step_index: int, arrays: dict[str, Array], state_json: str
    ) -> SnapshotMetadata:
        return checked_metadata(
            SnapshotMetadata(
                entry_id=entry.entry_id,
                step_index=step_index,
                num_inference_steps=self._run.num_inference_steps,
                sigma=self._run.sigmas[step_index],
                compatibility_key=entry.compatibility_key,
                parts=parts_of(arrays),
                scheduler_state_json=state_json,
                depth=entry.depth,
            )
        )

    def _write(self, metadata: SnapshotMetadata, arrays: dict[str, Array]) -> None:
        step_index = metadata.step_index
        if self.given_up:
            return
        if not all(is_finite(array) for array in arrays.values()):
            self._outcome.fail(step_index, "NOT_FINITE: latents have NaN or infinite values")
            return
        try:
            with request_scope(self._request_id):
                self._calls.write(metadata, arrays)
        except SkipstoneError as error:
            reason = WRITE_REASONS.get(type(error), error.reason)
            self._outcome.fail(step_index, f"{reason}: {error}")
        else:
            self._outcome.wrote()

    def _save(self, entry: RunEntry, frames: Sequence[Picture], count: int) -> None:
        if self.given_up:
            return
        if not self._outcome.written:
            self._outcome.not_saved("NOTHING_STORED: no snapshot of the run is stored")
            return
        try:
            with request_scope(self._request_id):
                self._calls.save(
                    entry.entry_id, self._prompt, self._run, entry.depth, _samples(frames, count)
                )
        except SkipstoneError as error:
            self._outcome.not_saved(f"{error.reason}: {error}")
        else:
            self._outcome.was_saved()


def _samples(frames: Sequence[Picture], count: int) -> tuple[EncodedImage, ...]:
    """Some of the frames; none of what is no picture: the entry is kept without them."""
    if not frames or not count:
        return ()
    try:
        return sampled_frames(frames, count)
    except Exception:  # noqa: BLE001 - whatever an engine calls a frame
        _log.exception("frames cannot be encoded, the entry is saved without them")
        return ()
