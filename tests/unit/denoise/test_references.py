"""Reference inputs: part of the key, used by the run, and kept by nobody."""

from __future__ import annotations

import dataclasses
import io
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import SimpleNamespace

import pytest
from diffusers.pipelines.wan import pipeline_wan_i2v
from PIL import Image
from tests.unit.denoise.engine_rig import EVERY_STEP, PARAMS, STEPS, Rig, open_rig, trajectory
from tests.unit.denoise.tiny_pipelines import wan_image_pipeline

from skipstone_denoise.references import decode_picture
from skipstone_shared.denoise_runs import ResumeFrom, ResumeKind
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import GenerationParams, ReferenceInput, ReferenceRole

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:diffusers.*")


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with pytest.MonkeyPatch.context() as patch, open_rig_without_ftfy(patch) as rig:
        yield rig


def open_rig_without_ftfy(patch: pytest.MonkeyPatch) -> AbstractContextManager[Rig]:
    """This pipeline of diffusers calls ftfy without looking whether it is installed."""
    patch.setattr(pipeline_wan_i2v, "ftfy", SimpleNamespace(fix_text=str), raising=False)
    return open_rig(wan_image_pipeline())


def picture(colour: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (16, 16), colour).save(buffer, "PNG")
    return buffer.getvalue()


def beginning_with(data: bytes) -> GenerationParams:
    reference = ReferenceInput(ReferenceRole.IMAGE, "image/png", data)
    return dataclasses.replace(PARAMS, num_frames=5, reference_inputs=(reference,))


def test_another_reference_is_another_key_and_another_video(rig: Rig) -> None:
    red, blue = (beginning_with(picture(colour)) for colour in ("red", "blue"))
    keys = [rig.engine.plan(params).compatibility_key for params in (red, blue, red)]
    assert keys[0] == keys[2] != keys[1]
    assert rig.run(red).picture != rig.run(blue).picture


def test_a_run_with_a_reference_resumes_and_decodes_exactly(rig: Rig) -> None:
    params = beginning_with(picture("green"))
    full = rig.run(params, snapshots=EVERY_STEP)
    resumed = rig.run(params, resume=trajectory(full.refs[3]))
    decoded = rig.run(params, resume=ResumeFrom(full.refs[STEPS], STEPS, ResumeKind.DECODE))
    assert (resumed.finished.executed_steps, decoded.finished.executed_steps) == (STEPS - 3, 0)
    assert resumed.picture == decoded.picture == full.picture


def test_kept_plans_do_not_hold_reference_inputs(rig: Rig) -> None:
    """Each may have megabytes, and 128 plans are kept."""
    data = picture("white")
    before = sys.getrefcount(data)
    planned = rig.engine.plan(beginning_with(data))
    assert planned.params.reference_inputs[0].data is data
    del planned
    assert sys.getrefcount(data) == before


def test_a_reference_picture_is_decoded_and_nonsense_is_refused(rig: Rig) -> None:
    data = picture("red")
    assert decode_picture(data).size == (16, 16)
    for nonsense in (b"GIF89a", data[:40]):
        with pytest.raises(InvalidArgument, match="not a picture"):
            rig.engine.plan(beginning_with(nonsense))
