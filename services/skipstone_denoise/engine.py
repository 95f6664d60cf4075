"""What a denoise engine promises, whatever runs the model behind it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Protocol

from skipstone_shared.denoise_runs import (
    DenoiseCapabilities,
    DenoiseEvent,
    DenoiseRequest,
    DenoiseStats,
    GenerationPlan,
)
from skipstone_shared.generation import GenerationParams
from skipstone_shared.latents import LatentRef


def never_cancelled() -> bool:
    """The `cancelled` of a caller that never goes away."""
    return False


class DenoiseEngine(Protocol):
    """Runs generations. All methods may be called from any number of threads at once.

    Requests share weights and nothing else: what a run returns depends on its request only, bit
    for bit, however many others run beside it.
    """

    def get_capabilities(self) -> DenoiseCapabilities:
        """The model, its defaults and its limits. Constant for the life of the engine."""
        ...

    def plan(self, params: GenerationParams) -> GenerationPlan:
        """Checks parameters and tells what a run with them would be. Runs no denoising step.

        The answer depends only on the parameters other than prompt and seed.

        Raises:
            InvalidArgument: a parameter is out of range; names the field and what is allowed.
        """
        ...

    def run(
        self, request: DenoiseRequest, cancelled: Callable[[], bool] = never_cancelled
    ) -> Generator[DenoiseEvent, None, None]:
        """Runs one generation and yields what happens, as it happens.

        The order is: one DenoiseStarted, then StepProgress and SnapshotWritten, then the Artifact
        if it is wanted, then one DenoiseFinished. Snapshots that are stored only after the artifact
        is finished appear in DenoiseFinished alone, so that the picture does not wait for them.

        A resume that is not possible is no error: the run starts from noise and DenoiseStarted
        says why. A snapshot that cannot be stored is no error: DenoiseFinished says why. The run
        stops within one step after `cancelled` returns True or the iterator is closed; snapshots
        stored until then stay uncommitted.

        Args:
            request: What to run; `params.seed` must be set.
            cancelled: Asked from several threads, at least once a step.

        Raises:
            InvalidArgument: a parameter is out of range.
            CompatibilityMismatch: the run's key is not `expected_compatibility_key`.
            QueueFull: too many requests are waiting.
            Cancelled: the caller went away.
            Unavailable: the engine is closed.
        """
        ...

    def compare_latents(self, first: LatentRef, second: LatentRef, namespace: str = "") -> float:
        """How far apart two stored latents are: 0 for equal ones, about 1 for unrelated ones.

        Reads both from their stores; runs no model and takes no place among the runs.

        Raises:
            LatentNotFound: a store does not have one of them.
            FingerprintMismatch: a store holds another one than named, or their shapes differ.
            DataCorrupt: the bytes of one are damaged.
            Unavailable: a store cannot be reached.
        """
        ...

    def get_stats(self) -> DenoiseStats:
        """Counts since the start."""
        ...

    def close(self) -> None:
        """Cancels what waits and stops what runs; returns when no thread works any more."""
        ...
