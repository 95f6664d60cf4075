"""What a run gives: the stock pipeline's picture, alone or beside others, and a stop in time."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import operator
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import CogView4Pipeline
from tests.unit.denoise.engine_rig import EVERY_STEP, PARAMS, STEPS, Rig, open_rig
from tests.unit.denoise.tiny_pipelines import cogview4_pipeline, pixart_pipeline, wan_pipeline

from skipstone_denoise.pipeline_loader import prepared_pipeline
from skipstone_shared import errors
from skipstone_shared.denoise_runs import DenoiseFinished, DenoiseRequest, SnapshotPlan
from skipstone_shared.generation import Artifact, StepProgress

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:diffusers.*")

PIPELINES: dict[str, Callable[[], Any]] = {
    "cogview4": cogview4_pipeline,
    "pixart": pixart_pipeline,
    "wan": wan_pipeline,
}


@pytest.fixture(scope="module")
def rigs() -> Iterator[dict[str, Rig]]:
    with (
        open_rig(cogview4_pipeline(), max_concurrent_requests=4) as cogview4,
        open_rig(pixart_pipeline(), max_concurrent_requests=4) as pixart,
        open_rig(wan_pipeline(), max_concurrent_requests=4) as wan,
    ):
        yield {"cogview4": cogview4, "pixart": pixart, "wan": wan}


@pytest.mark.parametrize("name", PIPELINES)
def test_an_uncached_run_gives_the_latents_of_the_stock_pipeline(
    rigs: dict[str, Rig], name: str
) -> None:
    rig = rigs[name]
    params = dataclasses.replace(PARAMS, negative_prompt="blue", num_frames=1)
    run = rig.run(params, snapshots=SnapshotPlan(f"stock-{name}"))
    only = {"wan": {"num_frames": 1}, "pixart": {"use_resolution_binning": False}}
    stock = prepared_pipeline(PIPELINES[name]())
    (latents,) = stock(
        params.prompt,
        negative_prompt="blue",
        num_inference_steps=STEPS,
        guidance_scale=params.guidance_scale,
        height=params.height,
        width=params.width,
        generator=torch.Generator("cpu").manual_seed(7),
        output_type="latent",
        return_dict=False,
        **only.get(name, {}),
    )
    assert np.array_equal(rig.store.array(run.refs[STEPS]), latents.numpy())


@pytest.mark.parametrize("name", PIPELINES)
def test_eight_requests_at_once_equal_the_same_eight_one_after_another(
    rigs: dict[str, Rig], name: str
) -> None:
    """They share text encoder, tokenizer and autoencoder, all of which keep state somewhere."""
    requests = [
        dataclasses.replace(
            PARAMS,
            prompt=f"a {word} circle",
            seed=seed,
            num_inference_steps=2 + seed % 2,
            guidance_scale=1.0 + seed % 4,
            width=16 + 16 * (seed % 2),
            num_frames=5 if name == "wan" else 1,
        )
        for seed, word in enumerate(("red", "blue", "green", "small") * 2)
    ]
    alone = [rigs[name].run(params).picture for params in requests]
    assert len(set(alone)) == len(alone)
    assert rigs[name].run_at_once(requests) == alone


@pytest.mark.parametrize("part", ["text_encoder", "vae.decoder"])
def test_parts_that_keep_state_work_for_one_request_at_a_time(part: str) -> None:
    """Fast tokenizers refuse two callers; video autoencoders keep frames on themselves."""
    with open_rig(wan_pipeline(), max_concurrent_requests=2) as rig:
        meeting = threading.Barrier(2)
        met = []

        def meet(*_: Any) -> None:
            # The first request waits here for the second, which must not come.
            with contextlib.suppress(threading.BrokenBarrierError):
                met.append(meeting.wait(0.5))

        operator.attrgetter(part)(rig.pipeline).register_forward_pre_hook(meet)
        rig.run_at_once([dataclasses.replace(PARAMS, num_frames=5)] * 2)
        assert meeting.broken
        assert not met


def test_events_come_in_the_order_of_the_contract(rigs: dict[str, Rig]) -> None:
    run = rigs["cogview4"].run(snapshots=EVERY_STEP)
    kinds = [type(event).__name__ for event in run.events]
    assert (kinds[0], kinds[-2:]) == ("DenoiseStarted", ["Artifact", "DenoiseFinished"])
    steps = [event for event in run.events if isinstance(event, StepProgress)]
    assert [step.step_index for step in steps] == list(range(STEPS))
    assert {step.num_inference_steps for step in steps} == {STEPS}


def test_a_run_without_output_sends_no_picture(rigs: dict[str, Rig]) -> None:
    run = rigs["cogview4"].run(wants_artifact=False)
    assert not [event for event in run.events if isinstance(event, Artifact)]
    assert run.finished.executed_steps == STEPS


@pytest.mark.parametrize("name", ["cogview4", "pixart"])
def test_a_cancelled_run_stops_within_one_step(name: str) -> None:
    with open_rig(PIPELINES[name]()) as rig:
        gone = threading.Event()
        # The caller leaves in the middle of the third evaluation of the model.
        calls = iter(range(1000))
        rig.pipeline.transformer.register_forward_pre_hook(
            lambda *_: gone.set() if next(calls) == 2 else None
        )
        endless = dataclasses.replace(PARAMS, num_inference_steps=200, guidance_scale=1.0)
        with pytest.raises(errors.Cancelled):
            rig.run(endless, cancelled=gone.is_set)
        rig.engine.close()
        stats = rig.engine.get_stats()
        assert (stats.cancelled_count, stats.running_count) == (1, 0)
        assert stats.executed_steps == 2
        assert next(calls) == 3


def test_closing_the_iterator_stops_the_run_and_the_next_request_is_as_if_alone() -> None:
    with open_rig(cogview4_pipeline(), max_concurrent_requests=1) as rig:
        alone = rig.run().picture
        endless = dataclasses.replace(PARAMS, num_inference_steps=1000)
        events = rig.engine.run(DenoiseRequest("", endless, snapshots=SnapshotPlan("gone")))
        next(events)
        next(events)
        events.close()
        assert rig.run().picture == alone
        assert rig.engine.get_stats().cancelled_count == 1
        assert not rig.store.snapshots


def test_more_requests_than_may_wait_are_refused_at_once() -> None:
    with open_rig(cogview4_pipeline(), max_concurrent_requests=1, max_queued_requests=0) as rig:
        events = rig.engine.run(DenoiseRequest("", PARAMS))
        next(events)
        with pytest.raises(errors.QueueFull):
            rig.run()
        assert isinstance(list(events)[-1], DenoiseFinished)
        assert rig.run().finished.executed_steps == STEPS


def test_a_run_that_is_ended_by_the_engines_close_is_unavailable() -> None:
    """CANCELLED would say that the caller went away; this one may try elsewhere."""
    with open_rig(cogview4_pipeline(), max_concurrent_requests=1) as rig:
        endless = dataclasses.replace(PARAMS, num_inference_steps=1000)
        events = rig.engine.run(DenoiseRequest("", endless))
        next(events)
        closing = threading.Thread(target=rig.engine.close)
        closing.start()
        with pytest.raises(errors.Unavailable, match="shutting down"):
            list(events)
        closing.join()


def test_a_closed_engine_refuses_requests() -> None:
    with open_rig(cogview4_pipeline()) as rig:
        rig.engine.close()
        with pytest.raises(errors.Unavailable):
            rig.run()


def test_a_model_that_fails_fails_only_its_own_request() -> None:
    with open_rig(cogview4_pipeline()) as rig:
        alone = rig.run().picture
        handle = rig.pipeline.transformer.register_forward_pre_hook(_fail)
        with pytest.raises(RuntimeError, match="no memory"):
            rig.run(snapshots=EVERY_STEP)
        handle.remove()
        assert rig.run().picture == alone
        assert rig.engine.get_stats().failed_count == 1


class TwoLoops(CogView4Pipeline):
    """Denoises twice in one call, as pipelines of long videos do section by section."""

    @functools.wraps(CogView4Pipeline.__call__)
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        super().__call__(*args, **{**kwargs, "output_type": "latent"})
        return super().__call__(*args, **kwargs)


def test_a_pipeline_with_a_second_loop_fails_and_stores_nothing_as_its_result() -> None:
    """The latent that leaves the first loop would be taken for that of the whole."""
    with open_rig(TwoLoops(**cogview4_pipeline().components)) as rig:
        with pytest.raises(errors.Internal, match="denoises more than once"):
            rig.run(snapshots=SnapshotPlan("e"))
        assert rig.engine.get_stats().failed_count == 1


class NotInTime(CogView4Pipeline):
    """Takes more steps than its scheduler has."""

    @functools.wraps(CogView4Pipeline.__call__)
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        on_step_end = kwargs["callback_on_step_end"]

        def twice(*told: Any) -> Any:
            on_step_end(*told)
            return on_step_end(*told)

        return super().__call__(*args, **{**kwargs, "callback_on_step_end": twice})


def test_a_pipeline_with_more_steps_than_its_schedule_fails() -> None:
    with (
        open_rig(NotInTime(**cogview4_pipeline().components)) as rig,
        pytest.raises(errors.Internal, match="denoises more than once"),
    ):
        rig.run(snapshots=SnapshotPlan("e"))


def _fail(*_: Any) -> None:
    raise RuntimeError("no memory")
