"""What waits in one replica, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import Gauge
from prometheus_client.registry import Collector

Count = Callable[[], int]
"""Tells a count at a scrape; called from another thread than the event loop's."""


def waiting_gauges(
    *, requests: Count, saves: Count, audits: Count, quarantined: Count
) -> list[Collector]:
    """Gauges of a replica's queues.

    Args:
        requests: Generations under way.
        saves: Saves that are not done.
        audits: Audits that wait or run.
        quarantined: Donors set aside because of their drift.
    """
    return [
        _gauge("skipstone_running_requests", "Generations under way.", requests),
        _gauge("skipstone_queued_saves", "Saves that are not done.", saves),
        _gauge("skipstone_drift_queued_audits", "Audits that wait or run.", audits),
        _gauge(
            "skipstone_drift_quarantined_donors",
            "Donors that are set aside because of their drift.",
            quarantined,
        ),
    ]


def _gauge(name: str, meaning: str, count: Count) -> Gauge:
    gauge = Gauge(name, meaning, registry=None)
    gauge.set_function(count)
    return gauge
