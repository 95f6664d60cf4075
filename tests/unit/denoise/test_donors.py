"""A donor that cannot be used costs nothing but its reading: the run starts from noise."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from tests.unit.denoise.engine_rig import EVERY_STEP, PARAMS, STEPS, Rig, open_rig, trajectory
from tests.unit.denoise.tiny_pipelines import cogview4_pipeline, pixart_pipeline

from skipstone_shared import errors
from skipstone_shared.denoise_runs import ResumeFrom, ResumeKind, SnapshotPlan
from skipstone_shared.latents import LatentRef, TensorPart, TensorSpec

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:diffusers.*")

KEY = ("default", "donor", 3)


@pytest.fixture(scope="module")
def shared_rig() -> Iterator[Rig]:
    with open_rig(cogview4_pipeline()) as rig:
        yield rig


@pytest.fixture
def rig(shared_rig: Rig) -> Rig:
    shared_rig.store.snapshots.clear()
    shared_rig.store.before_read = lambda: None
    return shared_rig


def missing(rig: Rig, ref: LatentRef) -> LatentRef:
    del rig.store.snapshots[KEY]
    return ref


def flipped_bit(rig: Rig, ref: LatentRef) -> LatentRef:
    stored = rig.store.snapshots[KEY]
    data = bytearray(stored.data)
    data[100] ^= 1
    rig.store.snapshots[KEY] = dataclasses.replace(stored, data=bytes(data))
    return ref


def truncated(rig: Rig, ref: LatentRef) -> LatentRef:
    stored = rig.store.snapshots[KEY]
    return rig.store.put("default", stored.metadata, bytes(stored.data[:-4]))


def other_shape(rig: Rig, ref: LatentRef) -> LatentRef:
    stored = rig.store.snapshots[KEY]
    spec = stored.metadata.parts[0].spec
    part = TensorPart("latents", TensorSpec(spec.dtype, (*reversed(spec.shape),)))
    metadata = dataclasses.replace(stored.metadata, parts=(part,))
    return rig.store.put("default", metadata, bytes(stored.data))


def not_finite(rig: Rig, ref: LatentRef) -> LatentRef:
    stored = rig.store.snapshots[KEY]
    values = np.frombuffer(stored.data, np.float32).copy()
    values[5] = np.nan
    return rig.store.put("default", stored.metadata, values.tobytes())


def other_model(rig: Rig, ref: LatentRef) -> LatentRef:
    stored = rig.store.snapshots[KEY]
    metadata = dataclasses.replace(stored.metadata, compatibility_key="0" * 32)
    rig.store.put("default", metadata, bytes(stored.data))
    return ref


def other_model_by_reference(rig: Rig, ref: LatentRef) -> LatentRef:
    rig.store.before_read = _unexpected
    return dataclasses.replace(ref, compatibility_key="0" * 32)


def overwritten(rig: Rig, ref: LatentRef) -> LatentRef:
    return dataclasses.replace(ref, xxh3_64=ref.xxh3_64 ^ 1)


def store_down(rig: Rig, ref: LatentRef) -> LatentRef:
    rig.store.before_read = _raiser(errors.Unavailable("connection refused"))
    return ref


def store_late(rig: Rig, ref: LatentRef) -> LatentRef:
    rig.store.before_read = _raiser(errors.DeadlineExceeded("too late"))
    return ref


def store_mad(rig: Rig, ref: LatentRef) -> LatentRef:
    rig.store.before_read = _raiser(ZeroDivisionError())
    return ref


def _raiser(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def _unexpected() -> None:
    raise AssertionError("the store was asked although the reference says enough")


REFUSED: list[tuple[Callable[[Rig, LatentRef], LatentRef], str]] = [
    (missing, "LATENT_NOT_FOUND"),
    (flipped_bit, "LATENT_CORRUPT"),
    (truncated, "LATENT_CORRUPT"),
    (other_shape, "SPEC_MISMATCH"),
    (not_finite, "NOT_FINITE"),
    (other_model, "COMPATIBILITY_MISMATCH"),
    (other_model_by_reference, "COMPATIBILITY_MISMATCH"),
    (overwritten, "SPEC_MISMATCH"),
    (store_down, "STORE_UNAVAILABLE"),
    (store_late, "STORE_TIMEOUT"),
    (store_mad, "STORE_FAILED"),
]


@pytest.mark.parametrize(
    ("spoil", "reason"), REFUSED, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_donor_that_is_not_usable_is_refused_with_its_reason(
    rig: Rig, spoil: Callable[[Rig, LatentRef], LatentRef], reason: str
) -> None:
    full = rig.run(snapshots=EVERY_STEP)
    ref = spoil(rig, full.refs[3])
    resumed = rig.run(resume=trajectory(ref))
    assert (resumed.started.refusal_reason, resumed.started.skip_steps) == (reason, 0)
    assert resumed.started.refusal_message
    assert resumed.finished.executed_steps == STEPS
    assert resumed.picture == full.picture


def test_a_store_that_hangs_is_given_up_after_its_time() -> None:
    with open_rig(cogview4_pipeline(), resume_read_timeout_ms=1) as rig:
        full = rig.run(snapshots=EVERY_STEP)
        awake = threading.Event()
        rig.store.before_read = lambda: awake.wait(60) and None
        resumed = rig.run(resume=trajectory(full.refs[3]))
        awake.set()
        assert resumed.started.refusal_reason == "STORE_TIMEOUT"
        assert resumed.picture == full.picture


def test_without_a_configured_store_a_resume_is_refused(rig: Rig) -> None:
    from skipstone_denoise.store_directory import StoreDirectory

    with pytest.raises(errors.Unavailable, match="latent_kv_target"):
        StoreDirectory("")("")


def test_one_caller_cannot_open_any_number_of_stores() -> None:
    from skipstone_denoise.store_directory import StoreDirectory

    stores = StoreDirectory("127.0.0.1:1")
    for port in range(2, 17):
        stores(f"127.0.0.1:{port}")
    assert stores("") is stores("127.0.0.1:1")
    with pytest.raises(errors.Unavailable, match="16"):
        stores("127.0.0.1:99")
    stores.close()


def test_renoise_gives_a_new_picture_for_each_seed_by_the_formula(rig: Rig) -> None:
    """A trajectory ignores the seed; a re-noised clean latent must not."""
    full = rig.run(snapshots=EVERY_STEP)
    clean = rig.store.array(full.refs[STEPS])
    pictures = {full.picture}
    for seed in (1, 2, 3):
        params = dataclasses.replace(PARAMS, seed=seed)
        noise = _initial_noise(rig, seed)
        resume = ResumeFrom(full.refs[STEPS], 2, ResumeKind.RENOISE)
        entered: list[np.ndarray] = []
        with _watched_input(rig, entered):
            resumed = rig.run(params, resume=resume)
        sigma = rig.engine.plan(params).sigmas[2]
        assert np.allclose(entered[0], (1 - sigma) * clean + sigma * noise, atol=1e-6)
        assert resumed.finished.executed_steps == STEPS - 2
        pictures.add(resumed.picture)
    assert len(pictures) == 4


def test_renoise_of_an_epsilon_model_uses_the_forward_process_of_its_scheduler() -> None:
    with open_rig(pixart_pipeline()) as rig:
        full = rig.run(snapshots=SnapshotPlan("donor"))
        clean = rig.store.array(full.refs[STEPS])
        params = dataclasses.replace(PARAMS, seed=11)
        entered: list[np.ndarray] = []
        with _watched_input(rig, entered):
            rig.run(params, resume=ResumeFrom(full.refs[STEPS], 3, ResumeKind.RENOISE))
        # sigma is noise over signal: alpha^2 = 1 / (1 + sigma^2).
        alpha = 1 / np.sqrt(1 + rig.engine.plan(params).sigmas[3] ** 2)
        expected = alpha * clean + np.sqrt(1 - alpha**2) * _initial_noise(rig, 11)
        assert np.allclose(entered[0], expected, atol=1e-5)


def _initial_noise(rig: Rig, seed: int) -> np.ndarray:
    import torch

    shape = rig.engine.plan(PARAMS).fingerprint.latents.shape
    return torch.randn(shape, generator=torch.Generator("cpu").manual_seed(seed)).numpy()


def _watched_input(rig: Rig, seen: list[np.ndarray]) -> _Watch:
    return _Watch(rig, seen)


class _Watch:
    """Notes the first sample of what enters the transformer."""

    def __init__(self, rig: Rig, seen: list[np.ndarray]) -> None:
        self._transformer = rig.pipeline.transformer
        self._seen = seen

    def __enter__(self) -> None:
        def note(_module: object, args: tuple, kwargs: dict) -> None:
            self._seen.append((args[0] if args else kwargs["hidden_states"])[:1].numpy().copy())

        self._handle = self._transformer.register_forward_pre_hook(note, with_kwargs=True)

    def __exit__(self, *_: object) -> None:
        self._handle.remove()


@pytest.mark.parametrize(
    ("kind", "step_index", "skip_steps", "field"),
    [
        (ResumeKind.TRAJECTORY, 3, 0, "resume.skip_steps"),
        (ResumeKind.TRAJECTORY, 3, STEPS, "resume.skip_steps"),
        (ResumeKind.TRAJECTORY, 3, 2, "resume.donor.step_index"),
        (ResumeKind.RENOISE, 3, 3, "resume.donor.step_index"),
        (ResumeKind.DECODE, STEPS, 3, "resume.skip_steps"),
    ],
)
def test_a_resume_that_makes_no_sense_is_refused_naming_the_field(
    rig: Rig, kind: ResumeKind, step_index: int, skip_steps: int, field: str
) -> None:
    resume = ResumeFrom(LatentRef("default", "donor", step_index), skip_steps, kind)
    with pytest.raises(errors.InvalidArgument) as raised:
        rig.run(resume=resume)
    assert raised.value.field == field
