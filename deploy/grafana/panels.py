"""What the Grafana dashboard shows: its rows, panels and queries."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

# The jobs that were chosen at the top of the dashboard, and Grafana's period for rates.
_JOB = 'job=~"$job"'
_RATE = "[$__rate_interval]"


@dataclasses.dataclass(frozen=True)
class Panel:
    """One graph.

    Attributes:
        title: Its heading.
        meaning: What it tells, and when to worry.
        unit: Grafana's name of the unit.
        queries: PromQL by legend.
        exemplars: Whether traces of single requests are shown too.
        stacked: Whether series are stacked.
    """

    title: str
    meaning: str
    unit: str
    queries: dict[str, str]
    exemplars: bool = False
    stacked: bool = False


def rate(metric: str, by: str = "", **labels: str) -> str:
    """Events per second, summed over all replicas."""
    return f"sum{f' by ({by})' if by else ''} (rate({metric}{{{_selector(labels)}}}{_RATE}))"


def total(metric: str, by: str = "", **labels: str) -> str:
    """A gauge, summed over all replicas."""
    return f"sum{f' by ({by})' if by else ''} ({metric}{{{_selector(labels)}}})"


def held(metric: str) -> str:
    """A gauge of a store, summed over stores: replicas that share one tell the whole of it each."""
    return f"sum(max by (store) ({metric}{{{_selector({})}}}))"


def quantile(share: float, metric: str, by: str = "", **labels: str) -> str:
    """A quantile of a histogram."""
    names = f"le, {by}" if by else "le"
    buckets = f"rate({metric}_bucket{{{_selector(labels)}}}{_RATE})"
    return f"histogram_quantile({share}, sum by ({names}) ({buckets}))"


def share(metric: str, **labels: str) -> str:
    """The share of a counter's events that have these labels."""
    return f"{rate(metric, **labels)} / {rate(metric)}"


def mean(metric: str) -> str:
    """The mean of a histogram."""
    return f"{rate(metric + '_sum')} / {rate(metric + '_count')}"


def _selector(labels: dict[str, str]) -> str:
    return ", ".join([_JOB, *(f"{name}{match}" for name, match in labels.items())])


