"""What only an asynchronous reuse session can do wrong: hold up its loop, or be cancelled.

All else is in the suite of both forms, ``test_reuse_session``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tests.contract.reuse_rig import (
    PATIENT,
    SIGMAS,
    STEPS,
    ReuseRig,
    noise_of,
    open_reuse_rig,
    run_of,
)
from tests.unit.client.fake_services import FakeLatentKV, FakeOrchestrator, serving

from skipstone_client import EngineRun, _request_core, _reuse_start, _run_recorder
from skipstone_client._reuse_flows import LARGE_BYTES
from skipstone_client.aio import AsyncReuseSession
from skipstone_client.torch_arrays import on_this_stream
from skipstone_shared.errors import FailedPrecondition
from skipstone_shared.latents import DType, TensorSpec
from skipstone_shared.orchestration import CacheOptions, HitTier, ReuseKind

PROMPT = "a red circle on a blue background"
WAIT_S = 30.0
Shape = tuple[int, ...]
LARGE: Shape = (LARGE_BYTES // 4,)
SMALL: Shape = (16,)


@pytest.fixture
def rig() -> Iterator[ReuseRig]:
    with open_reuse_rig() as opened:
        yield opened


def shaped_run(shape: Shape, seed: int = 1) -> EngineRun:
    spec = TensorSpec(DType.FLOAT32, shape)
    return EngineRun(dataclasses.replace(run_of().fingerprint, latents=spec), SIGMAS, seed)


def session_of(rig: ReuseRig, **options: Any) -> AsyncReuseSession:
    options = {"latent_kv_target": rig.latent_kv_target, "limits": PATIENT, **options}
    return AsyncReuseSession(rig.orchestrator_target, **options)


async def generate(session: AsyncReuseSession, run: EngineRun, prompt: str = PROMPT) -> HitTier:
    async with session.request(prompt, run) as request:
        latents, _ = await request.resume(np.ones(run.fingerprint.latents.shape, np.float32))
        await request.finish(latents)
    return request.provenance.tier


def hanging(service: Any) -> Callable[[Any, Any], Any]:
    """An rpc that answers nobody and ends when its caller is gone."""

    def answer(request: Any, context: Any) -> Any:
        assert service.gone.wait(WAIT_S)
        return iter(())

    return answer


async def cancelled_while_it_waits(service: Any, session: AsyncReuseSession) -> Any:
    """A request whose task is cancelled while a service does not answer."""
    request = session.request(PROMPT, run_of(1))

    async def engine() -> None:
        async with request:
            await request.resume(noise_of(1))

    task = asyncio.create_task(engine())
    await asyncio.to_thread(service.called.wait, WAIT_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(service.gone.wait, WAIT_S)
    return request


def test_a_task_that_is_cancelled_ends_its_lookup() -> None:
    service = FakeOrchestrator()
    service._answers["Lookup"] = hanging(service)

    async def main(target: str) -> Any:
        async with AsyncReuseSession(target, "127.0.0.1:1", limits=PATIENT) as session:
            return await cancelled_while_it_waits(service, session)

    with serving(service) as target:
        request = asyncio.run(main(target))
    assert request.key_steps == ()
    assert request.provenance.saved is None


def test_a_task_that_is_cancelled_ends_the_stream_of_its_donor(rig: ReuseRig) -> None:
    with rig.session() as session:
        rig.generate(session, PROMPT, run_of(1))
    before = rig.index.ids()
    service = FakeLatentKV()
    service._answers["ReadLatent"] = hanging(service)

    async def main(target: str) -> None:
        async with session_of(rig, latent_kv_target=target) as session:
            await cancelled_while_it_waits(service, session)

    with serving(service) as target:
        asyncio.run(main(target))
    assert rig.index.ids() == before


@pytest.mark.parametrize("where", ["snapshot", "finish"])
def test_a_task_that_is_cancelled_in_the_middle_of_a_copy_saves_nothing(
    rig: ReuseRig, where: str
) -> None:
    async def main() -> None:
        async with session_of(rig, cache=CacheOptions(key_steps=(1, 3))) as session:
            request = session.request(PROMPT, shaped_run(LARGE))

            async def engine() -> None:
                task = asyncio.current_task()
                assert task is not None
                async with request:
                    latents, _ = await request.resume(np.ones(LARGE, np.float32))
                    await request.snapshot(1, latents)
                    task.cancel()  # is felt by what is awaited next
                    going_on = {"snapshot": lambda: request.snapshot(3, latents)}
                    with pytest.raises(asyncio.CancelledError):
                        await going_on.get(where, lambda: request.finish(latents))()
                    # Whoever goes on after all finds the run given up.
                    with pytest.raises(FailedPrecondition):
                        await request.finish(latents)

            await asyncio.create_task(engine())
            assert await session.flush(WAIT_S)
            assert request.provenance.saved is None
            assert await generate(session, shaped_run(LARGE)) is HitTier.MISS
            assert await session.flush(WAIT_S)

    asyncio.run(main())
    assert len(rig.index.ids()) == 1


@pytest.mark.parametrize("shape", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("kind", ReuseKind)
def test_work_on_large_latents_is_never_done_by_the_loop(
    rig: ReuseRig, monkeypatch: pytest.MonkeyPatch, shape: Shape, kind: ReuseKind
) -> None:
    done_by: dict[str, int] = {}

    def watch(module: Any, name: str) -> None:
        work = getattr(module, name)

        def watched(*given: Any, **options: Any) -> Any:
            done_by[name] = threading.get_ident()
            return work(*given, **options)

        monkeypatch.setattr(module, name, watched)

    starts = {ReuseKind.RENOISE: "renoised", ReuseKind.TRAJECTORY: "in_form_of"}
    watch(_run_recorder, "copied_array")
    watch(_reuse_start, "checked_arrays")
    watch(_request_core, starts[kind])

    async def main() -> None:
        cache = CacheOptions(allow_exact=False, reuse_kind=kind, key_steps=(1, 3))
        async with session_of(rig, cache=cache) as session:
            async with session.request(PROMPT, shaped_run(shape)) as request:
                latents, _ = await request.resume(np.ones(shape, np.float32))
                for step in range(STEPS):
                    await request.snapshot(step, latents)
                await request.finish(latents)
            await session.flush(WAIT_S)
            assert await generate(session, shaped_run(shape)) is HitTier.APPROXIMATE

    asyncio.run(main())
    assert done_by.keys() == {"copied_array", "checked_arrays", starts[kind]}
    by_the_loop = {name for name, thread in done_by.items() if thread == threading.get_ident()}
    assert by_the_loop == (done_by.keys() if shape is SMALL else set())


def test_tasks_that_share_a_session_do_not_mix_their_runs(rig: ReuseRig) -> None:
    async def main() -> None:
        async with session_of(rig) as session:
            runs = [run_of(seed) for seed in range(8)]
            tiers = await asyncio.gather(*(generate(session, run, f"p{run.seed}") for run in runs))
            assert set(tiers) == {HitTier.MISS}
            assert await session.flush(WAIT_S)
            again = [await generate(session, run, f"p{run.seed}") for run in runs]
            assert set(again) == {HitTier.EXACT}

    asyncio.run(main())


def test_closing_a_session_can_be_cancelled_and_disconnects_all_the_same(rig: ReuseRig) -> None:
    released = threading.Event()
    service = FakeLatentKV(WriteLatent=lambda request, context: released.wait(WAIT_S))

    async def main(target: str) -> None:
        session = session_of(
            rig,
            latent_kv_target=target,
            limits=dataclasses.replace(PATIENT, close_timeout_s=WAIT_S),
        )
        await generate(session, run_of(1))
        await asyncio.to_thread(service.called.wait, WAIT_S)
        assert not await session.flush(0.0)
        closing = asyncio.create_task(session.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert await asyncio.to_thread(service.gone.wait, WAIT_S)
        await session.close()

    with serving(service) as target:
        asyncio.run(main(target))
        released.set()


def test_a_session_that_a_loop_loses_does_not_hold_it_up(rig: ReuseRig) -> None:
    released = threading.Event()
    service = FakeLatentKV(WriteLatent=lambda request, context: released.wait(WAIT_S))

    async def main(target: str) -> None:
        limits = dataclasses.replace(PATIENT, close_timeout_s=WAIT_S)
        session = session_of(rig, latent_kv_target=target, limits=limits)
        await generate(session, run_of(1))
        await asyncio.to_thread(service.called.wait, WAIT_S)
        del session
        gc.collect()
        # The loop goes on while the session is still being ended.
        (ending,) = (t for t in threading.enumerate() if t.name == "skipstone-reuse-end")
        assert ending.is_alive()
        released.set()
        await asyncio.to_thread(ending.join, WAIT_S)
        assert not ending.is_alive()

    with serving(service) as target:
        asyncio.run(main(target))


def test_a_session_of_another_loop_makes_misses_and_no_errors(rig: ReuseRig) -> None:
    session = session_of(rig)

    async def end() -> None:
        assert await session.flush(WAIT_S)
        await session.close()

    async def reason() -> str:
        async with session.request(PROMPT, run_of(1)) as request:
            await request.resume(noise_of(1))
        return request.provenance.reason

    assert [asyncio.run(reason()) for _ in range(2)] == ["NO_CANDIDATE", "LOOKUP_FAILED"]
    asyncio.run(end())


def test_work_for_another_thread_keeps_its_result_and_the_order_of_its_device() -> None:
    there: list[torch.Tensor] = []
    tensor = torch.arange(3.0)
    work = on_this_stream(tensor.device, lambda: there.append(tensor + 1))
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(WAIT_S)
    assert [found.tolist() for found in there] == [[1.0, 2.0, 3.0]]
