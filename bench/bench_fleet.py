"""How many of what serve a rate of requests of a model: costs measured, queues simulated from them.

`--measure` starts all services, with an executor whose model takes no time, and sends prompts of a
log: with the cache off, new ones, repeats and rewordings, with latents of the sizes that models
have. CPU of every process per request. Without it the lines of an earlier measurement are used.
Seconds of a run are published ones (`capacity/models.py` says whose), shares of hits those of the
trace bench (`capacity/traffic.py`). From these `--model` and `--rate` plan a fleet, and simulate a
whole cell of it (`capacity/cell.py`); `--draw` puts tables of both into docs/capacity.md.
There is no rival.

    python bench/bench_fleet.py --model Wan2.1-T2V-14B --rate 0.5
    python bench/bench_fleet.py --run-s 12 --latent-mb 4 --rate 50 --exact-share 0.13

Prints one JSON line per figure.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

from capacity.cell import EXECUTOR
from capacity.figures import Figures, Line
from capacity.fleet import executors_needed
from capacity.fleet_tables import fleet_parts
from capacity.models import MODELS
from capacity.plane_cost import measure_plane
from capacity.plans import measured_cpu_ms, plan_for
from capacity.traffic import OLD_SEEDS
from page_parts import replace_part
from replay.drawing import PAGE

LINES = Path("out/bench/fleet.jsonl")
SIZES_MB = (0.52, 0.92, 8.39, 19.4)
"""Megabytes of latents that costs are measured with: those of the models."""


def main() -> None:
    """Measures, plans or draws, as the arguments say."""
    arguments = parsed()
    if not (arguments.measure or arguments.draw or arguments.rate):
        arguments.measure, arguments.rate = 40, 10.0
    figures = Figures()
    if arguments.measure:
        measure_plane(figures, arguments.measure, arguments.mb)
        LINES.parent.mkdir(parents=True, exist_ok=True)
        LINES.write_text("".join(json.dumps(line) + "\n" for line in figures.lines))
    if not (arguments.draw or arguments.rate):
        return
    if not LINES.exists():
        raise SystemExit(f"{LINES} is not there: run with --measure 60 first")
    lines = [json.loads(line) for line in LINES.read_text().splitlines()]
    if arguments.draw:
        for name, part in fleet_parts(lines).items():
            replace_part(PAGE, name, part)
    if arguments.rate:
        plan(figures, arguments, lines)


def parsed() -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--measure", type=int, metavar="REQUESTS", help="measure costs anew")
    parser.add_argument("--mb", nargs="+", type=float, default=SIZES_MB, help="to measure with")
    parser.add_argument("--draw", action="store_true", help="renew docs/capacity.md")
    parser.add_argument("--rate", type=float, help="requests per second to plan for")
    names = list(dict.fromkeys(model.name for model in MODELS))
    parser.add_argument("--model", choices=names, default=names[0])
    parser.add_argument("--run-s", type=float, help="seconds of a full run, instead of published")
    parser.add_argument("--decode-s", type=float, help="seconds of an exact repeat, likewise")
    parser.add_argument("--latent-mb", type=float, help="megabytes of latents, likewise")
    parser.add_argument("--exact-share", type=float, default=OLD_SEEDS.exact, help="0 to 1")
    parser.add_argument(
        "--approximate-share", type=float, default=OLD_SEEDS.approximate, help="0 to 1"
    )
    parser.add_argument(
        "--skipped-share", type=float, default=OLD_SEEDS.skipped, help="of their steps, 0 to 1"
    )
    parser.add_argument("--wait-s", type=float, help="p95 of the wait; default: one full run")
    return parser.parse_args()


def plan(figures: Figures, arguments: argparse.Namespace, lines: list[Line]) -> None:
    """Plans a fleet and simulates one of its cells."""
    model = next(model for model in MODELS if model.name == arguments.model)
    model = dataclasses.replace(
        model,
        run_s=arguments.run_s or model.run_s,
        decode_s=model.decode_s if arguments.decode_s is None else arguments.decode_s,
    )
    traffic = dataclasses.replace(
        OLD_SEEDS,
        exact=arguments.exact_share,
        approximate=arguments.approximate_share,
        skipped=arguments.skipped_share,
    )
    cpu_ms = measured_cpu_ms(lines, arguments.latent_mb or model.latent_mb)
    found = plan_for(model, traffic, arguments.rate, cpu_ms)
    if arguments.wait_s is not None:
        count = executors_needed(
            found.load,
            arguments.wait_s,
            orchestrators=found.cell.processes["orchestrator"],
        )
        processes = {**found.cell.processes, EXECUTOR: count}
        found = dataclasses.replace(
            found, cell=dataclasses.replace(found.cell, processes=processes)
        )
    outcome = found.simulate(cpu_ms)
    told = {"model": model.name, "run_s": model.run_s, "rate": arguments.rate}
    figures.add("cells", [found.cells], **told)
    for name, count in found.cell.processes.items():
        busy = round(outcome.busy[name], 3)
        wait_s = round(outcome.wait_s[name], 4)
        figures.add("per_cell", [count], **told, of=name, busy=busy, wait_p95_s=wait_s)


if __name__ == "__main__":
    main()
