"""Prometheus metrics of the executor, read from the engine's own counts."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from skipstone_denoise.engine import DenoiseEngine
from skipstone_shared.denoise_runs import DenoiseStats


class EngineMetrics(Collector):
    """Tells the counts of an engine when it is scraped."""

    def __init__(self, engine: DenoiseEngine) -> None:
        """Reads from `engine`."""
        self._engine = engine

    def describe(self) -> Iterable[Metric]:
        """Names without values, so that registering asks the engine nothing."""
        return []

    def collect(self) -> Iterable[Metric]:
        """The counts."""
        stats = self._engine.get_stats()
        runs = CounterMetricFamily(
            "skipstone_denoise_runs", "Runs by how they ended.", None, ["end"]
        )
        runs.add_metric(["finished"], stats.finished_count)
        runs.add_metric(["failed"], stats.failed_count)
        runs.add_metric(["cancelled"], stats.cancelled_count)
        steps = CounterMetricFamily(
            "skipstone_denoise_steps", "Denoising steps, run and skipped.", None, ["kind"]
        )
        steps.add_metric(["executed"], stats.executed_steps)
        steps.add_metric(["skipped"], stats.skipped_steps)
        yield runs
        yield steps
        yield from _block_cache_metrics(stats)
        yield GaugeMetricFamily(
            "skipstone_denoise_running_requests", "Runs in progress.", stats.running_count
        )
        yield GaugeMetricFamily(
            "skipstone_denoise_queued_requests", "Runs that wait.", stats.queued_count
        )
        yield GaugeMetricFamily(
            "skipstone_denoise_max_running_requests",
            "Most runs at the same time.",
            self._engine.get_capabilities().max_concurrent_requests,
        )


def _block_cache_metrics(stats: DenoiseStats) -> Iterable[Metric]:
    """What block caching did; a transformer shows up with its first run under it."""
    calls = CounterMetricFamily(
        "skipstone_denoise_block_calls",
        "Transformer blocks of runs with block caching, run and saved.",
        None,
        ["kind"],
    )
    calls.add_metric(["run"], stats.block_calls)
    calls.add_metric(["saved"], stats.block_calls_full - stats.block_calls)
    steps = CounterMetricFamily(
        "skipstone_denoise_block_cache_steps",
        "Steps of runs with block caching, computed and reused, over all guidance branches.",
        None,
        ["transformer", "kind"],
    )
    reasons = CounterMetricFamily(
        "skipstone_denoise_block_cache_decisions",
        "The same steps by why they were computed or reused.",
        None,
        ["transformer", "reason"],
    )
    for told in stats.block_cache_steps:
        steps.add_metric([told.transformer, "computed"], told.computed_steps)
        steps.add_metric([told.transformer, "reused"], told.reused_steps)
        for reason, count in sorted(told.reasons.items()):
            reasons.add_metric([told.transformer, reason], count)
    return calls, steps, reasons
