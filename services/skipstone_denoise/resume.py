"""Where a run starts: from noise, or from a donor's latent that was read and found usable."""

from __future__ import annotations

import contextvars
import copy
import dataclasses
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from skipstone_client.donor_checks import (
    READ_REASONS,
    DonorNeeds,
    DonorRefused,
    check_donor_key,
    checked_arrays,
)
from skipstone_denoise.latent_store import LatentStores
from skipstone_denoise.planning import RunPlan
from skipstone_denoise.scheduler_resume import (
    PART_PREFIX,
    SolverHistory,
    restore_history,
    scheduler_resume,
)
from skipstone_shared import errors
from skipstone_shared.denoise_runs import ResumeFrom, ResumeKind, SchedulerResume
from skipstone_shared.latents import LATENTS_PART, LatentRef
from skipstone_shared.request_context import current_request_id, request_scope
from skipstone_shared.stored_entries import Snapshot
from skipstone_shared.structured_logging import get_logger
from skipstone_shared.tensor_messages import Array


@dataclasses.dataclass(frozen=True, slots=True)
class StartPoint:
    """Where a run starts.

    Attributes:
        skip_steps: Steps not run; 0 from noise.
        kind: How the latents are used; None from noise.
        latents: The donor's latents.
        history: Its solver history.
        depth: Resumed runs between this run's latents and noise.
        refusal_reason: Why a donor that was asked for is not used; empty otherwise.
        refusal_message: The same as a sentence.
        read_time_s: Seconds to fetch and check the donor.
    """

    skip_steps: int = 0
    kind: ResumeKind | None = None
    latents: Array | None = None
    history: SolverHistory | None = None
    depth: int = 0
    refusal_reason: str = ""
    refusal_message: str = ""
    read_time_s: float = 0.0


class DonorReader:
    """Reads donors within a time that a dead store cannot stretch. Threads may share it."""

    def __init__(
        self,
        stores: LatentStores,
        *,
        timeout_s: float,
        bytes_per_s: float,
        max_reads: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Creates the reader.

        Args:
            stores: Where donors are.
            timeout_s: Seconds a store gets to answer.
            bytes_per_s: Rate that is expected of it; the bytes of a latent add to the time.
            max_reads: Reads at once.
            clock: Seconds, for the times told.
        """
        self._stores = stores
        self._timeout_s = timeout_s
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        # Threads of its own, so that a read that ignores its deadline holds up no run.
        self._pool = ThreadPoolExecutor(max_reads, thread_name_prefix="donor")

    def start_point(self, namespace: str, resume: ResumeFrom | None, plan: RunPlan) -> StartPoint:
        """Reads and checks the donor of a request; from noise when it cannot be used."""
        if resume is None:
            return StartPoint()
        started = self._clock()
        try:
            point = self._usable(namespace, resume, plan)
        except DonorRefused as refusal:
            point = StartPoint(refusal_reason=refusal.reason, refusal_message=str(refusal))
            get_logger().warning("donor refused", reason=refusal.reason, error=str(refusal))
        return dataclasses.replace(point, read_time_s=self._clock() - started)

    def close(self) -> None:
        """Ends the threads without waiting for reads that hang."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _usable(self, namespace: str, resume: ResumeFrom, plan: RunPlan) -> StartPoint:
        if resume.kind not in plan.plan.resume_kinds:
            raise DonorRefused(
                "SCHEDULER_UNSUPPORTED",
                f"{plan.schedule.scheduler_class} does not allow {resume.kind.value} resumes",
            )
        needs = _needs(plan)
        check_donor_key(resume.donor.compatibility_key, needs)
        snapshot = self._read(namespace, resume.donor)
        arrays = checked_arrays(snapshot, resume.donor, needs)
        history = None
        if resume.kind is ResumeKind.TRAJECTORY:
            state_json = snapshot.metadata.scheduler_state_json
            history = checked_history(state_json, arrays, plan.scheduler)
        return StartPoint(
            skip_steps=resume.skip_steps,
            kind=resume.kind,
            latents=arrays[LATENTS_PART],
            history=history,
            depth=snapshot.metadata.depth + 1,
        )

    def _read(self, namespace: str, ref: LatentRef) -> Snapshot:
        timeout_s = self._timeout_s + ref.size_bytes / self._bytes_per_s
        request_id = current_request_id()

        def read() -> Snapshot:
            with request_scope(request_id, timeout_s):
                return self._stores(ref.store).read_latent(namespace, ref)

        future = self._pool.submit(contextvars.copy_context().run, read)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            future.cancel()
            raise DonorRefused(
                "STORE_TIMEOUT", f"donor store: no answer in {timeout_s * 1000:.0f} ms"
            ) from None
        except errors.SkipstoneError as error:
            reason = READ_REASONS.get(type(error), error.reason)
            raise DonorRefused(reason, f"donor store: {error}") from error
        except Exception as error:
            # A store that answers nonsense must not fail a generation that can do without it.
            get_logger().error("donor read failed", exc_info=error)
            raise DonorRefused("STORE_FAILED", f"donor store: {type(error).__name__}") from error


def checked_history(
    state_json: str, arrays: Mapping[str, Array], scheduler: Any
) -> SolverHistory | None:
    """The solver history of a donor; None for schedulers that need none.

    Args:
        state_json: Scalars of the donor's scheduler.
        arrays: The donor's parts by name, ``latents`` among them.
        scheduler: A scheduler of the run with its timesteps set; it is not changed.

    Raises:
        DonorRefused: the scheduler needs one, and the donor's is missing or unusable.
    """
    if scheduler_resume(scheduler) is not SchedulerResume.WITH_HISTORY:
        return None
    parts = {name: array for name, array in arrays.items() if name.startswith(PART_PREFIX)}
    if not state_json or not parts:
        name = type(scheduler).__name__
        raise DonorRefused("SOLVER_HISTORY_MISSING", f"{name} needs the donor's solver history")
    shape = arrays[LATENTS_PART].shape
    if any(array.shape not in ((), shape) for array in parts.values()):
        raise DonorRefused("SPEC_MISMATCH", "the donor's solver history has another shape")
    history = SolverHistory(parts, state_json)
    try:
        # On a copy: a history that cannot be restored must show before the run begins.
        restore_history(copy.deepcopy(scheduler), history, torch.device("cpu"))
    except errors.DataCorrupt as error:
        raise DonorRefused("LATENT_CORRUPT", f"the donor's solver history: {error}") from None
    return history


def _needs(plan: RunPlan) -> DonorNeeds:
    return DonorNeeds(
        plan.plan.compatibility_key, plan.num_inference_steps, plan.plan.fingerprint.latents
    )
