"""``skipstone explain``: what a request would get and why, without generating."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from skipstone_client.cli_credentials import credentials
from skipstone_client.cli_generate import TIER_STYLES, fallback_facts, times_text
from skipstone_client.cli_output import (
    DEFAULT_TARGET,
    JsonOption,
    NamespaceOption,
    TargetOption,
    TimeoutOption,
    errors_in_one_line,
    print_facts,
    print_json,
    stdout,
    table_of,
)
from skipstone_client.cli_request import (
    CacheChoices,
    PromptArgument,
    RequestOptions,
    SeedOption,
)
from skipstone_client.option_groups import with_option_groups
from skipstone_client.orchestrator import OrchestratorClient
from skipstone_shared.orchestration import Candidate, Explanation, HitTier


@with_option_groups
def explain(
    *,
    prompt: PromptArgument,
    seed: SeedOption = None,
    asked: RequestOptions,
    choices: CacheChoices,
    namespace: NamespaceOption = "",
    target: TargetOption = DEFAULT_TARGET,
    timeout: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Shows what a request would get and why, without generating.

    Nothing is written and no entry counts as used.
    """
    with (
        errors_in_one_line(),
        OrchestratorClient(target, timeout_s=timeout, credentials=credentials()) as client,
    ):
        params = asked.whole_params(prompt, seed)
        told = client.explain(params, choices.options(), namespace)
    if as_json:
        print_json(told)
        return
    console = stdout()
    print_facts(console, _facts(told))
    if told.decision.candidates:
        console.print()
        console.print(_candidates_table(told))


def _facts(told: Explanation) -> dict[str, str | Text]:
    decision = told.decision
    tier = Text(decision.tier.value, style=TIER_STYLES[decision.tier])
    tier.append(f" ({decision.reason})", style="not bold dim")
    return {
        "tier": tier,
        "why": told.explanation,
        "steps": _steps_text(told),
        "compatibility key": decision.compatibility_key,
        "exact key": decision.entry_id or "none, since the request gives no seed",
        "cache mode": told.cache_mode.value,
        "policy": decision.policy_version,
        "embedding": told.embedding_model_id,
        "times": times_text(told.stage_times_s),
        **fallback_facts(decision.fallbacks),
    }


def _steps_text(told: Explanation) -> str:
    total, skipped = told.num_inference_steps, told.decision.skip_steps
    text = f"{total - skipped} of {total} would run"
    if told.start_sigma:  # 0 where nothing is left to run
        text += f", from sigma {told.start_sigma:.3f}"
    if told.decision.reuse_kind is not None:
        text += f" by {told.decision.reuse_kind.value}"
    return text


def _candidates_table(told: Explanation) -> Table:
    table = table_of("", "similarity", "gate", "skips", "reason", "entry")
    table.add_column("prompt", overflow="fold")
    table.add_column("why", overflow="fold")
    donor = told.decision.donor
    used = "exact" if told.decision.tier is HitTier.EXACT else "donor"
    for candidate in told.decision.candidates:
        is_used = donor is not None and candidate.entry.entry_id == donor.entry_id
        table.add_row(
            Text(used if is_used else "", style=TIER_STYLES[told.decision.tier]),
            f"{candidate.similarity:.3f}",
            _gate_text(candidate),
            str(candidate.skip_steps),
            candidate.reason,
            candidate.entry.entry_id,
            Text(candidate.entry.prompt),
            Text(candidate.explanation),
        )
    return table


def _gate_text(candidate: Candidate) -> str:
    return "-" if candidate.rerank_score is None else f"{candidate.rerank_score:.3f}"
