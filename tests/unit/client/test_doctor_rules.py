"""What the doctor concludes from what it found out."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from skipstone_client.doctor_facts import (
    Condition,
    DeploymentFacts,
    Finding,
    ServiceFacts,
    Severity,
)
from skipstone_client.doctor_rules import findings
from skipstone_shared.denoise_runs import (
    DenoiseCapabilities,
    DenoiseStats,
    SchedulerResume,
)
from skipstone_shared.embeddings import EmbeddingCapabilities
from skipstone_shared.index_entries import IndexEntry, IndexStats
from skipstone_shared.orchestration import (
    BreakerState,
    CacheMode,
    DriftReport,
    DriftTier,
    OrchestratorCapabilities,
    OrchestratorStats,
    ServiceState,
)
from skipstone_shared.stored_entries import StoreStats

NAMES = ("orchestrator", "embedding", "vector_index", "latent_kv", "denoise")
MODEL = DenoiseCapabilities(
    instance_id="i",
    model_id="m",
    pipeline_class="P",
    scheduler_class="S",
    default_steps=20,
    max_steps=100,
    default_guidance_scale=1.0,
    default_height=64,
    default_width=64,
    size_multiple=8,
    min_size=64,
    max_size=64,
    max_concurrent_requests=2,
    resume_kinds=(),
    scheduler_resume=SchedulerResume.EXACT,
    latent_kv_target="127.0.0.1:50053",
)


def serving(name: str, **told: Any) -> ServiceFacts:
    facts = ServiceFacts(name, "127.0.0.1:1", Condition.SERVING, "", "0.1.0", 0.01, 0.002)
    return dataclasses.replace(facts, **told)


def state(name: str, breaker: BreakerState = BreakerState.CLOSED) -> ServiceState:
    target = "localhost:50053" if name == "latent_kv" else "h:1"
    return ServiceState(name, target, breaker, "" if breaker is BreakerState.CLOSED else "gone")


STATS = OrchestratorStats(saved_count=100, services=tuple(state(n) for n in NAMES[1:]))
HEALTHY = DeploymentFacts(
    namespace="",
    services=tuple(serving(name) for name in NAMES),
    stats=STATS,
    capabilities=OrchestratorCapabilities("0.1.0", "p", CacheMode.READ_WRITE, 1000),
    reuse_reasons=("SCORE_TOO_LOW", "CALIBRATED"),
    embedding=EmbeddingCapabilities("minilm", 384, reranker_id="rules"),
    index=IndexStats(entry_count=1000, partition_count=1),
    index_sample=(IndexEntry("e", embedding_model_id="minilm"),),
    store=StoreStats(1050, 0, 2000, 500, quota_bytes=1000),
    denoise=MODEL,
    denoise_stats=DenoiseStats(queued_count=1),
)


def with_service(name: str, **told: Any) -> DeploymentFacts:
    services = tuple(serving(n, **(told if n == name else {})) for n in NAMES)
    return dataclasses.replace(HEALTHY, services=services)


def with_stats(**changed: Any) -> DeploymentFacts:
    return dataclasses.replace(HEALTHY, stats=dataclasses.replace(STATS, **changed))


def test_a_deployment_that_is_well_has_no_finding() -> None:
    assert list(findings(HEALTHY)) == []


def test_what_could_not_be_found_out_is_no_finding() -> None:
    assert list(findings(DeploymentFacts("", (serving("orchestrator"),)))) == []


@pytest.mark.parametrize("condition", [c for c in Condition if c is not Condition.SERVING])
def test_every_condition_but_serving_is_a_problem_with_something_to_do(
    condition: Condition,
) -> None:
    facts = with_service("denoise", condition=condition, error="because")
    (found,) = findings(facts)
    assert found.check == condition.value
    assert found.severity is Severity.PROBLEM
    assert found.service == "denoise"
    assert "because" in found.message
    assert found.action


BROKEN = tuple(
    state(n, BreakerState.OPEN if n == "embedding" else BreakerState.CLOSED) for n in NAMES
)
TIER = DriftTier("renoise 0.8", audits=9, closed=True, bound=0.93)
BY_FRAMES = OrchestratorCapabilities("0.1.0", "p", CacheMode.READ_WRITE, 1000, donor_frames=8)
OLD = IndexEntry("e", embedding_model_id="old")
CASES = {
    "breaker": with_stats(services=BROKEN),
    "versions": with_service("denoise", version="0.2.0"),
    "clock": with_service("latent_kv", clock_offset_s=-7.0),
    "embedding_model": dataclasses.replace(HEALTHY, index_sample=(OLD,)),
    "donor_vectors": dataclasses.replace(
        HEALTHY, capabilities=BY_FRAMES, index_sample=(IndexEntry("e"),)
    ),
    "reranker": dataclasses.replace(HEALTHY, embedding=EmbeddingCapabilities("minilm", 384)),
    "calibration": dataclasses.replace(HEALTHY, reuse_reasons=("NO_CALIBRATION",)),
    "stores_in_step": dataclasses.replace(HEALTHY, index=IndexStats(700, 1)),
    "quota": dataclasses.replace(HEALTHY, store=StoreStats(1000, 0, 1, 960, quota_bytes=1000)),
    "saves": with_stats(dropped_saves=10, fallbacks={"save/UNAVAILABLE": 10}),
    "drift": with_stats(drift=DriftReport(0.8, (TIER,))),
    "executor_queue": dataclasses.replace(HEALTHY, denoise_stats=DenoiseStats(queued_count=3)),
    "latent_kv_target": dataclasses.replace(
        HEALTHY, denoise=dataclasses.replace(MODEL, latent_kv_target="other:50053")
    ),
    "cache_mode": dataclasses.replace(
        HEALTHY, capabilities=OrchestratorCapabilities("0.1.0", "p", CacheMode.OFF, 1000)
    ),
}


@pytest.mark.parametrize("check", CASES)
def test_each_trouble_is_found_alone_and_says_what_to_do(check: str) -> None:
    found = list(findings(CASES[check]))
    assert [finding.check for finding in found] == [check]
    assert found[0].action


@pytest.mark.parametrize(
    "facts",
    [
        with_service("latent_kv", clock_offset_s=2.4, answer_s=1.0),  # the answer was slow
        with_service("latent_kv", clock_offset_s=None),
        dataclasses.replace(HEALTHY, index=IndexStats(950, 1)),  # saves are under way
        dataclasses.replace(HEALTHY, store=StoreStats(1000, 0, 1, 960)),  # no quota
        dataclasses.replace(HEALTHY, reuse_reasons=("NO_CALIBRATION", "CALIBRATED")),
        with_stats(dropped_saves=4),
        with_stats(drift=DriftReport(0.8, (DriftTier("t", 9, closed=False),))),
    ],
)
def test_what_is_within_bounds_is_no_finding(facts: DeploymentFacts) -> None:
    assert list(findings(facts)) == []


def test_problems_come_before_warnings() -> None:
    facts = dataclasses.replace(
        with_service("denoise", version="0.2.0"), stats=dataclasses.replace(STATS, services=BROKEN)
    )
    found: list[Finding] = list(findings(facts))
    assert [f.severity for f in found] == [Severity.PROBLEM, Severity.WARNING]


@pytest.mark.parametrize(
    ("free", "severity"),
    [(500, None), (99, Severity.WARNING), (19, Severity.PROBLEM), (0, Severity.PROBLEM)],
)
def test_a_disk_that_fills_up_is_told_before_nothing_can_be_stored(
    free: int, severity: Severity | None
) -> None:
    facts = with_service("latent_kv", disk_free_bytes=free, disk_size_bytes=1000)
    found = list(findings(facts))
    assert [(f.check, f.service, f.severity) for f in found] == (
        [("disk", "latent_kv", severity)] if severity else []
    )


@pytest.mark.parametrize(
    ("days", "severity", "said"),
    [
        (30, None, ""),
        (13, Severity.WARNING, "ends in 13.0 days"),
        (-2, Severity.PROBLEM, "ended 2.0 days ago"),
    ],
)
def test_a_certificate_is_told_two_weeks_before_its_end(
    days: float, severity: Severity | None, said: str
) -> None:
    left = {"tls_cert_file": days * 86_400}
    for facts, service in (
        (with_service("denoise", certificates_left_s=left), "denoise"),
        (dataclasses.replace(HEALTHY, own_certificates_left_s=left), ""),
    ):
        found = list(findings(facts))
        assert [(f.check, f.service, f.severity) for f in found] == (
            [("certificate", service, severity)] if severity else []
        )
        assert all(said in f.message for f in found)


def test_entries_saved_under_the_other_kind_of_vector_are_told() -> None:
    sees = EmbeddingCapabilities("clip", 512, ("text", "image", "frames"), reranker_id="rules")
    by_frames = dataclasses.replace(HEALTHY, capabilities=BY_FRAMES, embedding=sees)

    def checks(facts: DeploymentFacts, *model_ids: str) -> list[str]:
        sample = tuple(IndexEntry("e", embedding_model_id=model_id) for model_id in model_ids)
        return [f.check for f in findings(dataclasses.replace(facts, index_sample=sample))]

    assert checks(by_frames, "clip#frames") == []
    assert checks(by_frames, "clip#frames", "clip") == ["embedding_model"]
    assert checks(HEALTHY, "minilm#frames") == ["embedding_model"]
