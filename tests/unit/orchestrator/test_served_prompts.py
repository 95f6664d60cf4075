"""A caller that changes the seed sees another picture, whosever latent the first one began with."""

from __future__ import annotations

import dataclasses

import pytest

from skipstone_orchestrator.cache_options import CacheUse
from skipstone_orchestrator.candidates import CandidateJudge
from skipstone_orchestrator.decision import Query
from skipstone_orchestrator.drift_guard import DriftGuard, DriftLimits
from skipstone_orchestrator.noise_levels import Schedule
from skipstone_orchestrator.reuse_policy import (
    SEED_DIVERSITY,
    SEED_IGNORED,
    Limits,
    ReusePolicy,
    Tables,
    Tier,
)
from skipstone_orchestrator.served_prompts import ServedPrompts
from skipstone_shared.index_entries import IndexEntry, SearchHit
from skipstone_shared.latents import LatentRef
from skipstone_shared.orchestration import CacheMode, ReuseKind

STEPS = 20
POLICY = ReusePolicy(
    tables=Tables.alike((Tier(0.9, 0.5, diverse=False), Tier(0.9, 0.9, diverse=True)))
)
DEEP, SHALLOW = 10, 2


def query(prompt: str = "a ball that is red", seed: int | None = 1, namespace: str = "n") -> Query:
    levels = [1 - k / STEPS for k in range(STEPS + 1)]
    return Query(
        namespace=namespace,
        prompt=prompt,
        seed=seed,
        exact_wanted=True,
        decodable=True,
        compatibility_key="key",
        model_hash="model",
        schedule=Schedule.of(levels, "flow", ReuseKind),
        use=CacheUse(CacheMode.READ_WRITE, True, True, False, Limits(), top_k=8),
    )


def entry(prompt: str, seed: int) -> SearchHit:
    ref = LatentRef("n", prompt, STEPS)
    return SearchHit(IndexEntry(f"{prompt} {seed}", prompt, seed, (ref,)), 0.99)


OTHERS_RUN = entry("a red ball", 77)


@pytest.fixture
def judge() -> CandidateJudge:
    guard = DriftGuard(DriftLimits(max_drift=1.0, min_audits=8, window=64))
    return CandidateJudge(guard, lambda n: 0)


def skipped(judge: CandidateJudge, asked: Query, *hits: SearchHit) -> list[int]:
    found = [(hit, 0.95) for hit in hits or (OTHERS_RUN,)]
    return [verdict.skip_steps for verdict in judge.verdicts(asked, POLICY, found)]


def test_the_first_seed_of_a_prompt_may_go_deep_and_the_second_must_differ(
    judge: CandidateJudge,
) -> None:
    assert skipped(judge, query(seed=1)) == [DEEP]
    judge.note_taken(query(seed=1))
    assert skipped(judge, query(seed=1)) == [DEEP], "the same request again may be the same"
    assert skipped(judge, query(seed=2)) == [SHALLOW]
    assert skipped(judge, query(seed=None)) == [SHALLOW], "its seed will be another"
    assert skipped(judge, query("A ball  that is RED", seed=2)) == [SHALLOW]


def test_a_tier_that_is_passed_over_for_the_seeds_is_told(judge: CandidateJudge) -> None:
    found = [(OTHERS_RUN, 0.95)]
    (free,) = judge.verdicts(query(seed=1), POLICY, found)
    judge.note_taken(query(seed=1))
    (bound,) = judge.verdicts(query(seed=2), POLICY, found)
    assert (free.passed, bound.passed) == ("", SEED_DIVERSITY)


def test_another_prompt_namespace_or_model_has_seen_nothing(judge: CandidateJudge) -> None:
    judge.note_taken(query(seed=1))
    assert skipped(judge, query("a ball that is blue", seed=2)) == [DEEP]
    assert skipped(judge, query(seed=2, namespace="other")) == [DEEP]
    other_model = dataclasses.replace(query(seed=2), compatibility_key="another")
    assert skipped(judge, other_model) == [DEEP]


def test_a_full_run_of_the_prompt_among_the_candidates_tells_it_too(judge: CandidateJudge) -> None:
    """Another replica made it, or this one before it was started again."""
    asked = query("a red ball", seed=2)
    assert skipped(judge, asked, entry("a ball that is red", 5)) == [DEEP]
    assert skipped(judge, asked, entry("a ball that is red", 5), entry("a red ball", 1)) == [
        SHALLOW,
        SHALLOW,
    ]
    assert skipped(judge, asked, entry("a red ball", 2)) == [DEEP], "it is its own seed"


def test_where_a_snapshot_would_ignore_the_seed_it_is_not_gone_on_from(
    judge: CandidateJudge,
) -> None:
    judge.note_taken(query(seed=1))
    wanted = query(seed=2)
    use = dataclasses.replace(wanted.use, limits=Limits(kind=ReuseKind.TRAJECTORY))
    asked = dataclasses.replace(wanted, use=use)
    (verdict,) = judge.verdicts(asked, POLICY, [(OTHERS_RUN, 0.95)])
    assert verdict.reason == SEED_IGNORED


def test_of_very_many_prompts_those_not_asked_for_longest_are_forgotten() -> None:
    served = ServedPrompts(max_prompts=2)
    for prompt in ("one", "two"):
        served.note(query(prompt, seed=1))
    assert served.had_another_seed(query("one", seed=2))
    served.note(query("three", seed=1))
    assert not served.had_another_seed(query("two", seed=2))
    assert served.had_another_seed(query("one", seed=2))
