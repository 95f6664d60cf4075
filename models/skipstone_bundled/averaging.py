"""Averages gradients between worker processes of one machine through shared memory.

Two processes of one thread each train faster here than one process of two threads: the threads of
one process meet after every small operation, and each meeting waits for whichever of them the
machine runs later; the processes meet once per update.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor, multiprocessing, nn

_TIMEOUT_SECONDS = 600.0


class GradientAverage:
    """Shared memory in which workers average their gradients, passed to every worker."""

    def __init__(self, workers: int, parameters: int, extras: int) -> None:
        """Reserves the memory.

        Args:
            workers: Number of worker processes.
            parameters: Number of parameter values of the model.
            extras: Number of other values averaged along, such as the loss.
        """
        self.workers = workers
        self._extras = extras
        shared = torch.zeros(workers, parameters + extras)
        self._shared: Tensor = shared.share_memory_()  # type: ignore[no-untyped-call]
        self._barrier = multiprocessing.get_context("spawn").Barrier(workers)

    def average(self, rank: int, model: nn.Module, extras: list[float]) -> list[float]:
        """Replaces the model's gradients by their mean over the workers.

        Every worker must call this the same number of times, and gets the same values bit for bit.

        Args:
            rank: Number of the calling worker, from 0.
            model: The worker's model, with gradients.
            extras: The worker's other values.

        Returns:
            The mean of the other values.

        Raises:
            threading.BrokenBarrierError: Another worker has died or hangs.
        """
        gradients = [_gradient(parameter) for parameter in model.parameters()]
        mine = self._shared[rank]
        torch.cat([gradient.reshape(-1) for gradient in gradients], out=mine[: -self._extras])
        mine[-self._extras :] = torch.tensor(extras)
        self._barrier.wait(_TIMEOUT_SECONDS)
        mean = self._shared.mean(dim=0)
        # Nobody may write the next gradients before everybody has read these.
        self._barrier.wait(_TIMEOUT_SECONDS)
        parts = torch.split(mean[: -self._extras], [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))
        return [float(value) for value in mean[-self._extras :]]


def count_parameters(model: nn.Module) -> int:
    """Returns the number of parameter values of a model."""
    return sum(parameter.numel() for parameter in model.parameters())


def run_workers(worker: Callable[..., None], workers: int, arguments: tuple[object, ...]) -> None:
    """Runs `worker(rank, *arguments)` in that many processes; one worker runs in this process."""
    if workers == 1:
        worker(0, *arguments)
    else:
        # torch has neither a type nor an export for it.
        multiprocessing.spawn(  # type: ignore[attr-defined,no-untyped-call]
            _run_worker, (worker, arguments), nprocs=workers
        )


def _run_worker(rank: int, worker: Callable[..., None], arguments: tuple[object, ...]) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    worker(rank, *arguments)


def _gradient(parameter: Tensor) -> Tensor:
    # The last layers of the text encoder have none: the pipeline reads the second last.
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad
