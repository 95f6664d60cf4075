"""Fleets are planned from what was measured, and the simulation of a cell agrees with theory."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from capacity import fleet_tables
from capacity.cell import EXECUTOR, PLANE, Cell, CpuMs
from capacity.fleet import Load
from capacity.models import MODELS, packed_latents, wan_latents
from capacity.plans import FEWEST_EMBEDDING, USED, mean_cpu_ms, measured_cpu_ms, plan_for
from capacity.traffic import NEW_SEEDS, NO_CACHE, OLD_SEEDS, Traffic

BENCHMARKS = (Path(__file__).parents[3] / "docs" / "benchmarks.md").read_text()
KINDS = ("off", "saved", "exact", "approximate")
CPU_MS: CpuMs = {(name, kind): 10.0 for name in PLANE for kind in KINDS}
SHORT = dataclasses.replace(MODELS[0], run_s=2.0, decode_s=0.1)


def cell(**processes: int) -> Cell:
    return Cell({**dict.fromkeys((*PLANE, EXECUTOR), 1), "orchestrator": 1, **processes})


def test_a_service_of_random_times_waits_as_theory_says() -> None:
    """M/M/1 at 60 %: 95 % of the requests wait at most ln(0.6 / 0.05) / (1 - 0.6) services."""
    cpu_ms = {**dict.fromkeys(CPU_MS, 0.0), ("latent_kv", "saved"): 600.0}
    outcome = cell(executor=4).simulate(Load(1.0, 0.001), cpu_ms, 80_000)
    assert outcome.busy["latent_kv"] == pytest.approx(0.6, rel=0.03)
    assert outcome.wait_s["latent_kv"] == pytest.approx(0.6 * 2.485 / 0.4, rel=0.1)


def test_what_a_cell_does_is_what_arithmetic_says_it_must() -> None:
    """All that comes is done, so shares of time are rate x cost / processes."""
    plan = plan_for(SHORT, OLD_SEEDS, 20.0, CPU_MS)
    expected, outcome = plan.expected_busy(CPU_MS), plan.simulate(CPU_MS)
    for name in (*PLANE, EXECUTOR):
        assert outcome.busy[name] == pytest.approx(expected[name], rel=0.03), name


def test_a_request_waits_for_the_services_before_its_executor() -> None:
    load = Load(0.1, 1.0)
    outcome = cell(executor=9).simulate(load, CPU_MS, 20_000)
    # Three services of 10 ms, each exponential: the 95th percentile of their sum is 63 ms.
    assert outcome.plane_s == pytest.approx(0.063, rel=0.05)


def test_no_process_of_a_plan_is_busier_than_planned_for() -> None:
    for rate in (1.0, 150.0):
        plan = plan_for(SHORT, OLD_SEEDS, rate, CPU_MS)
        assert plan.cells * plan.rate == pytest.approx(rate)
        busy = plan.expected_busy(CPU_MS)
        assert all(busy[name] <= USED + 1e-9 for name in PLANE)
        assert plan.cell.processes["embedding"] >= FEWEST_EMBEDDING


def test_reuse_takes_executors_away_and_no_cache_no_service() -> None:
    with_cache = plan_for(SHORT, OLD_SEEDS, 50.0, CPU_MS)
    assert with_cache.executors < plan_for(SHORT, NO_CACHE, 50.0, CPU_MS).executors
    cpu_ms = {key: 7.0 if key[1] == "off" else 10.0 for key in CPU_MS}
    assert mean_cpu_ms(NO_CACHE, cpu_ms) == dict.fromkeys(PLANE, 7.0)
    assert mean_cpu_ms(OLD_SEEDS, cpu_ms) == pytest.approx(dict.fromkeys(PLANE, 10.0))


def test_a_resumed_run_decodes_all_the_same() -> None:
    load = Traffic("", approximate=1.0, skipped=0.5).load(SHORT, 1.0)
    assert load.busy_s() == pytest.approx(0.5 * (2.0 - 0.1) + 0.1)


def test_costs_are_those_of_the_nearest_size() -> None:
    lines = [
        {"figure": "cpu_ms", "service": "latent_kv", "kind": "saved", "mb": mb, "p50": 10 * mb}
        for mb in (0.5, 4.0)
    ]
    assert measured_cpu_ms(lines, 0.9) == {("latent_kv", "saved"): 5.0}
    assert measured_cpu_ms(lines, 19.0) == {("latent_kv", "saved"): 40.0}


@pytest.mark.parametrize(
    ("traffic", "who"),
    [(OLD_SEEDS, "latent cache"), (NEW_SEEDS, "latent cache, a new seed for every repeat")],
)
def test_shares_of_hits_are_those_that_the_trace_bench_measured(traffic: Traffic, who: str) -> None:
    row = re.search(
        rf"^\| 50 \| {who} \| ([\d.]+) % \| ([\d.]+) % .*? of \d+ \| ([\d.]+) \(", BENCHMARKS, re.M
    )
    assert row is not None
    exact, approximate, steps = (float(value) for value in row.groups())
    assert (traffic.exact, traffic.approximate) == pytest.approx((exact / 100, approximate / 100))
    run = 1 - traffic.exact - traffic.approximate * traffic.skipped
    assert 50 * run == pytest.approx(steps, abs=0.051)


def test_latents_have_the_shapes_of_the_pipelines() -> None:
    assert packed_latents(1024, 1024) == (1, 4096, 64)
    assert wan_latents(720, 1280, 81) == (1, 16, 21, 90, 160)
    assert {round(model.latent_mb, 2) for model in MODELS} == {0.52, 0.88, 8.39, 19.35}


def test_tables_name_who_measured_a_run_and_tell_rates_and_hits_of_each_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = fleet_tables.model_table()
    assert all(model.source.url in told and model.decode_source.url in told for model in MODELS)
    monkeypatch.setattr(fleet_tables, "MODELS", (dataclasses.replace(SHORT, rates=(2.0,)),))
    lines = [
        {"service": name, "kind": kind, "mb": 0.5, "p50": 10.0} for name in PLANE for kind in KINDS
    ]
    (row,) = fleet_tables.plan_table(lines).splitlines()[2:]
    bare, old, new = (
        plan_for(SHORT, traffic, 2.0, CPU_MS).executors
        for traffic in (NO_CACHE, OLD_SEEDS, NEW_SEEDS)
    )
    assert row == f"| FLUX.1-dev, A800 | 2 | {bare} | {old} | {new} | 1 | 2 | 2 |"
    assert len(fleet_tables.cell_table(lines).splitlines()) == 3
    assert "| 0.5 | exact repeat | 10.0 | 10.0 | 10.0 | 10.0 |" in fleet_tables.cost_table(lines)
