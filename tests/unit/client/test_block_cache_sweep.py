"""`skipstone blockcache sweep` against an orchestrator whose pictures change as settings say."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import re

import av
import numpy as np
import pytest
import structlog
from PIL import Image
from tests.unit.client.fake_services import FakeOrchestrator, serving
from typer.testing import CliRunner

from skipstone.orchestrator.v1 import orchestrator_pb2
from skipstone_client import cli_block_cache_sweep
from skipstone_client.block_cache_sweep.choice import choose, pareto_front
from skipstone_client.block_cache_sweep.drift import Drift, drift_between, frames_of
from skipstone_client.block_cache_sweep.measure import Measured
from skipstone_client.block_cache_sweep.settings import Grid, Kind, Setting, fewer_steps
from skipstone_client.block_cache_sweep.tables import choice_lines
from skipstone_client.cli_commands import build_app
from skipstone_shared.errors import InvalidArgument, QueueFull
from skipstone_shared.generation import (
    Artifact,
    BlockCacheConfig,
    BlockCachePreset,
    BlockCacheReport,
    BranchReport,
    GenerationParams,
)
from skipstone_shared.generation_messages import params_from_message
from skipstone_shared.orchestration import (
    CacheMode,
    GenerateAccepted,
    GenerateFinished,
    GenerateStarted,
    HitTier,
    OrchestratorCapabilities,
    Provenance,
)
from skipstone_shared.orchestration_answer_messages import orchestrator_capabilities_to_message
from skipstone_shared.orchestration_messages import event_to_messages

STEPS = 20
BLOCKS = 8


@pytest.fixture(autouse=True)
def _silent_server():
    """The server runs in this process and would log into what the command prints."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield
    structlog.reset_defaults()


def picture(change: float, seed: int = 0) -> Artifact:
    """A picture of a seed; every second pixel of it is off by `change`."""
    base = np.random.default_rng(seed).integers(100, 150, (16, 16, 3))
    base[::2] = np.clip(base[::2] + round(change), 0, 255)
    buffer = io.BytesIO()
    Image.fromarray(base.astype(np.uint8)).save(buffer, "PNG")
    return Artifact("image/png", buffer.getvalue(), 16, 16)


class Model:
    """Answers Generate: a threshold of t reuses a share t of the steps and is 100 t off."""

    def __init__(self) -> None:
        self.asked: list[GenerationParams] = []
        self.modes: list[CacheMode] = []

    def generate(self, request, context):
        params = params_from_message(request.params)
        self.asked.append(params)
        self.modes.append(request.cache.mode)
        config = params.block_cache
        if (config.fn_compute_blocks or 1) >= BLOCKS:
            raise InvalidArgument(f"F = {config.fn_compute_blocks}", allowed="at most 7")
        steps = params.num_inference_steps or STEPS
        change, report = float(STEPS - steps), None
        if config.preset is not BlockCachePreset.NONE:
            threshold = config.residual_diff_threshold or 0.5
            reused = int(threshold * steps)
            change, report = 100 * threshold, report_of(steps, reused)
        return self._answer(params, steps, picture(change, params.seed), report)

    def _answer(self, params, steps, artifact, report):
        provenance = Provenance(
            request_id="r",
            tier=HitTier.MISS,
            reason="CACHE_OFF",
            executed_steps=steps,
            num_inference_steps=steps,
            seed=params.seed,
            cache_mode=CacheMode.OFF,
            policy_version="1",
            block_cache=report,
            stage_times_s={"denoise": 0.5, "total": 2.0},
        )
        events = (
            GenerateAccepted("r", dataclasses.replace(params, num_inference_steps=steps)),
            GenerateStarted(HitTier.MISS, 0, steps),
            artifact,
            GenerateFinished(provenance),
        )
        return (message for event in events for message in event_to_messages(event))


