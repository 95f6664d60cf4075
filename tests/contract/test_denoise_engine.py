"""What every denoise engine promises, local and behind gRPC."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Protocol

import pytest
from tests.unit.denoise.engine_rig import Rig, open_rig
from tests.unit.denoise.tiny_pipelines import cogview4_pipeline

from skipstone_client.denoise import DenoiseClient
from skipstone_denoise.server import mount
from skipstone_shared import errors
from skipstone_shared.denoise_runs import (
    DenoiseCapabilities,
    DenoiseEvent,
    DenoiseFinished,
    DenoiseRequest,
    DenoiseStarted,
    DenoiseStats,
    GenerationPlan,
    ResumeFrom,
    ResumeKind,
    SnapshotPlan,
    SnapshotWritten,
)
from skipstone_shared.generation import (
    Artifact,
    BlockCacheConfig,
    GenerationParams,
    StepProgress,
)
from skipstone_shared.grpc_server import in_process_server
from skipstone_shared.latents import LatentRef, compatibility_key

STEPS = 5
PARAMS = GenerationParams("a red circle", num_inference_steps=STEPS, height=16, width=16, seed=7)


class Engine(Protocol):
    """What a local engine and a client have in common."""

    def get_capabilities(self) -> DenoiseCapabilities: ...

    def plan(self, params: GenerationParams) -> GenerationPlan: ...

    def run(self, request: DenoiseRequest) -> Generator[DenoiseEvent, None, None]: ...

    def compare_latents(self, first: LatentRef, second: LatentRef) -> float: ...

    def get_stats(self) -> DenoiseStats: ...


@contextmanager
def local(rig: Rig) -> Iterator[Engine]:
    yield rig.engine


@contextmanager
def remote(rig: Rig) -> Iterator[Engine]:
    with in_process_server(mount(rig.engine)) as target, DenoiseClient(target) as client:
        yield client


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with open_rig(cogview4_pipeline(), max_concurrent_requests=1, max_queued_requests=1) as rig:
        yield rig


@pytest.fixture(scope="module", params=[local, remote])
def engine(request: pytest.FixtureRequest, rig: Rig) -> Iterator[Engine]:
    with request.param(rig) as engine:
        yield engine


def run(engine: Engine, params: GenerationParams = PARAMS, **request: object) -> list[DenoiseEvent]:
    return list(engine.run(DenoiseRequest("", params, **request)))  # type: ignore[arg-type]


def picture(events: list[DenoiseEvent]) -> Artifact:
    (artifact,) = (event for event in events if isinstance(event, Artifact))
    return artifact


def finished(events: list[DenoiseEvent]) -> DenoiseFinished:
    assert isinstance(events[-1], DenoiseFinished)
    return events[-1]


def test_capabilities_describe_the_model(engine: Engine) -> None:
    told = engine.get_capabilities()
    assert told.pipeline_class == "CogView4Pipeline"
    assert told.scheduler_class == "FlowMatchEulerDiscreteScheduler"
    assert told.max_steps == 1000
    assert told.max_concurrent_requests == 1
    assert ResumeKind.TRAJECTORY in told.resume_kinds


def test_a_plan_fills_in_defaults_and_depends_on_neither_prompt_nor_seed(engine: Engine) -> None:
    told = engine.get_capabilities()
    plan = engine.plan(GenerationParams("a red circle"))
    assert plan.params.num_inference_steps == told.default_steps
    assert (plan.params.height, plan.params.seed) == (told.default_height, None)
    assert plan.compatibility_key == compatibility_key(plan.fingerprint)
    assert len(plan.sigmas) == told.default_steps + 1
    assert plan.instance_id == told.instance_id
    other = engine.plan(GenerationParams("a blue square", seed=3))
    assert other.compatibility_key == plan.compatibility_key


def test_a_run_tells_start_steps_picture_and_end_in_this_order(engine: Engine) -> None:
    events = run(engine)
    assert isinstance(events[0], DenoiseStarted)
    steps = [event.step_index for event in events if isinstance(event, StepProgress)]
    assert steps == list(range(STEPS))
    artifact = picture(events)
    assert (artifact.media_type, artifact.height, artifact.width) == ("image/png", 16, 16)
    assert artifact.data.startswith(b"\x89PNG")
    assert events.index(artifact) == len(events) - 2
    assert finished(events).executed_steps == STEPS


def test_the_same_request_gives_the_same_bytes(engine: Engine) -> None:
    assert picture(run(engine)) == picture(run(engine))
    other = dataclasses.replace(PARAMS, seed=8)
    assert picture(run(engine, other)) != picture(run(engine))


def test_snapshots_are_reported_and_resume_the_run_exactly(engine: Engine) -> None:
    full = run(engine, snapshots=SnapshotPlan("contract", key_steps=(2,)))
    refs = {ref.step_index: ref for ref in finished(full).snapshots}
    assert sorted(refs) == [2, STEPS]
    assert {e.ref for e in full if isinstance(e, SnapshotWritten)} <= set(refs.values())
    resumed = run(engine, resume=ResumeFrom(refs[2], 2, ResumeKind.TRAJECTORY))
    assert picture(resumed) == picture(full)
    assert (finished(resumed).executed_steps, finished(resumed).skip_steps) == (STEPS - 2, 2)
    decoded = run(engine, resume=ResumeFrom(refs[STEPS], STEPS, ResumeKind.DECODE))
    assert (picture(decoded), finished(decoded).executed_steps) == (picture(full), 0)


def test_a_donor_that_is_gone_is_told_and_the_run_starts_from_noise(engine: Engine) -> None:
    gone = LatentRef("default", "never-stored", 2)
    events = run(engine, resume=ResumeFrom(gone, 2, ResumeKind.TRAJECTORY))
    assert isinstance(events[0], DenoiseStarted)
    assert (events[0].skip_steps, events[0].refusal_reason) == (0, "LATENT_NOT_FOUND")
    assert picture(events) == picture(run(engine))


def test_stored_latents_are_compared_by_reference(engine: Engine) -> None:
    """The orchestrator measures drift so, without touching latent bytes."""
    seeds = (7, 8)
    one, other = (
        finished(
            run(
                engine,
                dataclasses.replace(PARAMS, seed=seed),
                snapshots=SnapshotPlan(f"compare-{seed}"),
                wants_artifact=False,
            )
        ).snapshots[-1]
        for seed in seeds
    )
    assert engine.compare_latents(one, one) == 0.0
    apart = engine.compare_latents(one, other)
    assert apart == engine.compare_latents(other, one)
    assert 0.3 < apart < 2.0, "two seeds of a prompt are about 1 apart"
    gone = dataclasses.replace(one, entry_id="compare-gone")
    with pytest.raises(errors.NotFound):
        engine.compare_latents(one, gone)
    overwritten = dataclasses.replace(one, xxh3_64=other.xxh3_64)
    with pytest.raises(errors.FailedPrecondition):
        engine.compare_latents(overwritten, other)


def test_a_run_without_output_has_no_picture(engine: Engine) -> None:
    assert not [event for event in run(engine, wants_artifact=False) if isinstance(event, Artifact)]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"prompt": ""}, "params.prompt"),
        ({"prompt": "x" * 1_000_000}, "params.prompt"),
        ({"num_inference_steps": 0}, "params.num_inference_steps"),
        ({"num_inference_steps": 100_000}, "params.num_inference_steps"),
        ({"guidance_scale": float("nan")}, "params.guidance_scale"),
        ({"height": 24}, "params.height"),
        ({"num_frames": 5}, "params.num_frames"),
        ({"seed": -1}, "params.seed"),
        (
            {"block_cache": BlockCacheConfig(fn_compute_blocks=9)},
            "params.block_cache.fn_compute_blocks",
        ),
    ],
)
def test_bad_parameters_are_refused_by_plan_and_run_alike(
    engine: Engine, change: dict[str, object], field: str
) -> None:
    params = dataclasses.replace(PARAMS, **change)  # type: ignore[arg-type]
    calls: list[Callable[[], object]] = [lambda: engine.plan(params), lambda: run(engine, params)]
    for call in calls:
        with pytest.raises(errors.InvalidArgument) as raised:
            call()
        assert raised.value.field == field
        assert raised.value.allowed


def test_block_caching_is_told_step_by_step_and_at_the_end(engine: Engine) -> None:
    """Its settings stand in the fingerprint; a run without them tells nothing of it."""
    config = BlockCacheConfig(residual_diff_threshold=1.0, max_warmup_steps=3)
    params = dataclasses.replace(PARAMS, block_cache=config)
    events = run(engine, params)
    reused = [e.step_index for e in events if isinstance(e, StepProgress) and e.block_cache_reused]
    assert reused == [3, 4]
    report = finished(events).block_cache
    assert report is not None
    assert {branch.reused_steps for branch in report.branches} == {(3, 4)}
    assert report.block_calls < report.block_calls_full
    assert finished(run(engine)).block_cache is None
    plan = engine.plan(params)
    assert plan.fingerprint.block_cache
    assert plan.compatibility_key != engine.plan(PARAMS).compatibility_key
    counted = engine.get_stats()
    assert 0 < counted.block_calls < counted.block_calls_full
    assert sum(steps.reused_steps for steps in counted.block_cache_steps) > 0


def test_a_run_planned_for_another_model_is_refused(engine: Engine) -> None:
    with pytest.raises(errors.CompatibilityMismatch):
        run(engine, expected_compatibility_key="0" * 32)


def test_a_caller_that_goes_away_frees_the_executor(engine: Engine) -> None:
    endless = dataclasses.replace(PARAMS, num_inference_steps=1000)
    cancelled = engine.get_stats().cancelled_count
    events = engine.run(DenoiseRequest("", endless, snapshots=SnapshotPlan("gone")))
    assert isinstance(next(events), DenoiseStarted)
    next(events)
    events.close()
    # One place runs and one waits: this ends only when the first run has stopped.
    assert finished(run(engine)).executed_steps == STEPS
    assert engine.get_stats().cancelled_count == cancelled + 1


def test_more_requests_than_may_wait_are_refused(engine: Engine) -> None:
    endless = dataclasses.replace(PARAMS, num_inference_steps=1000)
    running = engine.run(DenoiseRequest("", endless))
    next(running)
    done = threading.Event()

    def wait_in_line() -> None:
        run(engine)
        done.set()

    waiting = threading.Thread(target=wait_in_line)
    waiting.start()
    while engine.get_stats().queued_count == 0:
        next(running)
    with pytest.raises(errors.QueueFull):
        run(engine)
    running.close()
    waiting.join()
    assert done.is_set()


def test_stats_count_what_was_run(engine: Engine) -> None:
    before = engine.get_stats()
    run(engine)
    after = engine.get_stats()
    assert after.finished_count == before.finished_count + 1
    assert after.executed_steps == before.executed_steps + STEPS
