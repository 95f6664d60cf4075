"""An orchestrator and a latent store behind real servers, and a tiny engine with its own loop."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import itertools
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import IO, Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
from tests.unit.orchestrator import fakes
from tests.unit.orchestrator.site import QUIET

from skipstone_client import EngineRun, ReuseSession
from skipstone_client.aio import AsyncLatentKVClient, AsyncReuseSession
from skipstone_client.aio.reuse_request import AsyncReuseRequest
from skipstone_client.reuse_request import ReuseRequest
from skipstone_client.session_limits import SessionLimits
from skipstone_latent_kv.memory_store import MemoryStore
from skipstone_latent_kv.server import mount
from skipstone_orchestrator.config import OrchestratorSettings
from skipstone_orchestrator.gate import SimilarityGate
from skipstone_orchestrator.server import mounted
from skipstone_orchestrator.wiring import Backends, Orchestrator
from skipstone_shared.generation import GenerationParams
from skipstone_shared.grpc_aio_server import in_process_async_server
from skipstone_shared.grpc_server import in_process_server
from skipstone_shared.latents import DType, TensorSpec

STEPS = 10
SIGMAS = tuple(1 - k / STEPS for k in range(STEPS + 1))
SHAPE = (2, 4)
PATIENT = SessionLimits(lookup_timeout_s=30.0, read_timeout_s=30.0, retry_pause_s=0.0)
"""No deadline that a busy machine meets."""

Array = npt.NDArray[Any]
T = TypeVar("T")


def run_of(seed: int = 1, dtype: DType = DType.FLOAT32, **fingerprint: Any) -> EngineRun:
    """A run of the tiny engine."""
    params = GenerationParams("", num_inference_steps=STEPS)
    known = dataclasses.replace(
        fakes.fingerprint(params), latents=TensorSpec(dtype, SHAPE), **fingerprint
    )
    return EngineRun(known, SIGMAS, seed)


def noise_of(seed: int, dtype: DType = DType.FLOAT32) -> Array:
    return np.random.default_rng(seed).standard_normal(SHAPE).astype(dtype.numpy)


def denoise_step(latents: Array, step: int, prompt: str) -> Array:
    """One step of a deterministic sampler; every step and the prompt show in what leaves it."""
    pull = np.float32(len(prompt) / 10 + step)
    wide = latents.astype(np.float32)
    return (wide + np.float32(SIGMAS[step + 1] - SIGMAS[step]) * np.tanh(wide + pull)).astype(
        latents.dtype
    )


def denoised(latents: Array, start: int, prompt: str) -> Array:
    for step in range(start, STEPS):
        latents = denoise_step(latents, step, prompt)
    return latents


class Shown:
    """A frame as Pillow has one, whose bytes are what is to be seen on it."""

    def __init__(self, what: str) -> None:
        self.what = what

    def copy(self) -> Shown:
        return Shown(self.what)

    def convert(self, mode: str) -> Shown:
        return self

    def thumbnail(self, size: tuple[float, float]) -> None:
        return None

    def save(self, fp: IO[bytes], format: str, **options: Any) -> None:  # noqa: A002
        fp.write(self.what.encode())


def generate(request: ReuseRequest, prompt: str, run: EngineRun) -> Array:
    """What an engine does in the block of its request."""
    dtype = run.fingerprint.latents.dtype
    latents, start = request.resume(noise_of(run.seed, dtype))
    for step in range(start, STEPS):
        request.snapshot(step, latents)
        latents = denoise_step(latents, step, prompt)
    request.finish(latents)
    return latents


class InLoop:
    """An event loop in a thread, for tests that wait."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60.0)

    def close(self) -> None:
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30.0)
        self._loop.close()


class WaitedFor:
    """An asynchronous session or request under the names of the synchronous one."""

    def __init__(self, form: AsyncReuseSession | AsyncReuseRequest, loop: InLoop) -> None:
        self._form: Any = form
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._form, name)
        if name == "request":
            return lambda *given, **options: WaitedFor(found(*given, **options), self._loop)
        if not inspect.iscoroutinefunction(found):
            return found
        return lambda *given, **options: self._loop.run(found(*given, **options))

    def __enter__(self) -> Self:
        self._loop.run(self._form.__aenter__())
        return self

    def __exit__(self, *error: Any) -> None:
        self._loop.run(self._form.__aexit__(*error))


class ReuseRig:
    """What a session talks to, and the form of sessions: ``sync`` or ``async``."""

    def __init__(self, form: str) -> None:
        self._form = form
        self.embedder = fakes.BagOfWords()
        self.index = fakes.MemoryIndex()
        self.store = MemoryStore(max_snapshot_bytes=1 << 20)
        self.orchestrator_target = ""
        self.latent_kv_target = ""

    @contextmanager
    def session(self, **options: Any) -> Iterator[ReuseSession]:
        options.setdefault("limits", PATIENT)
        options.setdefault("orchestrator_target", self.orchestrator_target)
        options.setdefault("latent_kv_target", self.latent_kv_target)
        if self._form == "sync":
            with ReuseSession(**options) as session:
                yield session
            return
        with closing(InLoop()) as loop:
            shape: Any = WaitedFor(AsyncReuseSession(**options), loop)
            with shape as session:
                yield session

    def generate(
        self, session: ReuseSession, prompt: str, run: EngineRun, **options: Any
    ) -> tuple[Array, ReuseRequest]:
        """Runs a request to its end, its save included."""
        with session.request(prompt, run, **options) as request:
            result = generate(request, prompt, run)
        assert session.flush(30.0)
        return result, request


@contextmanager
def open_reuse_rig(form: str = "sync", **settings: Any) -> Iterator[ReuseRig]:
    rig = ReuseRig(form)
    with ExitStack() as stack:
        stack.callback(rig.store.close)
        rig.latent_kv_target = stack.enter_context(in_process_server(mount(rig.store)))
        loop = asyncio.new_event_loop()
        started = threading.Event()
        stopping: asyncio.Event = asyncio.Event()

        async def serve() -> None:
            seeds = itertools.count(1_000_000)
            async with AsyncLatentKVClient(rig.latent_kv_target) as store:
                orchestrator = Orchestrator(
                    OrchestratorSettings(**{**QUIET, **settings}),
                    Backends(rig.embedder, rig.index, store, fakes.Executor(fakes.MemoryStore())),
                    SimilarityGate(),
                    version="1",
                    clock=time.monotonic,
                    draw_seed=lambda: next(seeds),
                    draw_index=lambda count: 0,
                    knock=lambda target: _listening,
                )
                async with in_process_async_server(mounted(orchestrator)) as target:
                    rig.orchestrator_target = target
                    started.set()
                    await stopping.wait()

        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
        thread.start()
        try:
            assert started.wait(30.0)
            yield rig
        finally:
            loop.call_soon_threadsafe(stopping.set)
            thread.join(30.0)


async def _listening() -> bool:
    return True
