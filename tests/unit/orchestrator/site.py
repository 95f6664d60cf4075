"""One orchestrator over tiny real services, and shortcuts to use it."""

from __future__ import annotations

import asyncio
import functools
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from typing import Any, ParamSpec

from tests.unit.orchestrator.fakes import BagOfWords, Executor, MemoryIndex, MemoryStore

from skipstone_orchestrator.config import OrchestratorSettings
from skipstone_orchestrator.gate import Gate, SimilarityGate
from skipstone_orchestrator.generation_calls import GenerationCall
from skipstone_orchestrator.wiring import Backends, Orchestrator
from skipstone_shared.generation import Artifact, GenerationParams
from skipstone_shared.orchestration import (
    CacheOptions,
    GenerateAccepted,
    GenerateEvent,
    GenerateFinished,
    GenerateResult,
)

P = ParamSpec("P")

# Deadlines that only a hanging service meets, however busy the machine is, and probes so far apart
# that only requests change a breaker. A test of hanging shortens the deadline it is about. Nothing
# follows evictions, so that the calls a test counts are those of its requests.
QUIET: dict[str, Any] = {
    "embedding_timeout_s": 10.0,
    "index_timeout_s": 10.0,
    "latent_kv_timeout_s": 10.0,
    "gate_timeout_s": 10.0,
    "lookup_timeout_s": 60.0,
    "plan_timeout_s": 10.0,
    "call_timeout_s": 10.0,
    "probe_interval_s": 1000.0,
    "sick_probe_interval_s": 1000.0,
    "probe_timeout_s": 10.0,
    "breaker_open_s": 1000.0,
    "return_wait_s": 0.02,
    "follow_evictions": False,
    # No calibration was made with these services: the table decides.
    "calibration_file": "",
    "uncalibrated": "table",
    "drift_audit_share": 0.0,
}


class Site:
    """An orchestrator and the four services behind it."""

    def __init__(self, gate: Gate | None = None, like: Site | None = None, **settings: Any) -> None:
        self.embedder = like.embedder if like else BagOfWords()
        self.index = like.index if like else MemoryIndex()
        self.store = like.store if like else MemoryStore()
        self.executor = like.executor if like else Executor(self.store)
        self.down: set[str] = set()
        self.knocks: list[str] = []
        self.draws: list[int] = []
        seeds = itertools.count(1_000_000)
        self.orchestrator = Orchestrator(
            OrchestratorSettings(**{**QUIET, **settings}),
            Backends(self.embedder, self.index, self.store, self.executor),
            gate or SimilarityGate(),
            version="1.2.3",
            clock=time.monotonic,
            draw_seed=lambda: next(seeds),
            draw_index=self.draw_index,
            knock=self.knock_at,
        )

    def draw_index(self, count: int) -> int:
        """The last one, so that what is drawn differs from what is best."""
        self.draws.append(count)
        return count - 1

    def knock_at(self, target: str) -> Callable[[], Awaitable[bool]]:
        """Nobody listens at a target that is in `down`."""

        async def knock() -> bool:
            self.knocks.append(target)
            return target not in self.down

        return knock

    def stream(
        self,
        prompt: str = "a red circle on a blue background",
        *,
        seed: int | None = None,
        steps: int | None = 10,
        cache: CacheOptions | None = None,
        namespace: str = "",
        **params: Any,
    ) -> Any:
        call = GenerationCall(
            namespace,
            GenerationParams(prompt, seed=seed, num_inference_steps=steps, **params),
            cache or CacheOptions(),
        )
        return self.orchestrator.pipeline.generate(call)

    async def events(self, *args: Any, **kwargs: Any) -> list[GenerateEvent]:
        async with aclosing(self.stream(*args, **kwargs)) as events:
            return [event async for event in events]

    async def generate(self, *args: Any, **kwargs: Any) -> GenerateResult:
        """Generates, then lets the save finish."""
        events = await self.events(*args, **kwargs)
        await self.settle()
        accepted = next(e for e in events if isinstance(e, GenerateAccepted))
        artifact = next(e for e in events if isinstance(e, Artifact))
        finished = events[-1]
        assert isinstance(finished, GenerateFinished)
        return GenerateResult(artifact, finished.provenance, accepted.params)

    async def settle(self) -> None:
        """Waits until everything off the caller's path is done."""
        await self.orchestrator.saver.drain(5.0)


@asynccontextmanager
async def running_site(gate: Gate | None = None, **settings: Any) -> AsyncIterator[Site]:
    """A site whose background work runs inside the block."""
    site = Site(gate, **settings)
    site.orchestrator.start()
    try:
        yield site
    finally:
        await site.orchestrator.stop()


@asynccontextmanager
async def restarted(site: Site) -> AsyncIterator[Site]:
    """An orchestrator over the same services that has decided nothing yet."""
    again = Site(like=site)
    again.orchestrator.start()
    try:
        yield again
    finally:
        await again.orchestrator.stop()


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Runs a test in an event loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run
