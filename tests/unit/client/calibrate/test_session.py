"""Which noise levels a calibration measures: those of the policy, on every family of schedulers."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import cast

import pytest
from tests.unit.orchestrator.fakes import fingerprint

from skipstone_client.calibrate.records import Records
from skipstone_client.calibrate.session import Session, Wanted
from skipstone_client.denoise import DenoiseClient
from skipstone_client.latent_kv import LatentKVClient
from skipstone_orchestrator.noise_levels import Schedule
from skipstone_shared.denoise_runs import GenerationPlan, ResumeKind
from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import ReuseKind

LEVELS = (0.9, 0.8, 0.7, 0.5)
FLOW = (1.0, 0.94, 0.87, 0.8, 0.73, 0.66, 0.6, 0.53, 0.45, 0.37, 0.28, 0.15, 0.0)
EULER = (14.6, 11.2, 8.9, 7.1, 5.6, 4.5, 3.6, 2.9, 2.3, 1.8, 1.4, 1.1, 0.8, 0.6, 0.4, 0.2, 0.0)
"""Sigmas of a Stable Diffusion schedule of 16 steps, rounded."""


class Planner:
    """An executor that plans one schedule, whatever it is asked for."""

    def __init__(self, sigmas: tuple[float, ...], prediction_type: str) -> None:
        self._sigmas = sigmas
        self._prediction_type = prediction_type

    def plan(self, params: GenerationParams) -> GenerationPlan:
        told = dataclasses.replace(fingerprint(params), prediction_type=self._prediction_type)
        return GenerationPlan(params, told, "key", self._sigmas, tuple(ResumeKind), "instance")


WANTED = Wanted(
    prompts=Path("prompts.csv"),
    pairs=1,
    steps=None,
    full_steps=None,
    levels=LEVELS,
    plain_steps=(),
    guidance=None,
    seeds=2,
    seed_prompts=1,
    seed=1,
    budget_s=0.0,
)


@pytest.mark.parametrize(("sigmas", "prediction_type"), [(FLOW, "flow"), (EULER, "epsilon")])
def test_measured_levels_are_those_of_the_policy(
    tmp_path: Path, sigmas: tuple[float, ...], prediction_type: str
) -> None:
    """A tier of level 0.9 that was measured at another depth would let others go too deep."""
    executor = cast(DenoiseClient, Planner(sigmas, prediction_type))
    session = Session(executor, cast(LatentKVClient, None), WANTED, None)
    setup = session.run(Records(tmp_path / "records.jsonl"), [], quiet=True)
    assert all(0.0 < level < 1.0 for level in setup.levels)
    schedule = Schedule.of(sigmas, prediction_type, ReuseKind)
    for wanted in LEVELS:
        deepest = max(schedule.steps_down_to(wanted))
        assert schedule.levels[deepest] in setup.levels
