"""``skipstone explain``, and what ``stats`` tells of sharing, block caching and drift."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import structlog
from click.testing import Result
from tests.unit.client.fake_services import FakeOrchestrator, serving
from typer.testing import CliRunner

from skipstone.orchestrator.v1 import orchestrator_pb2
from skipstone_client.cli_commands import build_app
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.explanation_messages import explanation_to_message
from skipstone_shared.generation import GenerationParams
from skipstone_shared.latents import LatentRef
from skipstone_shared.orchestration import (
    BlockCacheCounts,
    CacheMode,
    Candidate,
    DriftReport,
    DriftTier,
    Entry,
    Explanation,
    Fallback,
    HitTier,
    LookupDecision,
    OrchestratorStats,
    ReuseKind,
)
from skipstone_shared.orchestration_answer_messages import orchestrator_stats_to_message

TAKEN = Candidate(
    Entry("entry-1", "a red [bold]circle[/bold]", 7, "k"),
    0.93,
    12,
    "DONOR_RESUMED",
    0.9,
    "it is near",
)
REFUSED = Candidate(
    Entry("entry-2", "a blue square", 8, "k"), 0.91, 0, "BELOW_LOWEST_TIER", 0.1, "it is another"
)
EXPLANATION = Explanation(
    params=GenerationParams("a", num_inference_steps=30),
    decision=LookupDecision(
        tier=HitTier.APPROXIMATE,
        reason="DONOR_RESUMED",
        policy_version="policy-3",
        compatibility_key="compatible",
        entry_id="exact-9",
        donor=LatentRef("", "entry-1", 30),
        skip_steps=12,
        reuse_kind=ReuseKind.RENOISE,
        candidates=(TAKEN, REFUSED),
        fallbacks=(Fallback("rerank", "embedding", "DEADLINE_EXCEEDED", "slow", 0.1),),
    ),
    explanation="skips 12 of 30 steps",
    num_inference_steps=30,
    cache_mode=CacheMode.READ_WRITE,
    start_sigma=0.62,
    stage_times_s={"lookup": 0.004, "total": 0.012},
    embedding_model_id="mini",
)


@pytest.fixture(autouse=True)
def _silent_server() -> Iterator[None]:
    """The server runs in this process and would log into what the command prints."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield
    structlog.reset_defaults()


@contextmanager
def orchestrator(
    **answers: Callable[[Any, Any], Any],
) -> Iterator[tuple[Callable[..., Result], FakeOrchestrator]]:
    servicer = FakeOrchestrator(**answers)
    with serving(servicer) as target:

        def run(*words: str) -> Result:
            environ = {"SKIPSTONE_TARGET": target, "COLUMNS": "200"}
            return CliRunner().invoke(build_app(), words, env=environ)

        yield run, servicer


def explained(request: object, context: object) -> orchestrator_pb2.ExplainResponse:
    return explanation_to_message(EXPLANATION)


def lines_of(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


def test_explain_tells_the_decision_the_keys_and_every_candidate() -> None:
    with orchestrator(Explain=explained) as (run, _):
        lines = lines_of(run("explain", "a red circle"))
    for line in (
        "tier approximate (DONOR_RESUMED)",
        "why skips 12 of 30 steps",
        "steps 18 of 30 would run, from sigma 0.620 by renoise",
        "compatibility key compatible",
        "exact key exact-9",
        "policy policy-3",
        "times lookup 4 ms, total 12 ms",
        "fallback 1 rerank: embedding DEADLINE_EXCEEDED - slow (+100 ms)",
        "donor 0.930 0.900 12 DONOR_RESUMED entry-1 a red [bold]circle[/bold] it is near",
        "0.910 0.100 0 BELOW_LOWEST_TIER entry-2 a blue square it is another",
    ):
        assert line in lines


def test_an_exact_hit_is_no_donor_and_starts_at_no_noise_level() -> None:
    decision = dataclasses.replace(
        EXPLANATION.decision, tier=HitTier.EXACT, reason="EXACT_HIT", skip_steps=30, reuse_kind=None
    )
    told = dataclasses.replace(EXPLANATION, decision=decision, start_sigma=0.0)
    with orchestrator(Explain=lambda request, context: explanation_to_message(told)) as (run, _):
        lines = lines_of(run("explain", "a red circle"))
    assert "steps 0 of 30 would run" in lines
    assert any(line.startswith("exact 0.930") for line in lines)
    assert not any(line.startswith("donor ") for line in lines)


def test_explain_as_json_is_the_whole_explanation() -> None:
    with orchestrator(Explain=explained) as (run, _):
        document = json.loads(run("explain", "a red circle", "--json").stdout)
    assert document["decision"]["tier"] == "approximate"
    assert document["decision"]["candidates"][1]["explanation"] == "it is another"
    assert document["start_sigma"] == 0.62


def test_explain_sends_what_generate_would_send() -> None:
    words = ("a red circle", "--steps", "30", "--seed", "7", "--max-skip-steps", "0")
    with orchestrator(Explain=explained) as (run, servicer):
        run("explain", *words, "--donor-choices", "3", "--donor-margin", "0.1", "--reproducible")
    (request,) = servicer.requests
    assert (request.params.prompt, request.params.num_inference_steps) == ("a red circle", 30)
    assert request.params.seed == 7
    cache = request.cache
    assert cache.HasField("max_skip_steps")
    assert (cache.donor_choices, cache.donor_margin, cache.reproducible) == (3, 0.1, True)


def test_a_request_without_a_seed_is_told_why_it_has_no_exact_key() -> None:
    told = dataclasses.replace(
        EXPLANATION, decision=dataclasses.replace(EXPLANATION.decision, entry_id="")
    )
    with orchestrator(Explain=lambda request, context: explanation_to_message(told)) as (run, _):
        assert "exact key none, since the request gives no seed" in lines_of(run("explain", "a"))


def test_bad_input_of_explain_names_the_field() -> None:
    def refuse(request: object, context: object) -> None:
        raise InvalidArgument("cache.top_k is 0", field="cache.top_k", allowed="1 to 100")

    with orchestrator(Explain=refuse) as (run, _):
        result = run("explain", "a")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "cache.top_k" in result.stderr


def test_stats_tell_of_shared_runs_block_caching_and_drift() -> None:
    counts = OrchestratorStats(
        joined_requests=2,
        block_cache=BlockCacheCounts(30, 10, 60, 80),
        drift=DriftReport(
            0.5,
            (DriftTier("renoise 0.50", 8, True, 0.7, 0.75), DriftTier("renoise 0.90", 1, False)),
            {"measured": 9, "dropped": 1},
            90,
            2,
            3,
        ),
    )
    with orchestrator(GetStats=lambda r, c: orchestrator_stats_to_message(counts)) as (run, _):
        lines = lines_of(run("stats"))
    for line in (
        "joined 2 of the exact ones shared an equal request's run",
        "block cache 30 steps computed, 10 reused; 60 of 80 block calls run, 25 % saved",
        "drift audits 1 dropped, 9 measured, 2 waiting, 90 steps; most drift of latents 0.5",
        "quarantined 3 donors",
        "renoise 0.50 closed, 8 audits, drift 0.700, at most 0.750 (95 %)",
        "renoise 0.90 open, 1 audits",
    ):
        assert line in lines
