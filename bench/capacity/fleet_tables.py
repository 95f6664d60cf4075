"""The tables of docs/capacity.md that say how many of what, from the lines of `bench_fleet.py`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from capacity.cell import EXECUTOR, PLANE
from capacity.figures import Line
from capacity.fleet import Load, executors_needed
from capacity.models import MODELS, Model
from capacity.plans import measured_cpu_ms, plan_for
from capacity.traffic import NEW_SEEDS, NO_CACHE, OLD_SEEDS

LOADS: Final = (4.0, 40.0, 400.0, 2000.0)
"""Requests per second x seconds of a full run: the executors that a perfect fleet would need."""

SPREADS: Final = (0.0, 0.2, 0.5)
_KINDS: Final = {
    "off": "cache off",
    "saved": "run and saved",
    "exact": "exact repeat",
    "approximate": "resumed and saved",
}


def fleet_parts(lines: Sequence[Line]) -> dict[str, str]:
    """The parts of the page by the names of their markers."""
    return {
        "models": model_table(),
        "fleet costs": cost_table(lines),
        "plans": plan_table(lines),
        "cells": cell_table(lines),
        "fleet": turn_table(),
        "spread": spread_table(),
    }


def model_table() -> str:
    """The models, and where their figures are from."""
    rows = [
        "| model | run | one executor | a full run | decoding alone | latents | MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for model in MODELS:
        source, decoded = model.source, model.decode_source
        kind = {2: "bfloat16", 4: "float32"}[model.latent_bytes_each]
        shape = " x ".join(str(n) for n in model.latents[1:])
        rows.append(
            f"| {model.name} | {model.setting} | {model.executor} "
            f"| {model.run_s:,g} s ([{source.name}]({source.url})) "
            f"| {model.decode_s:g} s ([{decoded.name}]({decoded.url})) "
            f"| {shape}, {kind} | {model.latent_mb:.2f} |"
        )
    return "\n".join(rows)


def cost_table(lines: Sequence[Line]) -> str:
    """CPU of each service by latents and by how a request is served."""
    sizes = sorted({line["mb"] for line in lines})
    rows = [
        f"| MB of latents | a request is | {' | '.join(PLANE)} |",
        "|---|---|" + "---|" * len(PLANE),
    ]
    for mb in sizes:
        cpu_ms = measured_cpu_ms(lines, mb)
        for kind, told in _KINDS.items():
            cells = " | ".join(f"{cpu_ms[name, kind]:.1f}" for name in PLANE)
            rows.append(f"| {mb:g} | {told} | {cells} |")
    return "\n".join(rows)


def plan_table(lines: Sequence[Line]) -> str:
    """How many of what for rates of each model."""
    rows = [
        "| model, on | requests a second | executors without a cache | repeats with old seeds "
        "| a new seed for every repeat | cells | orchestrators | embedding |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for model in MODELS:
        cpu_ms = measured_cpu_ms(lines, model.latent_mb)
        for rate in model.rates:
            bare, old, new = (
                plan_for(model, traffic, rate, cpu_ms)
                for traffic in (NO_CACHE, OLD_SEEDS, NEW_SEEDS)
            )
            processes = old.cell.processes
            rows.append(
                f"| {_named(model)} | {rate:,g} | {bare.executors:,} | {old.executors:,} "
                f"| {new.executors:,} | {old.cells:,} | {old.cells * processes['orchestrator']:,} "
                f"| {old.cells * processes['embedding']:,} |"
            )
    return "\n".join(rows)


def cell_table(lines: Sequence[Line]) -> str:
    """One cell of each model's largest plan: what arithmetic says, and the whole simulated."""
    rows = [
        "| model, on | a cell has | requests a second | executors busy: arithmetic, simulated "
        "| latent_kv busy | orchestrators busy | wait for an executor, p95 | before it, p95 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for model in MODELS:
        cpu_ms = measured_cpu_ms(lines, model.latent_mb)
        plan = plan_for(model, OLD_SEEDS, model.rates[-1], cpu_ms)
        told, found = plan.expected_busy(cpu_ms), plan.simulate(cpu_ms)
        n = plan.cell.processes
        busy = " | ".join(
            f"{told[name]:.1%}, {found.busy[name]:.1%}"
            for name in (EXECUTOR, "latent_kv", "orchestrator")
        )
        rows.append(
            f"| {_named(model)} | {n[EXECUTOR]:,} executors, {n['orchestrator']} orchestrators, "
            f"{n['embedding']} embedding, 1 vector_index, 1 latent_kv | {plan.rate:.3g} | {busy} "
            f"| {found.wait_s[EXECUTOR] / model.run_s:.2f} runs | {1000 * found.plane_s:,.0f} ms |"
        )
    return "\n".join(rows)


def turn_table() -> str:
    """Executors by load, cache and orchestrators.

    Only the product of rate and length of a run counts, since the wait is told in runs too; exact
    repeats take the share of a run that decoding is of the first model's.
    """
    first = MODELS[0]
    in_runs = dataclasses.replace(first, run_s=1.0, decode_s=first.decode_s / first.run_s)
    rows = [
        "| requests a second x seconds of a full run | cache | one queue for all | 1 orchestrator "
        "| 2 | 8 |",
        "|---|---|---|---|---|---|",
    ]
    for rate in LOADS:
        for traffic in (NO_CACHE, OLD_SEEDS):
            load = traffic.load(in_runs, rate)
            counts = [executors_needed(load, 1.0, orchestrators=count) for count in (0, 1, 2, 8)]
            cells = " | ".join(f"{n:,} ({rate * load.busy_s() / n:.0%})" for n in counts)
            rows.append(f"| {rate:,g} | {traffic.told} | {cells} |")
    return "\n".join(rows)


def spread_table() -> str:
    """Executors by how far runs are off their mean."""
    heads = " | ".join(f"{spread:.0%}" for spread in SPREADS)
    rows = [
        f"| requests a second x seconds of a full run | {heads} |",
        "|---|" + "---|" * len(SPREADS),
    ]
    for rate in LOADS[:3]:
        counts = [
            executors_needed(dataclasses.replace(Load(rate, 1.0), spread=spread), 1.0)
            for spread in SPREADS
        ]
        rows.append(f"| {rate:,g} | {' | '.join(f'{n:,}' for n in counts)} |")
    return "\n".join(rows)


def _named(model: Model) -> str:
    return f"{model.name}, {model.executor}"
