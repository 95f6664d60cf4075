"""What `skipstone top` makes of two looks, and how it shows it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from skipstone_client.top.samples import Look, Sample
from skipstone_client.top.screen import screen, spark
from skipstone_client.top.views import ReplicaState, view_of
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


def look(**replicas: Sample) -> Look:
    return Look(replicas, (DenoiseStats(running_count=2, queued_count=3),))


EARLIER = look(a=Sample(10.0, stats(1, 4, 100, 10, fallbacks={"lookup/INDEX_TIMEOUT": 2})))
NOW_A = Sample(
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
)
NOW = look(a=NOW_A)


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
    assert view_of("here:1", look(a=Sample(1.0, error="gone")), NOW).lately is None


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
    assert "no answer: gone" in shown(view_of("here:1", NOW, look(a=Sample(13.0, error="gone"))))


BOTH_BEFORE = look(a=EARLIER.replicas["a"], b=Sample(10.0, stats(0, 10, 1000, 0)))
BOTH = look(
    a=NOW_A,
    b=Sample(
        12.0,
        stats(
            0,
            12,
            1040,
            0,
            services=(ServiceState("latent_kv", "kv:1", BreakerState.CLOSED),),
            entry_count=8,
            drift=DriftReport(0.2, (DriftTier("renoise 0.8", 3, False, 0.1, 0.2),), {"done": 3}),
        ),
    ),
)


def test_counts_of_several_replicas_are_summed_and_what_they_share_is_not():
    view = view_of("here:1", BOTH_BEFORE, BOTH)
    assert view.lately is not None
    assert view.lately.requests_per_s == 3.0
    assert view.lately.tiers == {HitTier.EXACT: 3, HitTier.APPROXIMATE: 0, HitTier.MISS: 3}
    assert (view.executed_steps, view.skipped_steps) == (1160, 70)
    assert view.entry_count == 8
    assert [state.breaker for state in view.services] == [BreakerState.OPEN]
    assert view.drift is not None
    (tier,) = view.drift.tiers
    assert (tier.audits, tier.closed, tier.bound) == (12, True, 0.4)
    assert tier.mean == pytest.approx(0.25)
    assert view.drift.audits == {"done": 12}
    assert [replica.open_breakers for replica in view.replicas] == [("latent_kv",), ()]


def test_a_silent_replica_and_one_that_is_gone_are_told_and_the_others_go_on():
    now = look(a=NOW_A, b=Sample(12.0, error="it is down"), c=Sample(12.0))
    view = view_of("here:1", BOTH_BEFORE, now)
    states = [replica.state for replica in view.replicas]
    assert states == [ReplicaState.SERVING, ReplicaState.SILENT, ReplicaState.GONE]
    assert view.lately is not None
    assert view.lately.requests_per_s == 2.0
    lines = [line.split() for line in shown(view).splitlines()]
    (silent,) = [line for line in lines if line[:1] == ["b"]]
    assert (silent[1:3], silent[-3:]) == (["no", "answer"], ["it", "is", "down"])
    assert ["c", "gone", "-", "-", "-"] in lines


def test_an_orchestrator_that_is_alone_has_no_table_of_replicas():
    assert "queued saves" not in shown(view_of("here:1", EARLIER, NOW))
    assert "queued saves" in shown(view_of("here:1", BOTH_BEFORE, BOTH))


def test_bars_are_as_high_as_the_largest():
    assert spark([0.0, 5.0, 10.0]) == " ▄█"
    assert spark([0.0, 0.0]) == ""
