"""What `skipstone top` makes of two looks, and how it shows it."""

from __future__ import annotations

import io

from rich.console import Console

from skipstone_client.top.samples import Sample, view_of
from skipstone_client.top.screen import screen, spark
from skipstone_shared.denoise_runs import DenoiseStats
from skipstone_shared.orchestration import (
    BreakerState,
    DriftReport,
    DriftTier,
    HitTier,
    OrchestratorStats,
    ServiceState,
)


def stats(exact: int, miss: int, run: int, skipped: int, **more: object) -> OrchestratorStats:
    tiers = {HitTier.EXACT: exact, HitTier.MISS: miss}
    return OrchestratorStats(tiers, run, skipped, **more)  # type: ignore[arg-type]


def shown(view, rates=()) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(screen(view, rates))
    return console.file.getvalue()


EARLIER = Sample(10.0, stats(1, 4, 100, 10, fallbacks={"lookup/INDEX_TIMEOUT": 2}))
NOW = Sample(
    12.0,
    stats(
        4,
        5,
        120,
        70,
        fallbacks={"lookup/INDEX_TIMEOUT": 3, "save/FULL": 0},
        queued_saves=7,
        services=(ServiceState("latent_kv", "kv:1", BreakerState.OPEN, "it is down"),),
        drift=DriftReport(0.2, (DriftTier("renoise 0.8", 9, True, 0.3, 0.4),), {"done": 9}),
    ),
    DenoiseStats(running_count=2, queued_count=3),
)


def test_counts_become_what_happened_between_two_looks():
    view = view_of("here:1", EARLIER, NOW)
    assert view.lately is not None
    assert view.lately.requests_per_s == 2.0
    assert view.lately.tiers == {HitTier.EXACT: 3, HitTier.APPROXIMATE: 0, HitTier.MISS: 1}
    assert (view.lately.executed_steps, view.lately.skipped_steps) == (20, 60)
    assert view.lately.fallbacks == {"lookup/INDEX_TIMEOUT": 1}
    assert (view.running, view.queued) == (2, 3)


def test_the_first_look_and_a_replica_that_began_anew_tell_no_rate():
    assert view_of("here:1", None, NOW).lately is None
    assert view_of("here:1", NOW, EARLIER).lately is None
    assert view_of("here:1", Sample(1.0, error="gone"), NOW).lately is None


def test_the_screen_shows_what_an_operator_asks_for():
    text = shown(view_of("here:1", EARLIER, NOW), (0.0, 1.0, 2.0))
    for fact in (
        "2.0/s",
        "▄█",
        "75 % lately, 37 % since the start",
        "2 running, 3 waiting",
        "7 waiting, 0 lost",
        "lookup/INDEX_TIMEOUT 1",
        "latent_kv",
        "open",
        "it is down",
        "renoise 0.8",
        "closed, 9 audits, drift 0.300",
    ):
        assert fact in text, text


def test_an_orchestrator_that_does_not_answer_is_said_so():
    assert "no answer: gone" in shown(view_of("here:1", NOW, Sample(13.0, error="gone")))


def test_bars_are_as_high_as_the_largest():
    assert spark([0.0, 5.0, 10.0]) == " ▄█"
    assert spark([0.0, 0.0]) == ""
