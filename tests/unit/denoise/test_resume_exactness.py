"""A run resumed from its own snapshot is the run that was not interrupted, bit for bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from diffusers import (
    DDIMScheduler,
    DEISMultistepScheduler,
    DPMSolverMultistepScheduler,
    EulerAncestralDiscreteScheduler,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    HeunDiscreteScheduler,
    LMSDiscreteScheduler,
    UniPCMultistepScheduler,
)
from tests.unit.denoise.engine_rig import EVERY_STEP, PARAMS, STEPS, Rig, open_rig, trajectory
from tests.unit.denoise.tiny_pipelines import (
    cogview4_pipeline,
    flux_pipeline,
    pixart_pipeline,
    wan_pipeline,
)

from skipstone_denoise.scheduler_resume import scheduler_resume
from skipstone_shared.denoise_runs import ResumeFrom, ResumeKind, SchedulerResume
from skipstone_shared.generation import GenerationParams

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:diffusers.*")

FLOW = {"prediction_type": "flow_prediction", "use_flow_sigmas": True, "flow_shift": 3.0}

EXACT: dict[str, Callable[[], Any]] = {
    "cogview4-flow_match_euler": lambda: cogview4_pipeline(FlowMatchEulerDiscreteScheduler()),
    # Noise enters the loop in float32 here and leaves the first step in bfloat16.
    "cogview4-bfloat16": lambda: cogview4_pipeline().to(torch.bfloat16),
    "flux-flow_match_euler": flux_pipeline,
    "pixart-ddim": lambda: pixart_pipeline(DDIMScheduler()),
    "pixart-euler": lambda: pixart_pipeline(EulerDiscreteScheduler()),
    "wan-flow_match_euler": lambda: wan_pipeline(FlowMatchEulerDiscreteScheduler(shift=3.0)),
}
WITH_HISTORY: dict[str, Callable[[], Any]] = {
    "wan-unipc": lambda: wan_pipeline(UniPCMultistepScheduler(**FLOW)),
    "wan-dpm++2m": lambda: wan_pipeline(DPMSolverMultistepScheduler(**FLOW)),
    "pixart-unipc3": lambda: pixart_pipeline(UniPCMultistepScheduler(solver_order=3)),
    "pixart-dpm++2m": lambda: pixart_pipeline(DPMSolverMultistepScheduler()),
    "pixart-deis": lambda: pixart_pipeline(DEISMultistepScheduler()),
    "pixart-lms": lambda: pixart_pipeline(LMSDiscreteScheduler()),
}


def params_for(name: str) -> GenerationParams:
    if not name.startswith("wan"):
        return PARAMS
    # One of them as a video; the others as one frame, which is quicker.
    return dataclasses.replace(PARAMS, num_frames=5 if name == "wan-unipc" else 1)


@pytest.fixture(params=[*EXACT, *WITH_HISTORY])
def named_rig(request: pytest.FixtureRequest) -> Iterator[tuple[str, Rig]]:
    name: str = request.param
    with open_rig({**EXACT, **WITH_HISTORY}[name]()) as rig:
        yield name, rig


def test_a_run_resumed_at_each_step_equals_the_full_run(named_rig: tuple[str, Rig]) -> None:
    """Latents and picture, and the picture again from the clean latent without a step."""
    name, rig = named_rig
    params = params_for(name)
    full = rig.run(params, snapshots=EVERY_STEP)
    assert sorted(full.refs) == list(range(1, STEPS + 1))
    clean = rig.store.array(full.refs[STEPS]).tobytes()
    for skip_steps in range(1, STEPS):
        again = dataclasses.replace(EVERY_STEP, entry_id=f"again{skip_steps}")
        resumed = rig.run(params, resume=trajectory(full.refs[skip_steps]), snapshots=again)
        assert resumed.started.refusal_reason == ""
        assert resumed.finished.executed_steps == STEPS - skip_steps
        assert rig.store.array(resumed.refs[STEPS]).tobytes() == clean
        assert resumed.picture == full.picture
    decoded = rig.run(params, resume=ResumeFrom(full.refs[STEPS], STEPS, ResumeKind.DECODE))
    assert (decoded.finished.executed_steps, decoded.picture) == (0, full.picture)


@pytest.mark.parametrize("name", ["wan-unipc", "pixart-dpm++2m"])
def test_a_multistep_solver_is_not_resumed_without_its_history(name: str) -> None:
    with open_rig(WITH_HISTORY[name]()) as rig:
        params = params_for(name)
        full = rig.run(params, snapshots=EVERY_STEP)
        stored = rig.store.snapshots["default", "donor", 3]
        metadata = dataclasses.replace(
            stored.metadata, parts=stored.metadata.parts[:1], scheduler_state_json=""
        )
        bare = rig.store.put("default", metadata, bytes(stored.data[: metadata.size_bytes]))
        resumed = rig.run(params, resume=trajectory(bare))
        assert resumed.started.refusal_reason == "SOLVER_HISTORY_MISSING"
        assert (resumed.started.skip_steps, resumed.picture) == (0, full.picture)


@pytest.mark.parametrize(
    "scheduler",
    [
        EulerAncestralDiscreteScheduler(),
        HeunDiscreteScheduler(),
        FlowMatchEulerDiscreteScheduler(stochastic_sampling=True),
        DPMSolverMultistepScheduler(algorithm_type="sde-dpmsolver++"),
    ],
    ids=lambda scheduler: type(scheduler).__name__,
)
def test_schedulers_that_draw_noise_or_step_twice_are_unsupported(scheduler: Any) -> None:
    assert scheduler_resume(scheduler) is SchedulerResume.UNSUPPORTED


def test_an_unsupported_scheduler_runs_but_its_steps_are_neither_stored_nor_resumed() -> None:
    with open_rig(pixart_pipeline(HeunDiscreteScheduler())) as rig:
        full = rig.run(snapshots=EVERY_STEP)
        assert sorted(full.refs) == [STEPS]
        reasons = {failure.reason for failure in full.finished.snapshot_failures}
        assert reasons == {"SCHEDULER_UNSUPPORTED"}
        ref = dataclasses.replace(full.refs[STEPS], step_index=2)
        resumed = rig.run(resume=trajectory(ref))
        assert resumed.started.refusal_reason == "SCHEDULER_UNSUPPORTED"
        decode = ResumeFrom(full.refs[STEPS], STEPS, ResumeKind.DECODE)
        assert rig.run(resume=decode).picture == full.picture
