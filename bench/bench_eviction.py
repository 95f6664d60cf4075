"""What each eviction policy saves at each capacity, on a real log of requests.

3,484 prompts of many users (`data/README.md`) go past the product's own store, eviction policies
and published table, at 50 steps and one clean latent per run. The rivals are the policies among
themselves and a cache that never evicts. Three ways to count:

    max_donor_depth 0     the product: what resumed runs save serves the exact tier only
    same_seed             the same, but a repeated prompt has its old seed: the exact tier answers
    max_donor_depth null  resumed runs donate too, as in the trial of the design: drift chains

Prints one JSON line per cell: the share of all steps that were not run, and that of requests that
skipped any. More cells vary the depth of donors, the half-life of `aged_lcbfu`, the requests read,
and which runs are saved. `--draw` renews the table and the plot of docs/capacity.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, get_args

import numpy as np

from page_parts import replace_part
from replay.cache import STEPS, Settings, replay
from replay.drawing import PAGE, draw_eviction, eviction_table
from replay.request_log import embed, read_prompts
from search.vectors import Matrix
from skipstone_latent_kv.eviction_policies import DEFAULT_HALF_LIFE, PolicyName, policy_named
from skipstone_orchestrator.reuse_policy import ReusePolicy

CAPACITIES: Final = (50, 100, 200, 500, 1_000, 2_000)
HALF_LIVES: Final = (50, 200, 1_000, 2_000, 10_000)
LENGTHS: Final = (1_000, 2_000, 3_000)
ANY_DEPTH: Final = 1_000_000
POLICIES: Final[tuple[PolicyName, ...]] = get_args(PolicyName)


@dataclass(frozen=True)
class Cell:
    """One replay.

    Attributes:
        policy: Name of the policy.
        capacity: Entries; None: all.
        max_donor_depth: Of the reuse policy; None: any.
        same_seed: See `Settings`.
        save_below: See `Settings`.
        half_life: Of `aged_lcbfu`, in uses of the store.
        first_n: Requests of the log; None: all.
    """

    policy: PolicyName = "lru"
    capacity: int | None = None
    max_donor_depth: int | None = 0
    same_seed: bool = False
    save_below: int = STEPS
    half_life: int = DEFAULT_HALF_LIFE
    first_n: int | None = None

    def settings(self) -> Settings:
        """What to replay."""
        depth = ANY_DEPTH if self.max_donor_depth is None else self.max_donor_depth
        return Settings(
            capacity=self.capacity or 0,
            eviction=policy_named(self.policy, self.half_life),
            reuse=ReusePolicy(max_donor_depth=depth),
            same_seed=self.same_seed,
            save_below=self.save_below,
        )


def grid() -> Iterator[Cell]:
    """All cells: those of the table, then those that explain it."""
    product, same_seed, chained = Cell(), Cell(same_seed=True), Cell(max_donor_depth=None)
    for way in (product, same_seed, chained):
        yield way
        for capacity in CAPACITIES:
            yield from (replace(way, policy=name, capacity=capacity) for name in POLICIES)
    yield from (replace(product, max_donor_depth=depth) for depth in (1, 2, 3))
    yield replace(chained, save_below=20)
    aged = replace(chained, policy="aged_lcbfu", capacity=200)
    yield from (replace(aged, half_life=half_life) for half_life in HALF_LIVES)
    plain = replace(chained, policy="lcbfu", capacity=200)
    yield from (replace(plain, first_n=length) for length in LENGTHS)


def measure(cell: Cell, prompts: list[str], vectors: Matrix) -> dict[str, object]:
    """The JSON line of a cell."""
    count = cell.first_n or len(prompts)
    outcome = replay(prompts[:count], vectors[:count], cell.settings())
    distances = outcome.distances[outcome.distances > 0]
    return {
        "figure": "eviction_steps_saved",
        **asdict(cell),
        "value": round(outcome.steps_saved, 4),
        "hit_share": round(outcome.hit_share, 4),
        "saves": outcome.saves,
        "reuse_distance_p50": float(np.median(distances)) if len(distances) else None,
        "longest_chain": int(outcome.depths.max()),
        "n": count,
    }


def main() -> None:
    """Replays all cells."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--draw", action="store_true", help="renew docs/capacity.md too")
    args = parser.parse_args()
    prompts = read_prompts()
    vectors = embed(prompts)
    lines = []
    for cell in grid():
        lines.append(measure(cell, prompts, vectors))
        print(json.dumps(lines[-1]), flush=True)
    if args.draw:
        draw_eviction(Path("docs/images/eviction.svg"), lines)
        replace_part(PAGE, "eviction", eviction_table(lines))


if __name__ == "__main__":
    main()
