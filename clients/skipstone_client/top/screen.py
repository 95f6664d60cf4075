"""A view for people, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from skipstone_client.cli_generate import TIER_STYLES
from skipstone_client.cli_output import bytes_text, facts_text, share_text, table_of
from skipstone_client.cli_stats import drift_facts, services_table
from skipstone_client.top.views import Lately, ReplicaState, ReplicaView, View
from skipstone_shared.orchestration import HitTier

_BARS = " ▁▂▃▄▅▆▇█"
_STATE_STYLES = {
    ReplicaState.SERVING: "green",
    ReplicaState.SILENT: "red",
    ReplicaState.GONE: "dim",
}


def screen(view: View, rates: Sequence[float]) -> RenderableType:
    """The whole screen.

    Args:
        view: What is shown.
        rates: Requests per second of the looks so far, the latest last.
    """
    head = Text().append("skipstone top", style="bold").append(f"  {view.target}", style="dim")
    parts: list[RenderableType] = [head, Text()]
    if view.error:
        parts.append(Text(f"no answer: {view.error}", style="red"))
    else:
        parts += [facts_text(_facts(view, rates)), Text(), _tiers_table(view)]
    if len(view.replicas) > 1:
        parts += [Text(), _replicas_table(view.replicas)]
    if not view.error:
        parts += [Text(), services_table(view.services)]
    return Group(*parts)


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
        "executor": _executors_text(view),
        "saves": Text(f"{view.queued_saves} waiting, {view.dropped_saves} lost"),
        "stored": f"{'unknown' if view.entry_count < 0 else view.entry_count} entries, "
        f"{bytes_text(view.latent_bytes)}",
    }
    if lately is not None and lately.fallbacks:
        told = ", ".join(f"{name} {count}" for name, count in sorted(lately.fallbacks.items()))
        rows["fallbacks"] = Text(told, style="yellow")
    return rows | drift_facts(view.drift)


def _executors_text(view: View) -> str:
    if view.running is None:
        return "not asked: it is not reached from here"
    several = f" at {view.executors} executors" if view.executors > 1 else ""
    return f"{view.running} running, {view.queued} waiting{several}"


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


def _replicas_table(replicas: Sequence[ReplicaView]) -> Table:
    table = table_of("orchestrator", "state", "requests", "steps saved", "queued saves")
    table.add_column("trouble", overflow="fold")
    for replica in replicas:
        serves = replica.state is ReplicaState.SERVING
        lately = replica.lately
        table.add_row(
            replica.address,
            Text(replica.state.value, style=_STATE_STYLES[replica.state]),
            "-" if lately is None else f"{lately.requests_per_s:.1f}/s",
            _saved(lately),
            str(replica.queued_saves) if serves else "-",
            Text(_open_text(replica) if serves else replica.error),
        )
    return table


def _open_text(replica: ReplicaView) -> str:
    return f"open: {', '.join(replica.open_breakers)}" if replica.open_breakers else ""
