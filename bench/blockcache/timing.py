"""How long a fully reused call takes, beside an ideal call that runs nothing but the F blocks.

Each library has a process of its own, with an ideal call of its own, so that neither meets what the
other leaves in modules or caches. The two processes take turns request by request. Within a request
the library's calls and ideal calls alternate in random order, and the fastest of each are
compared: those that nothing else on the machine interrupted.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import gc
import itertools
import logging
import multiprocessing
import operator
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Final, Protocol

import torch
from torch import nn

from blockcache.figures import Figure, quartiles
from blockcache.models import STEPS, TinyModel, call, seeded, tiny_model
from blockcache.settings import Setting
from skipstone_denoise.blockcache.settings import Forecast

WARMUP: Final = 4
OURS: Final = "skipstone"
RIVAL: Final = "cache-dit"

SETTINGS: Final = (
    Setting("F1, threshold", warmup=WARMUP, continuous=-1),
    Setting("F1, threshold, TaylorSeer 1", warmup=WARMUP, continuous=-1, forecast=Forecast.TAYLOR),
    Setting(
        "F1, static mask",
        warmup=WARMUP,
        mask=(1,) * WARMUP + (0,) * (STEPS - WARMUP),
        static=True,
    ),
)

BLOCKS: Final = {"flux, 6 + 10 blocks": (6, 10), "flux, 19 + 38 blocks": (19, 38)}


@dataclasses.dataclass(frozen=True)
class RequestTime:
    """The fastest reused call and the fastest ideal call of a request, in milliseconds.

    Attributes:
        wall: Reused call, elapsed.
        ideal_wall: Ideal call, elapsed.
        cpu: Reused call, processor time of the thread.
        ideal_cpu: Ideal call, processor time of the thread.
    """

    wall: float
    ideal_wall: float
    cpu: float
    ideal_cpu: float

    def of(self, clock: str) -> tuple[float, float]:
        """Returns the reused and the ideal call by one clock, `wall` or `cpu`."""
        return (self.wall, self.ideal_wall) if clock == "wall" else (self.cpu, self.ideal_cpu)


def measure(requests: int) -> Iterator[Figure]:
    """Times reused calls of the 64-wide Flux.

    Args:
        requests: Requests per setting, of 24 reused calls each; at least 2.
    """
    for (name, blocks), setting in itertools.product(BLOCKS.items(), SETTINGS):
        with _process(OURS, blocks, setting) as ours, _process(RIVAL, blocks, setting) as rival:
            pairs = [(_ask(ours), _ask(rival)) for _ in range(requests)]
        for clock in ("wall", "cpu"):
            yield from _figures(name, setting, pairs, clock)


def _figures(
    model: str, setting: Setting, pairs: list[tuple[RequestTime, RequestTime]], clock: str
) -> Iterator[Figure]:
    ours, rival = zip(*pairs, strict=True)
    suffix = "" if clock == "wall" else "_cpu"
    for figure, compare in (
        ("reused_call_ratio", operator.truediv),
        ("python_ms_per_reused_call", operator.sub),
    ):
        values, rival_values = (
            [compare(*request.of(clock)) for request in requests] for requests in (ours, rival)
        )
        yield Figure(
            figure + suffix,
            model,
            setting.name,
            statistics.median(values),
            RIVAL,
            statistics.median(rival_values),
            len(values),
            quartiles(values),
        )


@contextmanager
def _process(library: str, blocks: tuple[int, int], setting: Setting) -> Iterator[Connection]:
    # Spawned: a forked child would have what the parent imported and computed.
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there, library, blocks, setting))
    process.start()
    there.close()
    try:
        # The first request warms up caches and allocators.
        _ask(here)
        yield here
    finally:
        here.close()
        process.join()


def _ask(process: Connection) -> RequestTime:
    process.send("request")
    time_of_request: RequestTime = process.recv()
    return time_of_request


def _serve(parent: Connection, library: str, blocks: tuple[int, int], setting: Setting) -> None:
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    model = tiny_model("flux", blocks)
    cached: _Library = _Ours(model, setting) if library == OURS else _Rival(model, setting)
    ideal = _with_first_blocks(model, setting.first)
    # As pipelines run.
    with torch.no_grad():
        while True:
            try:
                parent.recv()
            except EOFError:
                return
            parent.send(_time_request(model, cached, ideal))


class _Library(Protocol):
    def begin_request(self) -> None: ...

    def step(self, step_index: int) -> None: ...

    def reused_steps(self) -> list[int]: ...


class _Ours:
    def __init__(self, model: TinyModel, setting: Setting) -> None:
        # Imported in its own process only, as below.
        from blockcache import ours

        self._library = ours
        self._model = model
        self._setting = setting

    def begin_request(self) -> None:
        cached = self._library.with_skipstone(self._model.transformer, self._setting)
        self._transformer, self._state = cached

    def step(self, step_index: int) -> None:
        self._state.begin_step(step_index)
        _call(self._model, self._transformer)

    def reused_steps(self) -> list[int]:
        return list(self._state.report().branches[0].reused_steps)


class _Rival:
    def __init__(self, model: TinyModel, setting: Setting) -> None:
        from blockcache import rival

        self._library = rival
        self._model = model
        self._setting = setting
        self._transformer = rival.with_cache_dit(model.transformer, setting, STEPS)

    def begin_request(self) -> None:
        self._library.begin_request(self._transformer, self._setting, STEPS)

    def step(self, step_index: int) -> None:
        del step_index
        _call(self._model, self._transformer)

    def reused_steps(self) -> list[int]:
        return list(self._library.reused_steps(self._transformer)[0])


def _time_request(model: TinyModel, cached: _Library, ideal: nn.Module) -> RequestTime:
    cached.begin_request()
    for step_index in range(WARMUP):
        cached.step(step_index)
    mine: list[tuple[float, float]] = []
    others: list[tuple[float, float]] = []
    rng = random.Random(0)
    gc.disable()
    for step_index in range(WARMUP, STEPS):
        turns = [
            (mine, functools.partial(cached.step, step_index)),
            (others, functools.partial(_call, model, ideal)),
        ]
        rng.shuffle(turns)
        for times, run in turns:
            times.append(_timed(run))
    gc.enable()
    if cached.reused_steps() != list(range(WARMUP, STEPS)):
        raise SystemExit("a call that should have been reused was computed")
    (wall, cpu), (ideal_wall, ideal_cpu) = (
        tuple(map(min, zip(*times, strict=True))) for times in (mine, others)
    )
    return RequestTime(wall=wall, ideal_wall=ideal_wall, cpu=cpu, ideal_cpu=ideal_cpu)


def _timed(run: Callable[[], None]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.thread_time()
    run()
    cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
    return 1000 * wall, 1000 * cpu


def _call(model: TinyModel, transformer: nn.Module) -> None:
    # The same input at every step: no difference, so that every step after the warm-up is reused.
    [branch] = model.inputs
    call(model, transformer, branch, seeded(model.latent_shape, 7), torch.tensor(0.5))


def _with_first_blocks(model: TinyModel, first: int) -> nn.Module:
    transformer = copy.deepcopy(model.transformer)
    for name in model.block_lists:
        blocks = getattr(transformer, name)
        setattr(transformer, name, blocks[:first])
        first -= min(first, len(blocks))
    return transformer