def report_of(steps: int, reused: int) -> BlockCacheReport:
    branches = tuple(
        BranchReport("transformer", name, tuple(range(steps - reused)), tuple(range(reused)))
        for name in ("cond", "uncond")
    )
    full = 2 * steps * BLOCKS
    notes = () if reused else ("nothing can be reused; raise it",)
    return BlockCacheReport(branches, full - 2 * reused * (BLOCKS - 1), full, notes)


def capabilities(request, context):
    return orchestrator_capabilities_to_message(
        OrchestratorCapabilities("1", "1", CacheMode.READ_WRITE, 100, model_id="/models/some-model")
    )


def run(model, *words, **answers):
    answers = {"Generate": model.generate, "GetCapabilities": capabilities} | answers
    with serving(FakeOrchestrator(**answers)) as target:
        environ = {"SKIPSTONE_TARGET": target, "COLUMNS": "200"}
        return CliRunner().invoke(
            build_app(), ["blockcache", "sweep", "a red", *words], env=environ
        )


SMALL = (
    *("--thresholds", "0.06,0.2", "--max-continuous", "3"),
    *("--taylorseer", "off", "--no-presets"),
)


def test_a_sweep_compares_every_setting_with_the_full_run_of_the_same_seed(tmp_path):
    """Without reuse, since a stored result or a donor would hide what the setting does."""
    model = Model()
    result = run(model, *SMALL, "--seed", "5", "--out", str(tmp_path), "--json")
    assert result.exit_code == 0
    rows = json.loads(result.stdout)["rows"]
    kinds = [row["kind"] for row in rows]
    assert kinds == ["full", *["fewer steps"] * 6, "block cache", "block cache", "full"]
    assert {params.seed for params in model.asked} == {5}
    assert set(model.modes) == {orchestrator_pb2.CACHE_MODE_OFF}
    plain = [p for p in model.asked if p.block_cache == BlockCacheConfig(BlockCachePreset.NONE)]
    assert len(plain) == 8
    low, high = rows[7], rows[8]
    assert low["block_calls_share"] == pytest.approx(1 - 1 * 7 / (20 * 8))
    assert high["block_calls_share"] == pytest.approx(1 - 4 * 7 / (20 * 8))
    assert (high["computed_steps"], high["reused_steps"]) == (32, 8)
    assert high["psnr_db"] == pytest.approx(10 * math.log10(255**2 / (20**2 / 2)), abs=0.01)
    assert low["psnr_db"] > high["psnr_db"]
    assert 0 < low["rel_l1"] < high["rel_l1"]
    assert rows[0]["psnr_db"] is None
    assert rows[-1]["rel_l1"] == 0
    assert rows[0]["denoise_s"] == 0.5


