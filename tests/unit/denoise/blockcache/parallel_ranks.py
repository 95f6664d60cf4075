"""What one process of a parallel run does; what came of it goes into a file.

A module of its own, since every process imports it anew.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from tests.unit.denoise.blockcache.tiny_chain import (
    Request,
    amounts,
    cached,
    reused,
    tiny_transformer,
)
from torch import Tensor, distributed

from skipstone_denoise.blockcache.settings import DBCacheSettings, Forecast
from skipstone_denoise.blockcache.state import BlockCacheState

WAIT = datetime.timedelta(seconds=50)
"""After this long a collective that another rank never joins fails."""

SETTINGS = DBCacheSettings(
    max_warmup_steps=1, residual_diff_threshold=0.5, forecast=Forecast.TAYLOR, bn_compute_blocks=1
)
LENGTH, OTHER_LENGTH = 6, 9
QUIET = [1.0, 1.1, 1.2, 1.3, 1.4, 2.2, 2.3, 2.4]
JUMPY = [1.0, 1.9, 2.8, 2.9, 4.9, 5.0, 5.1, 5.2]
"""The front blocks' residual by step: in one part of a sequence, and in another. Measured in the
first alone, steps 1 to 3 are below the threshold; in the second alone, step 1 is not."""

Outcome = Mapping[str, Any]


def sequence(step: int, length: int, *, jumpy: int) -> Tensor:
    """Amounts of a step: the first positions jump, the others don't."""
    return amounts([JUMPY[step]] * jumpy + [QUIET[step]] * (length - jumpy))


def shards(length: int, ends: list[int], rank: int) -> slice:
    """Where a rank's part of a sequence is."""
    return slice(ends[rank - 1] if rank else 0, ends[rank] if rank < len(ends) else length)


def outcome(
    numbers: list[Tensor],
    *,
    length: int,
    part: slice = slice(None),
    group: object | None = None,
    settings: DBCacheSettings = SETTINGS,
    layout: tuple[int, ...] = (0,),
    seed: int = 1,
) -> Outcome:
    """Runs a request, or a part of its sequence."""
    state = BlockCacheState(
        settings, process_group=group, sample_groups=layout, report_residual_diffs=True
    )
    mine, _ = cached(tiny_transformer(), state)
    request = Request(mine, state, seed=seed, length=length, batch=len(layout))
    request.latents = request.latents[:, part]
    outputs = request.run([number[:, part] for number in numbers])
    return {
        "reused": [reused(state, request=place) for place in range(len(set(layout)))],
        "diffs": [branch.residual_diffs[1:] for branch in state.report().branches],
        "outputs": torch.stack(outputs).tolist(),
    }


def sequence_in_parts(length: int, ends: list[int], rank: int, group: object) -> Outcome:
    """A part of a sequence with the others, without them, and the whole sequence alone."""
    numbers = [sequence(step, length, jumpy=length // 3) for step in range(len(QUIET))]
    part = shards(length, ends, rank)
    return {
        "part": [part.start, part.stop],
        "together": outcome(numbers, length=length, part=part, group=group),
        "apart": outcome(numbers, length=length, part=part),
        "whole": outcome(numbers, length=length),
    }


def guidance_on_two_ranks(rank: int) -> Outcome:
    """One rank runs the conditional branch, the other one the unconditional one."""
    numbers = [amounts([n] * LENGTH) for n in (QUIET, JUMPY)[rank]]
    world = distributed.group.WORLD
    return {
        "together": outcome(numbers, length=LENGTH, group=world),
        "apart": outcome(numbers, length=LENGTH),
    }


def the_same_on_two_ranks(rank: int) -> Outcome:
    """Tensor parallelism: hidden states between blocks are whole and alike on all ranks."""
    del rank
    numbers = [sequence(step, LENGTH, jumpy=2) for step in range(len(QUIET))]
    world = distributed.group.WORLD
    return {
        "together": outcome(numbers, length=LENGTH, group=world),
        "apart": outcome(numbers, length=LENGTH),
    }


def a_batch_in_parts(rank: int) -> Outcome:
    """Two requests in a batch, each in two parts of its sequence."""
    numbers = [
        torch.cat([sequence(step, LENGTH, jumpy=2), sequence(step, LENGTH, jumpy=4)])
        for step in range(len(QUIET))
    ]
    part, layout = shards(LENGTH, [2], rank), (0, 1)
    world = distributed.group.WORLD
    return {
        "part": [part.start, part.stop],
        "together": outcome(numbers, length=LENGTH, part=part, group=world, layout=layout),
        "whole": outcome(numbers, length=LENGTH, layout=layout),
    }


def rules_on_one_rank_only(rank: int) -> Outcome:
    """The other rank does not take part, so any collective would wait in vain."""
    if rank == 1:
        return {}
    numbers = [amounts([1.0] * LENGTH)] * 6
    found = {}
    for name, settings in {
        "warm-up": DBCacheSettings(max_warmup_steps=9),
        "static mask": DBCacheSettings(steps_mask=(True, False) * 3, static_mask=True),
        "threshold 1": DBCacheSettings(max_warmup_steps=1, residual_diff_threshold=1.0),
    }.items():
        group = distributed.group.WORLD
        found[name] = outcome(numbers, length=LENGTH, group=group, settings=settings)["reused"]
    return found


def sequence_beside_another_request(rank: int) -> Outcome:
    """Ranks 0 and 1 share a sequence; 2 and 3 another one, of other length, for more steps."""
    pairs = [distributed.new_group([0, 1]), distributed.new_group([2, 3])]
    group = pairs[rank // 2]
    if rank < 2:
        return sequence_in_parts(LENGTH, [2], rank, group)
    return {
        "rounds": [
            sequence_in_parts(OTHER_LENGTH, [4], rank - 2, group)["together"] for _ in range(3)
        ]
    }


def sequence_in_uneven_parts(rank: int) -> Outcome:
    """Four parts of 1, 2, 4 and 2 positions."""
    return sequence_in_parts(OTHER_LENGTH, [1, 3, 7], rank, distributed.group.WORLD)


SCENARIOS: Mapping[int, tuple[Callable[[int], Outcome], ...]] = {
    2: (
        guidance_on_two_ranks,
        the_same_on_two_ranks,
        a_batch_in_parts,
        rules_on_one_rank_only,
    ),
    4: (sequence_beside_another_request, sequence_in_uneven_parts),
}
"""By number of processes, what they do one after another."""


def run_rank(rank: int, world: int, folder: Path) -> None:
    """Runs all scenarios of a world of this size and writes what came of them."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=world,
        timeout=WAIT,
    )
    found = {scenario.__name__: scenario(rank) for scenario in SCENARIOS[world]}
    result_file(folder, rank).write_text(json.dumps(found))
    # The first to go would take the rendezvous away from ranks that still work.
    distributed.barrier()
    distributed.destroy_process_group()


def result_file(folder: Path, rank: int) -> Path:
    """Where a rank writes."""
    return folder / f"rank{rank}.json"
