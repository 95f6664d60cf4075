"""Snapshots: the right steps, with the right description, and never at the expense of a run."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator

import pytest
import torch
from tests.unit.denoise.engine_rig import EVERY_STEP, PARAMS, STEPS, Rig, open_rig, trajectory
from tests.unit.denoise.tiny_pipelines import cogview4_pipeline, wan_pipeline

from skipstone_shared import errors
from skipstone_shared.denoise_runs import SnapshotPlan, SnapshotWritten
from skipstone_shared.errors import QuotaExceeded, Unavailable


@pytest.fixture(scope="module")
def shared_rig() -> Iterator[Rig]:
    with open_rig(cogview4_pipeline()) as rig:
        yield rig


@pytest.fixture
def rig(shared_rig: Rig) -> Rig:
    shared_rig.store.snapshots.clear()
    shared_rig.store.before_write = lambda: None
    return shared_rig


def test_key_steps_and_the_clean_latent_are_stored_with_their_noise_levels(rig: Rig) -> None:
    plan = rig.engine.plan(PARAMS)
    run = rig.run(snapshots=SnapshotPlan("e", key_steps=(2, 4)))
    assert sorted(run.refs) == [2, 4, STEPS]
    for step_index, ref in run.refs.items():
        metadata = rig.store.snapshots["default", "e", step_index].metadata
        assert metadata.sigma == ref.sigma == plan.sigmas[step_index]
        assert metadata.compatibility_key == plan.compatibility_key == ref.compatibility_key
        assert metadata.parts[0].spec == plan.fingerprint.latents
        assert (metadata.num_inference_steps, metadata.depth) == (STEPS, 0)
    written = {event.ref for event in run.events if isinstance(event, SnapshotWritten)}
    assert written <= set(run.finished.snapshots)


def test_a_resumed_run_stores_only_what_is_its_own_and_says_how_deep(rig: Rig) -> None:
    full = rig.run(snapshots=EVERY_STEP)
    again = dataclasses.replace(EVERY_STEP, entry_id="again")
    resumed = rig.run(resume=trajectory(full.refs[3]), snapshots=again)
    assert sorted(resumed.refs) == [4, 5, STEPS]
    third = dataclasses.replace(EVERY_STEP, entry_id="third", key_steps=(5,))
    rig.run(resume=trajectory(resumed.refs[4]), snapshots=third)
    depths = [rig.store.snapshots["default", e, 5].metadata.depth for e in ("again", "third")]
    assert depths == [1, 2]


def test_a_multistep_solver_leaves_its_history_beside_the_latents() -> None:
    with open_rig(wan_pipeline()) as rig:
        params = dataclasses.replace(PARAMS, num_frames=1)
        rig.run(params, snapshots=SnapshotPlan("e", key_steps=(1, 3)))
        first, third = (rig.store.snapshots["default", "e", k].metadata for k in (1, 3))
        names = [part.name for part in third.parts]
        assert names[0] == "latents"
        assert "scheduler.model_outputs.0" in names
        assert "scheduler.last_sample" in names
        assert '"lower_order_nums": 2' in third.scheduler_state_json
        # After one step there is one older output, not two.
        assert "scheduler.model_outputs.0" not in [part.name for part in first.parts]
        clean = rig.store.snapshots["default", "e", STEPS].metadata
        assert (len(clean.parts), clean.scheduler_state_json) == (1, "")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Unavailable("connection refused"), "STORE_UNAVAILABLE"),
        (QuotaExceeded("full"), "QUOTA_EXCEEDED"),
        (errors.DeadlineExceeded("late"), "STORE_TIMEOUT"),
        (ZeroDivisionError(), "STORE_FAILED"),
    ],
)
def test_a_store_that_fails_does_not_fail_the_run(rig: Rig, error: Exception, reason: str) -> None:
    alone = rig.run().picture

    def fail() -> None:
        raise error

    rig.store.before_write = fail
    run = rig.run(snapshots=SnapshotPlan("e", key_steps=(2,)))
    assert run.picture == alone
    assert run.finished.snapshots == ()
    failures = [(f.step_index, f.reason) for f in run.finished.snapshot_failures]
    assert failures == [(2, reason), (STEPS, reason)]


def test_a_store_that_hangs_delays_neither_the_picture_nor_the_end() -> None:
    with open_rig(cogview4_pipeline(), snapshot_wait_ms=0, snapshot_queue_size=2) as rig:
        alone = rig.run().picture
        awake = threading.Event()
        rig.store.before_write = lambda: awake.wait(60) and None
        run = rig.run(snapshots=EVERY_STEP)
        awake.set()
        assert run.picture == alone
        reasons = [failure.reason for failure in run.finished.snapshot_failures]
        assert reasons == ["STORE_TIMEOUT"] * 2 + ["QUEUE_FULL"] * (STEPS - 2)


def test_latents_that_are_not_finite_are_never_stored() -> None:
    with open_rig(cogview4_pipeline()) as rig:

        def spoil(_module: object, _args: object, output: tuple[torch.Tensor]) -> object:
            return (output[0] * float("inf"),)

        handle = rig.pipeline.transformer.register_forward_hook(spoil)
        run = rig.run(snapshots=SnapshotPlan("e", key_steps=(2,)), wants_artifact=False)
        handle.remove()
        assert not rig.store.snapshots
        assert [f.reason for f in run.finished.snapshot_failures] == ["NOT_FINITE"] * 2


@pytest.mark.parametrize(
    ("plan", "field"),
    [
        (SnapshotPlan("e", key_steps=(0,)), "snapshots.key_steps"),
        (SnapshotPlan("e", key_steps=(STEPS,)), "snapshots.key_steps"),
        (SnapshotPlan("e", key_steps=(3, 2)), "snapshots.key_steps"),
        (SnapshotPlan("e", lease_s=0.0), "snapshots.lease"),
        (SnapshotPlan("e", lease_s=float("nan")), "snapshots.lease"),
        (SnapshotPlan("no spaces"), "entry_id"),
    ],
)
def test_a_snapshot_plan_that_makes_no_sense_is_refused(
    rig: Rig, plan: SnapshotPlan, field: str
) -> None:
    with pytest.raises(errors.InvalidArgument) as raised:
        rig.run(snapshots=plan)
    assert raised.value.field == field
    assert not rig.store.snapshots
