"""``skipstone stats``: what was served and saved, and how the services are."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from skipstone_client.cli_credentials import credentials
from skipstone_client.cli_output import (
    DEFAULT_TARGET,
    JsonOption,
    NamespaceOption,
    TargetOption,
    TimeoutOption,
    bytes_text,
    errors_in_one_line,
    print_facts,
    print_json,
    share_text,
    stdout,
    table_of,
)
from skipstone_client.orchestrator import OrchestratorClient
from skipstone_shared.orchestration import (
    BlockCacheCounts,
    BreakerState,
    DriftReport,
    DriftTier,
    HitTier,
    OrchestratorStats,
    ServiceState,
)

_BREAKER_STYLES = {
    BreakerState.CLOSED: "green",
    BreakerState.HALF_OPEN: "yellow",
    BreakerState.OPEN: "red",
}


def stats(
    namespace: NamespaceOption = "",
    target: TargetOption = DEFAULT_TARGET,
    timeout: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Shows what the orchestrator served and saved since its start, and how its services are."""
    with (
        errors_in_one_line(),
        OrchestratorClient(target, timeout_s=timeout, credentials=credentials()) as client,
    ):
        found = client.get_stats(namespace)
    if as_json:
        print_json(found)
        return
    console = stdout()
    print_facts(console, _served_facts(found))
    console.print()
    console.print(services_table(found.services))


def _served_facts(found: OrchestratorStats) -> dict[str, str | Text]:
    total = sum(found.tiers.values())
    tiers = [f"{found.tiers.get(tier, 0)} {tier.value}" for tier in HitTier]
    steps = found.executed_steps + found.skipped_steps
    waiting = f"{found.queued_saves} waiting, {found.dropped_saves} dropped"
    fallbacks = ", ".join(f"{name} {count}" for name, count in sorted(found.fallbacks.items()))
    return {
        "requests": f"{total}: {', '.join(tiers)}",
        "joined": _joined_text(found.joined_requests),
        "steps": f"{found.executed_steps} run, {found.skipped_steps} skipped "
        f"({share_text(found.skipped_steps, steps)} of {steps})",
        "block cache": _block_cache_text(found.block_cache),
        "saves": f"{found.saved_count} saved, {waiting}",
        "entries": "unknown" if found.entry_count < 0 else str(found.entry_count),
        "latents": bytes_text(found.latent_bytes),
        "fallbacks": Text(fallbacks, style="yellow"),
        **drift_facts(found.drift),
    }


def drift_facts(report: DriftReport | None) -> dict[str, str | Text]:
    """What the audits found; nothing where none was ever drawn."""
    if report is None or not (report.audits or report.queued_audits):
        return {}
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(report.audits.items()))
    rows: dict[str, str | Text] = {
        "drift audits": f"{outcomes or 'none yet'}, {report.queued_audits} waiting, "
        f"{report.audit_steps} steps; most drift of latents {report.max_drift:g}",
    }
    if report.quarantined_donors:
        rows["quarantined"] = Text(f"{report.quarantined_donors} donors", style="yellow")
    for tier in report.tiers:
        rows[f"  {tier.tier}"] = _tier_text(tier)
    return rows


def _tier_text(tier: DriftTier) -> Text:
    text = Text("closed" if tier.closed else "open", style="red" if tier.closed else "green")
    mean = "" if tier.mean is None else f", drift {tier.mean:.3f}"
    bound = "" if tier.bound is None else f", at most {tier.bound:.3f} (95 %)"
    return text.append(f", {tier.audits} audits{mean}{bound}", style="default")


def _joined_text(count: int) -> str:
    return f"{count} of the exact ones shared an equal request's run" if count else ""


def _block_cache_text(counts: BlockCacheCounts | None) -> str:
    if counts is None:
        return ""
    saved = counts.block_calls_full - counts.block_calls
    return (
        f"{counts.computed_steps} steps computed, {counts.reused_steps} reused; "
        f"{counts.block_calls} of {counts.block_calls_full} block calls run, "
        f"{share_text(saved, counts.block_calls_full)} saved"
    )


def services_table(services: tuple[ServiceState, ...]) -> Table:
    """Services behind an orchestrator, with their breakers."""
    table = table_of("service", "target", "breaker")
    table.add_column("last error", overflow="fold")
    for state in services:
        breaker = Text(state.breaker.value, style=_BREAKER_STYLES[state.breaker])
        table.add_row(state.service, state.target, breaker, Text(state.last_error))
    return table
