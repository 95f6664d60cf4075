"""The benchmark of reuse asks the real services, and its pictures are theirs."""

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from quality.decisions import Services, running_services
from quality.pictures import NAMESPACE, PictureStore, Pixels, Run, Studio
from quality.trace import CaptionRequest
from skipstone_shared.denoise_runs import (
    DenoiseFinished,
    DenoiseRequest,
    ResumeFrom,
    ResumeKind,
    SnapshotPlan,
)
from skipstone_shared.generation import Artifact, BlockCachePreset
from skipstone_shared.latents import LatentRef

pytestmark = [pytest.mark.e2e, pytest.mark.long]

CAPTION = "a large red circle on the left and a small blue ring at the top right, gray background"
THREADS = 1  # another number rounds differently: single pixels differ by one grey level
FULL = Run(CAPTION, 7, 6)


@pytest.fixture(scope="module")
def services() -> Iterator[Services]:
    with running_services(THREADS) as running:
        yield running


def served(
    services: Services, run: Run, donor: LatentRef | None = None
) -> tuple[Pixels, tuple[LatentRef, ...]]:
    """The picture that the denoise service makes of a run, and the snapshots it stored."""
    resume = None
    if donor is not None and run.kind is not None:
        resume = ResumeFrom(donor, run.skip_steps, run.kind)
    snapshots = None if resume else SnapshotPlan("donor")
    pixels: Pixels | None = None
    for event in services.denoise.run(
        DenoiseRequest(NAMESPACE, run.params(), resume=resume, snapshots=snapshots)
    ):
        if isinstance(event, Artifact):
            with Image.open(io.BytesIO(event.data)) as image:
                pixels = np.asarray(image.convert("RGB"), dtype=np.float32)
        if isinstance(event, DenoiseFinished):
            assert pixels is not None
            assert event.skip_steps == run.skip_steps
            return pixels, event.snapshots
    raise AssertionError("the run did not finish")


def test_pictures_of_the_bench_are_bit_for_bit_those_of_the_services(
    services: Services, tmp_path: Path
) -> None:
    resumed = Run("a small red square on the right, gray background", 8, 6, None, FULL, 2,
                  ResumeKind.RENOISE)  # fmt: skip
    cached = Run(CAPTION, 7, 12, BlockCachePreset.BALANCED)
    full_pixels, snapshots = served(services, FULL)
    [donor] = [ref for ref in snapshots if ref.step_index == FULL.steps]
    with Studio(PictureStore(tmp_path), THREADS) as studio:
        for run, pixels in (
            (FULL, full_pixels),
            (resumed, served(services, resumed, donor)[0]),
            (cached, served(services, cached)[0]),
        ):
            studio.picture(run)
            np.testing.assert_array_equal(studio.pixels(run), pixels)


def test_a_picture_is_made_once_and_found_by_the_next_run_of_the_bench(tmp_path: Path) -> None:
    with Studio(PictureStore(tmp_path), THREADS) as studio:
        assert not studio.has(FULL)
        first = studio.picture(FULL)
    with Studio(PictureStore(tmp_path), THREADS) as studio:
        assert studio.has(FULL)
        assert studio.picture(FULL) == first


def test_decisions_name_the_request_whose_latent_is_used(services: Services) -> None:
    asked = [(CAPTION, 1), ("three words here", 2), (CAPTION, 1)]
    requests = [CaptionRequest(i, text, seed, "", 0, None) for i, (text, seed) in enumerate(asked)]
    decisions = services.decide(requests, steps=6)
    assert decisions[0].tier == "miss"
    assert (decisions[2].tier, decisions[2].donor, decisions[2].skip_steps) == ("exact", 0, 6)
