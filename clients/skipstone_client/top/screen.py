"""A view for people, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from skipstone_client.cli_generate import TIER_STYLES
from skipstone_client.cli_output import bytes_text, facts_text, share_text, table_of
from skipstone_client.cli_stats import drift_facts, services_table
from skipstone_client.top.samples import Lately, View
from skipstone_shared.orchestration import HitTier

_BARS = " ▁▂▃▄▅▆▇█"


def screen(view: View, rates: Sequence[float]) -> RenderableType:
    """The whole screen.

    Args:
        view: What is shown.
        rates: Requests per second of the looks so far, the latest last.
    """
    head = Text().append("skipstone top", style="bold").append(f"  {view.target}", style="dim")
    if view.error:
        return Group(head, Text(), Text(f"no answer: {view.error}", style="red"))
    return Group(
        head,
        Text(),
        facts_text(_facts(view, rates)),
        Text(),
        _tiers_table(view),
        Text(),
        services_table(view.services),
    )


def spark(values: Sequence[float]) -> str:
    """Values as bars, the largest as high as a line."""
    most = max(values, default=0.0)
    if not most:
        return ""
    return "".join(_BARS[round(value / most * (len(_BARS) - 1))] for value in values)


def _facts(view: View, rates: Sequence[float]) -> dict[str, str | Text]:
    lately = view.lately
    per_s = "-" if lately is None else f"{lately.requests_per_s:.1f}/s"
    rows: dict[str, str | Text] = {
        "requests": Text(f"{per_s}  ").append(spark(rates), style="cyan"),
        "steps saved": f"{_saved(lately)} lately, {_saved(view)} since the start",
        "executor": "not asked: it is not reached from here"
        if view.running is None
        else f"{view.running} running, {view.queued} waiting",
        "saves": Text(f"{view.queued_saves} waiting, {view.dropped_saves} lost"),
        "stored": f"{'unknown' if view.entry_count < 0 else view.entry_count} entries, "
        f"{bytes_text(view.latent_bytes)}",
    }
    if lately is not None and lately.fallbacks:
        told = ", ".join(f"{name} {count}" for name, count in sorted(lately.fallbacks.items()))
        rows["fallbacks"] = Text(told, style="yellow")
    return rows | drift_facts(view.drift)


def _saved(counts: View | Lately | None) -> str:
    if counts is None:
        return "-"
    return share_text(counts.skipped_steps, counts.executed_steps + counts.skipped_steps)


def _tiers_table(view: View) -> Table:
    table = table_of("tier", "lately", "share", "since the start", "share")
    lately = view.lately.tiers if view.lately else {}
    for tier in HitTier:
        table.add_row(
            Text(tier.value, style=TIER_STYLES[tier]),
            str(lately.get(tier, 0)) if view.lately else "-",
            share_text(lately.get(tier, 0), sum(lately.values())) if view.lately else "-",
            str(view.tiers.get(tier, 0)),
            share_text(view.tiers.get(tier, 0), sum(view.tiers.values())),
        )
    return table