ROWS: dict[str, Sequence[Panel]] = {
    "Requests": (
        Panel(
            "Generations by tier",
            "Finished generations per second. A miss is denoised in full.",
            "reqps",
            {"{{tier}}": rate("skipstone_requests_total", "tier")},
            stacked=True,
        ),
        Panel(
            "Steps saved",
            "Share of all denoising steps that were skipped: GPU time saved.",
            "percentunit",
            {"saved": share("skipstone_steps_total", kind='="skipped"')},
        ),
        Panel(
            "Time of a generation",
            "From request to answer; the dots are traced requests.",
            "s",
            {
                "p50": quantile(0.5, "skipstone_stage_seconds", stage='="total"'),
                "p99": quantile(0.99, "skipstone_stage_seconds", stage='="total"'),
            },
            exemplars=True,
        ),
        Panel(
            "Why not reused",
            "Misses per second by reason.",
            "reqps",
            {"{{reason}}": rate("skipstone_requests_total", "reason", tier='="miss"')},
            stacked=True,
        ),
        Panel(
            "Fallbacks",
            "Troubles of the cache that cost a request its hit or its save. Should be empty.",
            "ops",
            {
                "{{service}} {{reason}}": rate("skipstone_fallbacks_total", "service, reason"),
            },
            stacked=True,
        ),
        Panel(
            "Stages, p99",
            "Where the time of a generation goes.",
            "s",
            {"{{stage}}": quantile(0.99, "skipstone_stage_seconds", "stage", stage='!="total"')},
            exemplars=True,
        ),
    ),
    "Services": (
        Panel(
            "Breakers that are not closed",
            "A service that the orchestrator does not ask (open) or tries (half_open).",
            "none",
            {
                "{{service}} {{state}}": total(
                    "skipstone_breaker_state", "service, state", state='!="closed"'
                )
            },
        ),
        Panel(
            "Rpcs",
            "Finished rpcs per second.",
            "reqps",
            {"{{method}}": rate("skipstone_rpcs_total", "method")},
            stacked=True,
        ),
        Panel(
            "Rpcs that failed",
            "Per second, by code. NOT_FOUND is a miss and not shown.",
            "reqps",
            {
                "{{method}} {{code}}": rate(
                    "skipstone_rpcs_total", "method, code", code='!~"OK|NOT_FOUND"'
                )
            },
        ),
        Panel(
            "Rpcs, p99",
            "Time in the service. WatchEvictions lasts as long as its watcher.",
            "s",
            {
                "{{method}}": quantile(
                    0.99, "skipstone_rpc_seconds", "method", method='!~".*/WatchEvictions"'
                )
            },
            exemplars=True,
        ),
        Panel(
            "Memory",
            "Resident memory of each process.",
            "bytes",
            {"{{job}} {{instance}}": total("process_resident_memory_bytes", "job, instance")},
        ),
        Panel(
            "CPU",
            "Cores used by each process.",
            "none",
            {"{{job}} {{instance}}": rate("process_cpu_seconds_total", "job, instance")},
        ),
    ),
    "Web": (
        Panel(
            "HTTP requests by status",
            "Per second at the gateway. 5xx: a service behind it failed.",
            "reqps",
            {"{{code}}": rate("skipstone_gateway_requests_total", "code")},
            stacked=True,
        ),
        Panel(
            "Time of an HTTP request, p99",
            "To the end of the answer; the dots are traced requests.",
            "s",
            {"{{route}}": quantile(0.99, "skipstone_gateway_request_seconds", "route")},
            exemplars=True,
        ),
        Panel(
            "HTTP requests at work",
            "Open answers, those with progress too.",
            "none",
            {"running": total("skipstone_gateway_requests_running")},
        ),
    ),
    "Executor": (
        Panel(
            "Runs under way",
            "Queued runs that stay above 0 ask for another executor.",
            "none",
            {
                "running": total("skipstone_denoise_running_requests"),
                "queued": total("skipstone_denoise_queued_requests"),
                "most at once": total("skipstone_denoise_max_running_requests"),
                "generations": total("skipstone_running_requests"),
            },
        ),
        Panel(
            "Steps per second",
            "Denoising steps, run and skipped.",
            "ops",
            {"{{kind}}": rate("skipstone_denoise_steps_total", "kind")},
            stacked=True,
        ),
        Panel(
            "Runs by how they ended",
            "Per second.",
            "ops",
            {"{{end}}": rate("skipstone_denoise_runs_total", "end")},
            stacked=True,
        ),
        Panel(
            "Blocks saved by block caching",
            "Share of the transformer blocks of runs with block caching.",
            "percentunit",
            {"saved": share("skipstone_denoise_block_calls_total", kind='="saved"')},
        ),
        Panel(
            "Steps under block caching",
            "By why they were computed or reused.",
            "ops",
            {
                "{{transformer}} {{reason}}": rate(
                    "skipstone_denoise_block_cache_decisions_total", "transformer, reason"
                )
            },
            stacked=True,
        ),
        Panel(
            "Encoder",
            "Inputs that wait, and those of an average batch.",
            "none",
            {
                "queued": total("skipstone_embedding_queued_inputs"),
                "batch": mean("skipstone_embedding_batch_inputs"),
            },
        ),
    ),
    "Stores": (
        Panel(
            "Bytes",
            "At the quota entries are evicted; that is how the store is meant to run.",
            "bytes",
            {
                "snapshots": held("skipstone_latent_kv_stored_bytes"),
                "quota": held("skipstone_latent_kv_quota_bytes"),
                "latent_kv on disk": held("skipstone_latent_kv_disk_bytes"),
                "vector_index on disk": held("skipstone_vector_index_disk_bytes"),
            },
        ),
        Panel(
            "Entries",
            "Both stores should have about as many.",
            "none",
            {
                "latent_kv": held("skipstone_latent_kv_entries"),
                "vector_index": held("skipstone_vector_index_entries"),
                "tombstones": held("skipstone_vector_index_tombstones"),
            },
        ),
        Panel(
            "Removals",
            "Entries removed per second; corrupt ones hint at a disk.",
            "ops",
            {
                # Those of a shared store are counted by each of its replicas.
                "{{kind}}": "sum by (kind) (max by (store, kind) "
                f"(rate(skipstone_latent_kv_removals_total{{{_selector({})}}}{_RATE})))"
            },
            stacked=True,
        ),
        Panel(
            "Saves",
            "Per second, and how many wait.",
            "none",
            {
                "{{outcome}}": rate("skipstone_saves_total", "outcome"),
                "waiting": total("skipstone_queued_saves"),
            },
        ),
        Panel(
            "Latents moved",
            "Bytes of snapshots per second.",
            "Bps",
            {"{{operation}}": rate("skipstone_latent_kv_data_bytes_total", "operation")},
        ),
        Panel(
            "Store operations, p99",
            "Time inside latent_kv.",
            "s",
            {"{{operation}}": quantile(0.99, "skipstone_latent_kv_operation_seconds", "operation")},
        ),
        Panel(
            "Writes missed in a migration",
            "Per second, by the backend that entries move to. Should be empty.",
            "ops",
            {
                "latent_kv": rate("skipstone_latent_kv_migration_missed_writes_total"),
                "vector_index": rate("skipstone_vector_index_migration_missed_writes_total"),
            },
        ),
        Panel(
            "Trouble of a store in S3",
            "Values of removed entries that may still be there, records that cannot be read.",
            "none",
            {
                "undeleted values": held("skipstone_latent_kv_undeleted_values"),
                "unreadable records": held("skipstone_latent_kv_unreadable_records_total"),
            },
        ),
    ),
    "Drift": (
        Panel(
            "Drift of audited hits",
            "Distance from the full run: 0 equal, about 1 unrelated.",
            "none",
            {"p95 {{tier}}": quantile(0.95, "skipstone_drift", "tier")},
        ),
        Panel(
            "Closed tiers and quarantined donors",
            "What drift has taken out of use.",
            "none",
            {
                "closed {{tier}}": total("skipstone_tier_closed", "tier"),
                "donors": total("skipstone_drift_quarantined_donors"),
            },
        ),
        Panel(
            "Audits",
            "Per second by outcome, and how many wait.",
            "none",
            {
                "{{outcome}}": rate("skipstone_drift_audits_total", "outcome"),
                "waiting": total("skipstone_drift_queued_audits"),
            },
        ),
        Panel(
            "Upkeep",
            "What only one of the stores had, removed per second.",
            "ops",
            {
                "vectors by {{found_by}}": rate(
                    "skipstone_stale_vectors_removed_total", "found_by"
                ),
                "entries": rate("skipstone_unfindable_entries_removed_total"),
            },
        ),
    ),
}
