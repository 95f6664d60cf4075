"""Every family of models, from a saved folder through the executor's own path.

Tiny pipelines of the real diffusers classes with random weights: what is tested is how a class
calls, packs, guides and steps, which does not depend on the size of its weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, get_type_hints

import diffusers
import pytest
import torch
from tests.unit.denoise.engine_rig import (
    EVERY_STEP,
    PARAMS,
    STEPS,
    Outcome,
    Rig,
    open_rig,
    picture_of,
)
from tests.unit.denoise.engine_rig import trajectory as from_step
from tests.unit.denoise.families.family_cases import CASES, LONG, FamilyCase

from skipstone_denoise.model_families import (
    DEFAULT_FRAME_RATE,
    FAMILIES,
    Guidance,
    family_of,
    native_frame_rate,
)
from skipstone_denoise.model_folder import check_model
from skipstone_denoise.pipeline_loader import load_pipeline
from skipstone_shared.denoise_runs import ResumeFrom, ResumeKind, SnapshotPlan
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import Artifact, BlockCacheConfig, GenerationParams
from skipstone_shared.latents import GuidanceMode

pytestmark = pytest.mark.filterwarnings("ignore")

RESUMED_AT = (1, 3, 5)
REUSE_NOTHING = BlockCacheConfig(max_warmup_steps=1, residual_diff_threshold=0.0)
REUSE_ALWAYS = BlockCacheConfig(max_warmup_steps=1, residual_diff_threshold=1.0)


@dataclasses.dataclass(frozen=True)
class Subject:
    """A loaded pipeline with its executor; all tests of a case share it."""

    name: str
    case: FamilyCase
    rig: Rig
    full: Outcome

    @property
    def params(self) -> GenerationParams:
        return params_of(self.case, self.rig)

    def clean(self, **changes: Any) -> bytes:
        """The clean latents of a run that is not decoded, as they are stored."""
        params = dataclasses.replace(self.params, **changes)
        snapshots = SnapshotPlan("one", store_clean=True)
        outcome = self.rig.run(params, snapshots=snapshots, wants_artifact=False)
        return stored(self.rig, outcome)

    def key(self, **changes: Any) -> str:
        params = dataclasses.replace(self.params, **changes)
        return self.rig.engine.plan(params).compatibility_key


def stored(rig: Rig, outcome: Outcome, step: int = STEPS) -> bytes:
    return rig.store.array(outcome.refs[step]).tobytes()


def params_of(case: FamilyCase, rig: Rig) -> GenerationParams:
    """Guided, as far as the family can be asked for it; two latent frames of a video."""
    capabilities = rig.engine.get_capabilities()
    guidance = guidance_of(rig)
    true_guidance = guidance in (Guidance.TRUE, Guidance.DISTILLED_AND_TRUE)
    return dataclasses.replace(
        PARAMS,
        height=case.size,
        width=case.size,
        negative_prompt="a blue square" if case.takes_negative else "",
        guidance_scale=None if guidance is Guidance.OF_THE_MODEL else 3.0,
        guidance_scale_2=2.0 if true_guidance else None,
        num_frames=5 if capabilities.max_num_frames > 1 else None,
        reference_inputs=(picture_of("red"),) if case.picture == "always" else (),
    )


def guidance_of(rig: Rig) -> Guidance:
    family = family_of(rig.pipeline)
    assert family is not None
    return family.pipelines[type(rig.pipeline).__name__]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that share so little work only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(
    scope="module",
    params=[pytest.param(n, marks=[pytest.mark.long] if n in LONG else []) for n in CASES],
)
def subject(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Subject]:
    case = CASES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    case.build().save_pretrained(folder)
    check_model(str(folder), "", allow_download=False)
    pipeline = load_pipeline(str(folder), device="cpu", dtype="float32")
    # The default of some is minutes of work here, since a plan encodes the picture.
    small = {"default_height": case.size, "default_width": case.size, "default_num_frames": 5}
    with open_rig(pipeline, **(small if case.picture == "always" else {})) as rig:
        full = rig.run(params_of(case, rig), snapshots=EVERY_STEP)
        yield Subject(request.param, case, rig, full)


def test_what_a_plan_has_filled_in_is_what_it_takes(subject: Subject) -> None:
    """The orchestrator runs what was planned, with every default filled in."""
    least = GenerationParams("a red circle", reference_inputs=subject.params.reference_inputs)
    filled = subject.rig.engine.plan(least).params
    assert subject.rig.engine.plan(filled).params == filled


def test_a_run_resumed_from_its_own_snapshots_equals_the_full_run(subject: Subject) -> None:
    rig, full = subject.rig, subject.full
    if not subject.case.trajectory:
        assert sorted(full.refs) == [STEPS]
        reasons = {failure.reason for failure in full.finished.snapshot_failures}
        assert reasons == {"SCHEDULER_UNSUPPORTED"}
        return
    for step in RESUMED_AT:
        again = SnapshotPlan("again", store_clean=True)
        resumed = rig.run(subject.params, resume=from_step(full.refs[step]), snapshots=again)
        assert resumed.started.refusal_reason == ""
        assert resumed.finished.executed_steps == STEPS - step
        assert stored(rig, resumed) == stored(rig, full)
        assert resumed.picture == full.picture


def test_the_clean_latent_decodes_to_the_same_bytes_without_a_step(subject: Subject) -> None:
    decode = ResumeFrom(subject.full.refs[STEPS], STEPS, ResumeKind.DECODE)
    decoded = subject.rig.run(subject.params, resume=decode)
    assert (decoded.finished.executed_steps, decoded.picture) == (0, subject.full.picture)


def test_prompt_and_seed_show_in_the_latents(subject: Subject) -> None:
    """Else the other tests would compare what cannot differ."""
    first = stored(subject.rig, subject.full)
    assert subject.clean() == first
    assert subject.clean(prompt="a green circle") != first
    assert subject.clean(seed=8) != first


def test_shape_and_packing_are_part_of_the_key(subject: Subject) -> None:
    fingerprint = subject.rig.engine.plan(subject.params).fingerprint
    assert fingerprint.latents.shape == subject.case.latents
    assert fingerprint.latent_packing == ("packed" if subject.case.packed else "none")
    assert subject.key(width=2 * subject.case.size) != subject.key()
    if subject.case.frame_rate:
        assert subject.key(num_frames=9) != subject.key()


def test_guidance_and_the_negative_prompt_do_what_the_family_says(subject: Subject) -> None:
    plan = subject.rig.engine.plan
    assert plan(subject.params).fingerprint.guidance_mode is subject.case.mode
    if not subject.case.takes_negative:
        with pytest.raises(InvalidArgument, match="takes none"):
            subject.key(negative_prompt="a blue square")
        return
    without = dataclasses.replace(subject.params, negative_prompt="")
    needs_one = guidance_of(subject.rig) in (Guidance.TRUE, Guidance.DISTILLED_AND_TRUE)
    mode = GuidanceMode.NONE if needs_one else subject.case.mode
    assert plan(without).fingerprint.guidance_mode is mode
    assert subject.key(negative_prompt="") != subject.key()
    assert subject.clean(negative_prompt="") != stored(subject.rig, subject.full)


def test_a_picture_to_begin_with_is_hashed_into_the_key(subject: Subject) -> None:
    if subject.case.picture == "never":
        with pytest.raises(InvalidArgument, match="does not take"):
            subject.key(reference_inputs=(picture_of("red"),))
        return
    red, blue = (picture_of("red"),), (picture_of("blue"),)
    assert subject.key(reference_inputs=red) != subject.key(reference_inputs=blue)
    assert subject.clean(reference_inputs=red) != subject.clean(reference_inputs=blue)
    if subject.case.picture == "always":
        with pytest.raises(InvalidArgument, match="lacks the image"):
            subject.key(reference_inputs=())


def test_blocks_are_cached_or_refused_with_a_reason(subject: Subject) -> None:
    family = family_of(subject.rig.pipeline)
    assert family is not None
    assert family.block_cache is subject.case.block_cache
    if not subject.case.block_cache:
        assert not subject.rig.engine.get_capabilities().block_cache_supported
        with pytest.raises(InvalidArgument, match="has no transformer") as refused:
            subject.key(block_cache=REUSE_ALWAYS)
        assert refused.value.field == "params.block_cache"
        return
    assert subject.clean(block_cache=REUSE_NOTHING) == stored(subject.rig, subject.full)
    params = dataclasses.replace(subject.params, block_cache=REUSE_ALWAYS)
    report = subject.rig.run(params, wants_artifact=False).finished.block_cache
    assert report is not None
    assert 0 < report.block_calls < report.block_calls_full


def test_two_requests_at_once_are_each_as_it_is_alone(subject: Subject) -> None:
    """They share modules, and whatever these keep between calls: tables, contexts, processors."""
    second = dataclasses.replace(
        subject.params,
        prompt="a green circle",
        seed=8,
        num_inference_steps=STEPS - 1,
        width=2 * subject.case.size,
    )
    alone = [subject.full.picture, subject.rig.run(second).picture]
    assert subject.rig.run_at_once([subject.params, second]) == alone


def test_videos_have_the_frame_rate_of_their_family(subject: Subject) -> None:
    family = family_of(subject.rig.pipeline)
    assert family is not None
    assert (family.frame_rate is not None) == bool(subject.case.frame_rate)
    told = subject.rig.engine.get_capabilities()
    assert told.frame_rate == subject.case.frame_rate
    (artifact,) = (event for event in subject.full.events if isinstance(event, Artifact))
    assert artifact.frame_rate == subject.case.frame_rate
    if subject.case.frame_rate:
        assert native_frame_rate(subject.rig.pipeline) == subject.case.frame_rate
        assert (subject.params.num_frames or 0) % told.frame_step == 1


def test_relatives_that_are_not_listed_play_at_the_rate_of_the_family_or_their_own() -> None:
    def rate(pipeline_class: Any, **config: Any) -> float:
        pipeline = pipeline_class.__new__(pipeline_class)
        pipeline.register_to_config(**config)
        return native_frame_rate(pipeline)

    assert rate(diffusers.WanVideoToVideoPipeline, expand_timesteps=True) == 24
    assert rate(diffusers.HunyuanVideo15ImageToVideoPipeline) == 24
    assert rate(diffusers.Cosmos2VideoToWorldPipeline) == 16
    assert rate(diffusers.CosmosTextToWorldPipeline) == 30
    assert rate(diffusers.MochiPipeline) == DEFAULT_FRAME_RATE


def test_every_pipeline_of_every_family_is_tested() -> None:
    told = {name for family in FAMILIES for name in family.pipelines}
    built = {get_type_hints(case.build)["return"].__name__ for case in CASES.values()}
    assert built == told