def test_a_sweep_writes_what_a_user_chooses_by(tmp_path):
    result = run(Model(), *SMALL, "--out", str(tmp_path / "new" / "folder"))
    out = tmp_path / "new" / "folder"
    assert result.exit_code == 0
    with (out / "sweep.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    document = json.loads((out / "sweep.json").read_text())
    assert len(rows) == len(document["rows"]) == 10
    assert document["model"] == "some-model"
    for row in rows:
        assert (out / row["picture"]).read_bytes().startswith(b"\x89PNG")
    for name in ("sweep.png", "pictures.png"):
        with Image.open(out / name) as image:
            assert image.width > 300
            assert len(np.unique(np.asarray(image))) > 20
    options = {
        "Fn_compute_blocks": 1,
        "max_continuous_cached_steps": 3,
        "residual_diff_threshold": 0.06,
    }
    pasted = re.findall(r"--cache-config '(.*)'", result.stdout)
    assert [json.loads(text) for text in pasted] == [options, options]


def test_a_setting_that_the_model_cannot_run_is_told_and_left_out(tmp_path):
    words = (*SMALL, "--fn", "1,9", "--no-fewer-steps", "--out", str(tmp_path))
    result = run(Model(), *words)
    assert result.exit_code == 0
    reason = "F = 9 (allowed: at most 7)"
    assert f"left out: F 9, threshold 0.06; F 9, threshold 0.2: {reason}\n" in result.stdout
    document = json.loads((tmp_path / "sweep.json").read_text())
    assert len(document["refused"]) == 2
    assert len(document["rows"]) == 4


def test_what_the_executor_says_of_a_setting_is_told(tmp_path):
    words = (*SMALL, "--thresholds", "0.01", "--taylorseer", "off,1", "--no-fewer-steps")
    result = run(Model(), *words, "--out", str(tmp_path))
    assert result.exit_code == 0
    assert "note: defaults; taylor 1: nothing can be reused; raise it\n" in result.stdout
    assert result.stdout.count("no setting of this sweep") == 2


def test_when_no_setting_can_be_run_the_reason_is_the_error(tmp_path):
    result = run(Model(), *SMALL, "--fn", "9", "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "F = 9 (allowed: at most 7)" in result.stderr


def test_what_was_measured_before_a_failure_is_written(tmp_path):
    model = Model()

    def answer(request, context):
        if len(model.asked) == 8:
            raise QueueFull("16 wait")
        return model.generate(request, context)

    result = run(model, *SMALL, "--out", str(tmp_path), Generate=answer)
    assert result.exit_code == 1
    assert "16 wait" in result.stderr
    assert len(json.loads((tmp_path / "sweep.json").read_text())["rows"]) == 8


def test_several_seeds_give_medians(tmp_path):
    model = Model()
    words = (*SMALL, "--no-fewer-steps", "--seed", "1, 2,3", "--out", str(tmp_path))
    assert run(model, *words).exit_code == 0
    assert [params.seed for params in model.asked] == [1, 2, 3] * 4
    rows = json.loads((tmp_path / "sweep.json").read_text())["rows"]
    assert rows[2]["psnr_db"] == pytest.approx(10 * math.log10(255**2 / (20**2 / 2)), abs=0.01)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--thresholds", "0.1;0.2"), "--thresholds"),
        (("--fn", "1.5"), "whole numbers"),
        (("--taylorseer", "3"), "dd1"),
        (("--scm", "quick"), "medium-static"),
        (("--cache-config", "@nowhere.json"), "nowhere.json"),
        (("--cache-config", '{"Fn_compute_block": 1}'), "Fn_compute_block"),
    ],
)
def test_bad_input_is_told_before_anything_is_run(words, told, tmp_path):
    model = Model()
    result = run(model, *words, "--out", str(tmp_path))
    assert result.exit_code == 2
    assert told in result.stderr
    assert not model.asked


def test_a_folder_that_cannot_be_made_is_told_before_anything_is_run(tmp_path):
    (tmp_path / "file").write_text("")
    model = Model()
    result = run(model, "--out", str(tmp_path / "file" / "folder"))
    assert result.exit_code == 2
    assert result.stderr.startswith("skipstone: --out: cannot make")
    assert not model.asked


def test_a_missing_drawing_package_is_told_before_anything_is_run(monkeypatch, tmp_path):
    """The client installs without it; an error after minutes of runs would be too late."""
    monkeypatch.setattr(cli_block_cache_sweep, "find_spec", lambda name: None)
    model = Model()
    result = run(model, "--out", str(tmp_path))
    assert result.exit_code == 1
    assert "matplotlib" in result.stderr
    assert "pip install 'skipstone[cli]'" in result.stderr
    assert not model.asked


def test_clips_that_cannot_be_decoded_are_told_as_such(tmp_path):
    clip = Artifact("video/webm", b"\0" * 100, 16, 16, num_frames=5)
    model = Model()

    def answer(request, context):
        return model._answer(params_from_message(request.params), STEPS, clip, None)

    result = run(model, "--out", str(tmp_path), Generate=answer)
    assert result.exit_code == 2
    assert "video/webm" in result.stderr


