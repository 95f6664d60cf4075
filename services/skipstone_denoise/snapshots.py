"""Snapshots of a run, stored beside the denoising and never at its expense."""

from __future__ import annotations

import contextvars
import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait

import torch

from skipstone_client.donor_checks import WRITE_REASONS
from skipstone_client.torch_arrays import to_array
from skipstone_denoise.latent_store import LatentStores
from skipstone_denoise.planning import RunPlan
from skipstone_denoise.scheduler_resume import SolverHistory
from skipstone_shared import errors
from skipstone_shared.denoise_runs import (
    SchedulerResume,
    SnapshotFailure,
    SnapshotPlan,
    SnapshotWritten,
)
from skipstone_shared.latents import LATENTS_PART, LatentRef, SnapshotMetadata, checksum
from skipstone_shared.request_context import current_request_id, request_scope
from skipstone_shared.structured_logging import get_logger
from skipstone_shared.tensor_messages import Array, array_bytes, array_spec, is_finite, parts_of


class SnapshotWriter:
    """Stores snapshots on threads of its own. Threads may share it."""

    def __init__(
        self, stores: LatentStores, *, write_timeout_s: float, max_writes: int, queue_size: int
    ) -> None:
        """Creates the writer.

        Args:
            stores: Where snapshots go.
            write_timeout_s: Seconds one snapshot may take.
            max_writes: Writes at once, over all runs.
            queue_size: Snapshots of one run that may be on their way.
        """
        self._stores = stores
        self._write_timeout_s = write_timeout_s
        self.queue_size = queue_size
        self._pool = ThreadPoolExecutor(max_writes, thread_name_prefix="snapshot")

    def submit(
        self,
        namespace: str,
        plan: SnapshotPlan,
        metadata: SnapshotMetadata,
        arrays: Mapping[str, Array],
    ) -> Future[LatentRef]:
        """Stores one snapshot soon; the future has its reference, or what went wrong."""
        write = functools.partial(
            self._write, namespace, plan, metadata, arrays, current_request_id()
        )
        return self._pool.submit(contextvars.copy_context().run, write)

    def close(self) -> None:
        """Ends the threads when what is being written is written."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _write(
        self,
        namespace: str,
        plan: SnapshotPlan,
        metadata: SnapshotMetadata,
        arrays: Mapping[str, Array],
        request_id: str | None,
    ) -> LatentRef:
        data = [array_bytes(array) for array in arrays.values()]
        with request_scope(request_id, self._write_timeout_s):
            ref = self._stores(plan.store).write_latent(
                namespace,
                metadata,
                data,
                size_bytes=metadata.size_bytes,
                xxh3_64=checksum(*data),
                lease_s=plan.lease_s,
            )
        return dataclasses.replace(ref, store=plan.store)


class SnapshotRecorder:
    """The snapshots of one run. Used by the thread of the run, except where said."""

    def __init__(
        self,
        writer: SnapshotWriter,
        namespace: str,
        request: SnapshotPlan,
        plan: RunPlan,
        resume: SchedulerResume,
        *,
        depth: int,
        on_written: Callable[[SnapshotWritten], None],
    ) -> None:
        """Creates the recorder.

        Args:
            writer: Stores them.
            namespace: Where to.
            request: Which steps.
            plan: Plan of the run.
            resume: Whether latents of its scheduler can be gone on from.
            depth: Resumed runs between this run's latents and noise.
            on_written: Called in a thread of the writer for each snapshot that is stored.
        """
        self._writer = writer
        self._namespace = namespace
        self._request = request
        self._plan = plan
        self._resume = resume
        self._depth = depth
        self._on_written = on_written
        self._wanted = set(request.key_steps)
        if request.store_clean:
            self._wanted.add(plan.num_inference_steps)
        self._pending: dict[int, Future[LatentRef]] = {}
        self._failures: dict[int, SnapshotFailure] = {}
        self._telling = threading.Lock()
        self._tells = True

    def wants(self, step_index: int) -> bool:
        """Whether the latent that enters a step is to be stored."""
        return step_index in self._wanted

    def record(self, step_index: int, latents: torch.Tensor, history: SolverHistory | None) -> None:
        """Copies the latent that enters a step and has it stored; returns at once.

        Args:
            step_index: The step; `num_inference_steps` for the clean latent.
            latents: Latents in the layout of the loop.
            history: Solver history at this step, if the scheduler needs one.
        """
        clean = step_index == self._plan.num_inference_steps
        if self._resume is SchedulerResume.UNSUPPORTED and not clean:
            name = self._plan.schedule.scheduler_class
            self._fail(step_index, "SCHEDULER_UNSUPPORTED", f"runs of {name} are not resumed")
            return
        if sum(not future.done() for future in self._pending.values()) >= self._writer.queue_size:
            self._fail(step_index, "QUEUE_FULL", "earlier snapshots are still on their way")
            return
        arrays = {LATENTS_PART: to_array(latents)}
        # What comes after the clean latent is decoded, so no solver goes on from it.
        if history is not None and not clean:
            arrays.update(history.arrays)
        problem = self._problem(arrays)
        if problem is not None:
            self._fail(step_index, *problem)
            return
        metadata = SnapshotMetadata(
            entry_id=self._request.entry_id,
            step_index=step_index,
            num_inference_steps=self._plan.num_inference_steps,
            sigma=self._plan.plan.sigmas[step_index],
            compatibility_key=self._plan.plan.compatibility_key,
            parts=parts_of(arrays),
            scheduler_state_json=history.state_json if history is not None and not clean else "",
            depth=self._depth,
        )
        future = self._writer.submit(self._namespace, self._request, metadata, arrays)
        self._pending[step_index] = future
        future.add_done_callback(self._tell)

    def stop_telling(self) -> None:
        """After this returns `on_written` is not called any more."""
        with self._telling:
            self._tells = False

    def finish(self, timeout_s: float) -> tuple[tuple[LatentRef, ...], tuple[SnapshotFailure, ...]]:
        """Waits for what is on its way; returns what is stored and what is not, by step."""
        wait(self._pending.values(), timeout_s)
        # What is stored only from now on is reported as late, so it must not be told as written.
        self.stop_telling()
        refs = []
        for step_index, future in sorted(self._pending.items()):
            ref = self._outcome(step_index, future)
            if ref is not None:
                refs.append(ref)
        failures = tuple(failure for _, failure in sorted(self._failures.items()))
        if failures:
            first = failures[0]
            get_logger().warning(
                "snapshots not stored",
                count=len(failures),
                reason=first.reason,
                error=first.message,
            )
        return tuple(refs), failures

    def abandon(self) -> None:
        """Gives up what has not begun to be written; the run was cancelled or failed."""
        self.stop_telling()
        for future in self._pending.values():
            future.cancel()

    def _problem(self, arrays: Mapping[str, Array]) -> tuple[str, str] | None:
        spec, wanted = array_spec(arrays[LATENTS_PART]), self._plan.plan.fingerprint.latents
        if spec != wanted:
            return (
                "SPEC_MISMATCH",
                f"latents are {spec.dtype.value}{list(spec.shape)}, planned were "
                f"{wanted.dtype.value}{list(wanted.shape)}",
            )
        if not all(is_finite(array) for array in arrays.values()):
            return "NOT_FINITE", "latents have NaN or infinite values"
        return None

    def _outcome(self, step_index: int, future: Future[LatentRef]) -> LatentRef | None:
        if not future.done() or future.cancelled():
            future.cancel()
            self._fail(step_index, "STORE_TIMEOUT", "the store did not answer in time")
            return None
        try:
            return future.result()
        except errors.SkipstoneError as error:
            self._fail(step_index, WRITE_REASONS.get(type(error), error.reason), str(error))
        except Exception as error:  # noqa: BLE001 - no store may fail a finished generation
            get_logger().error("snapshot write failed", exc_info=error)
            self._fail(step_index, "STORE_FAILED", type(error).__name__)
        return None

    def _fail(self, step_index: int, reason: str, message: str) -> None:
        self._failures[step_index] = SnapshotFailure(step_index, reason, message)

    def _tell(self, future: Future[LatentRef]) -> None:
        try:
            ref = future.result()
        except (Exception, CancelledError):  # noqa: BLE001 - told by `finish`
            return
        with self._telling:
            if self._tells:
                self._on_written(SnapshotWritten(ref))
