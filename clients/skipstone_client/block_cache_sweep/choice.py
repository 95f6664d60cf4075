"""Which of the measured settings to take."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from skipstone_client.block_cache_sweep.measure import Measured

PSNR_BARS_DB = (30.0, 35.0)
"""Least PSNR against the full run for which a sweep names the cheapest setting: around 30 dB
differences can be found when one looks for them, above 35 dB hardly."""


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """The cheapest runs that stay close enough to the full one.

    Attributes:
        least_psnr_db: How close, in dB.
        setting: The block-cache setting with the fewest block calls; None when none is that close.
        fewer_steps: The plain run with the fewest steps; None when none is that close.
    """

    least_psnr_db: float
    setting: Measured | None
    fewer_steps: Measured | None


def choose(
    cached: Sequence[Measured], fewer_steps: Sequence[Measured], least_psnr_db: float
) -> Choice:
    """The cheapest of both that reach a PSNR; a setting that reuses nothing is no choice."""
    return Choice(
        least_psnr_db,
        _cheapest([row for row in cached if row.reused_steps], least_psnr_db),
        _cheapest(fewer_steps, least_psnr_db),
    )


def pareto_front(rows: Sequence[Measured]) -> list[Measured]:
    """The rows that no other beats in share of block calls and in PSNR, fewest calls first.

    Without those that reuse nothing: they are the full run again.
    """
    front: list[Measured] = []
    for row in sorted(
        (row for row in rows if row.reused_steps), key=lambda row: (row.share, -row.drift.psnr_db)
    ):
        if not front or row.drift.psnr_db > front[-1].drift.psnr_db:
            front.append(row)
    return front


def _cheapest(rows: Sequence[Measured], least_psnr_db: float) -> Measured | None:
    close = [row for row in rows if row.drift.psnr_db >= least_psnr_db]
    return min(close, key=lambda row: (row.share, -row.drift.psnr_db), default=None)