def test_a_grid_combines_each_with_each_and_tries_no_threshold_under_a_static_mask():
    grid = Grid(thresholds=(0.1, 0.2), fn=(1, 2), forecasts=("off", "dd2"), masks=("fast-static",))
    mask = {"scm_steps_mask_policy": "fast", "scm_steps_policy": "static"}
    assert [json.loads(setting.text) for setting in grid.settings()] == [
        {"Fn_compute_blocks": fn, **mask, **forecast}
        for forecast in (
            {},
            {"enable_divided_difference": True, "taylorseer_order": 2},
        )
        for fn in (1, 2)
    ]
    both = Grid(thresholds=(0.1, 0.2), masks=("none", "slow")).settings()
    assert [setting.config.residual_diff_threshold for setting in both] == [0.1, 0.2] * 2


def test_a_grid_without_values_is_the_defaults_and_not_off():
    """Settings in which nothing is set turn block caching off."""
    (setting,) = Grid().settings()
    assert setting.config == BlockCacheConfig(fn_compute_blocks=1)


def test_plain_runs_have_fewer_steps_and_at_least_one():
    assert [setting.steps for setting in fewer_steps(4, (0.9, 0.5, 0.26, 0.01))] == [2, 1]


def gif(*levels: int) -> Artifact:
    frames = [Image.new("RGB", (8, 8), (level, level, level)) for level in levels]
    buffer = io.BytesIO()
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:])
    return Artifact("image/gif", buffer.getvalue(), 8, 8, num_frames=len(frames))


def mp4(*levels: int) -> Artifact:
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as file:
        # Lossless, and without a conversion that rounds colours.
        stream = file.add_stream("libx264rgb", 8, options={"qp": "0"})
        stream.width, stream.height, stream.pix_fmt = 16, 16, "rgb24"
        for level in levels:
            pixels = np.full((16, 16, 3), level, np.uint8)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        file.mux(stream.encode(None))
    return Artifact("video/mp4", buffer.getvalue(), 16, 16, len(levels), 8.0)


@pytest.mark.parametrize("clip", [gif, mp4])
def test_all_frames_of_a_clip_count(clip):
    full, other = frames_of(clip(10, 100, 200)), frames_of(clip(10, 100, 230))
    assert (len(full), full.shape[-1]) == (3, 3)
    drift = drift_between(full, other)
    assert drift.psnr_db == pytest.approx(10 * math.log10(255**2 / (30**2 / 3)))
    assert drift.rel_l1 == pytest.approx(10 / (310 / 3))


def measured(label: str, share: float, psnr_db: float, kind: Kind = Kind.BLOCK_CACHE) -> Measured:
    setting = Setting(kind, label, text=f"{{{label}}}")
    return Measured(setting, share, 0, 20, int(share < 1), Drift(psnr_db, 0.0), 0.0, picture(0))


def test_the_front_holds_what_no_other_beats():
    rows = [
        measured(*row)
        for row in (("a", 0.5, 30.0), ("b", 0.4, 31.0), ("c", 0.8, 40.0), ("e", 1.0, math.inf))
    ]
    assert [row.setting.label for row in pareto_front([*rows, measured("d", 0.4, 20)])] == [
        "b",
        "c",
    ]


def test_the_choice_is_the_cheapest_that_is_close_enough_beside_its_rival():
    rows = [measured("a", 0.5, 30.0), measured("b", 0.6, 36.0), measured("c", 1.0, math.inf)]
    plainly = [measured("25 steps", 0.5, 34.9, Kind.FEWER_STEPS)]
    lines = choice_lines(choose(rows, plainly, 30.0))
    assert lines == [
        "at least 30 dB: a, 50 % of the block calls at 30.0 dB",
        "  --cache-config '{a}'",
        "  plainly 25 steps: 50 % at 34.9 dB, which is cheaper",
    ]
    lines = choice_lines(choose(rows, plainly, 35.0))
    assert lines[0].startswith("at least 35 dB: b, 60 %")
    assert lines[2] == "  no plain run of fewer steps is as close"
    lines = choice_lines(choose(rows, plainly, 34.0))
    assert lines[2] == "  plainly 25 steps: 50 % at 34.9 dB, which is cheaper"
    assert choice_lines(choose(rows, plainly, 40.0))[0].endswith("no setting of this sweep")
    assert choice_lines(choose([], [], 30.0))[0] == "at least 30 dB: no setting of this sweep"
