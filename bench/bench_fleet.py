"""How many of what serve a rate of requests: costs measured here, queues simulated from them.

`--measure` starts all services and sends prompts of the log, first new ones, then the same again:
CPU of every process per request that is saved, and per request that is answered from the store.
Without it the lines of an earlier measurement are used. There is no rival: the fleet is simulated
(`capacity/fleet.py`), and `--draw` puts what comes out into docs/capacity.md.

    python bench/bench_fleet.py --rate 50 --run-s 12 --exact-share 0.13 --wait-s 6

Prints one JSON line per figure.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from cacheplane.cpu import process_cpu_s
from capacity.figures import Figures, Line
from capacity.fleet import Load, executors_needed
from page_parts import replace_part
from replay.drawing import PAGE
from replay.request_log import read_prompts
from skipstone_client import OrchestratorClient
from skipstone_client.local_cluster import LocalCluster
from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import HitTier

MODEL = Path(__file__).parents[1] / "models" / "skipstone-scenes"
LINES = Path("out/bench/fleet.jsonl")
CACHE_PLANE = ("orchestrator", "embedding", "vector_index", "latent_kv")
STEPS = 4
LOADS = (4.0, 40.0, 400.0, 4000.0)
"""Requests per second x seconds of a full run: the executors that a perfect fleet would need."""

EXACT_SHARE = 0.134
"""Of the log in docs/capacity.md, where repeats come with their old seeds."""

EXACT_S = 0.1
EXACT_RUNS = 0.025
"""What decoding a stored result takes of an executor, in seconds and as a share of a run of 4 s."""

USED = 0.6
"""Share of a core that is planned for: a service that is busier makes others wait."""


def main() -> None:
    """Measures, plans or draws, as the arguments say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--measure", type=int, metavar="REQUESTS", help="measure costs anew")
    parser.add_argument("--draw", action="store_true", help="renew docs/capacity.md")
    parser.add_argument("--rate", type=float, help="requests per second to plan for")
    parser.add_argument("--run-s", type=float, default=4.0, help="seconds of a full run")
    parser.add_argument("--slots", type=int, default=1, help="runs at once per executor")
    parser.add_argument("--orchestrators", type=int, default=2)
    parser.add_argument("--exact-share", type=float, default=0.0, help="0 to 1")
    parser.add_argument("--exact-s", type=float, default=EXACT_S, help="seconds to decode")
    parser.add_argument("--approximate-share", type=float, default=0.0, help="0 to 1")
    parser.add_argument("--skipped-share", type=float, default=0.0, help="of their steps, 0 to 1")
    parser.add_argument("--wait-s", type=float, help="p95 of the wait; default: one full run")
    args = parser.parse_args()
    figures = Figures()
    if args.measure:
        with tempfile.TemporaryDirectory() as folder:
            measure(figures, Path(folder), args.measure)
        LINES.parent.mkdir(parents=True, exist_ok=True)
        LINES.write_text("".join(json.dumps(line) + "\n" for line in figures.lines))
    if args.draw:
        lines = [json.loads(line) for line in LINES.read_text().splitlines()]
        replace_part(PAGE, "fleet costs", cost_table(lines))
        replace_part(PAGE, "fleet", fleet_table())
    if args.rate is None and not (args.measure or args.draw):
        args.rate = 10.0
    if args.rate:
        load = Load(
            args.rate,
            args.run_s,
            args.exact_share,
            args.exact_s,
            args.approximate_share,
            args.skipped_share,
        )
        count = executors_needed(
            load,
            args.run_s if args.wait_s is None else args.wait_s,
            slots=args.slots,
            orchestrators=args.orchestrators,
        )
        busy = load.rate * load.busy_s() / (count * args.slots)
        figures.add("executors", [count], rate=args.rate, run_s=args.run_s, busy=round(busy, 3))


def measure(figures: Figures, folder: Path, requests: int) -> None:
    """CPU of every service per request that is run and saved, and per exact repeat."""
    prompts = list(dict.fromkeys(read_prompts()))[:requests]
    with LocalCluster(folder, model=str(MODEL), free_ports=True) as cluster:
        with OrchestratorClient(cluster.targets["orchestrator"]) as client:

            def send(prompt: str) -> HitTier:
                params = GenerationParams(prompt, num_inference_steps=STEPS, seed=1)
                return client.generate(params).provenance.tier

            send("a request that no figure counts")
            pids = {name: cluster.pid(name) for name in CACHE_PLANE}
            for kind, wanted in (("saved", HitTier.MISS), ("repeated", HitTier.EXACT)):
                before = {name: process_cpu_s(pid) for name, pid in pids.items()}
                tiers = [send(prompt) for prompt in prompts]
                for name, pid in pids.items():
                    spent_ms = 1000 * (process_cpu_s(pid) - before[name]) / len(tiers)
                    share = tiers.count(wanted) / len(tiers)
                    figures.add(
                        "cpu_ms", [spent_ms], service=name, kind=kind, share=round(share, 3)
                    )


def cost_table(lines: Sequence[Line]) -> str:
    """What was measured, and the requests a second that one process can do."""
    found = {(line["service"], line["kind"]): line["p50"] for line in lines}
    rows = [
        "| service | CPU per request that is run and saved | per exact repeat | "
        f"a core at {USED:.0%} does, of the former |",
        "|---|---|---|---|",
    ]
    for name in CACHE_PLANE:
        saved = found[name, "saved"]
        rows.append(
            f"| {name} | {saved:.1f} ms | {found[name, 'repeated']:.1f} ms | "
            f"{1000 * USED / saved:,.0f} a second |"
        )
    return "\n".join(rows)


def fleet_table() -> str:
    """Executors by load, cache and orchestrators.

    Only the product of rate and length of a run counts, since the wait is told in runs too.
    """
    kinds: list[tuple[str, Callable[[float], Load]]] = [
        ("no cache", lambda rate: Load(rate, 1.0)),
        ("13.4 % exact", lambda rate: Load(rate, 1.0, EXACT_SHARE, EXACT_RUNS)),
    ]
    rows = [
        "| requests a second x seconds of a full run | cache | one queue for all | 1 orchestrator "
        "| 2 | 8 |",
        "|---|---|---|---|---|---|",
    ]
    for rate in LOADS:
        for told, make in kinds:
            load = make(rate)
            counts = [executors_needed(load, 1.0, orchestrators=count) for count in (0, 1, 2, 8)]
            cells = " | ".join(f"{n:,} ({rate * load.busy_s() / n:.0%})" for n in counts)
            rows.append(f"| {rate:,g} | {told} | {cells} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
