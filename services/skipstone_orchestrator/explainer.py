"""What a request would get and why, without generating: the same decision, and nothing else.

It writes nothing, repairs nothing, counts nothing and marks no entry as used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from skipstone_orchestrator.breaker import Clock
from skipstone_orchestrator.cache_options import CacheDefaults, check_key_steps, resolve_options
from skipstone_orchestrator.compatibility import exact_entry_id
from skipstone_orchestrator.decision import Decision, Query
from skipstone_orchestrator.explanations import explain_candidate, explain_decision
from skipstone_orchestrator.generation_calls import GenerationCall, planned_query
from skipstone_orchestrator.journal import BUILD_QUERY, Journal
from skipstone_orchestrator.lookup import Lookup
from skipstone_orchestrator.plans import Planner
from skipstone_orchestrator.prompt_keys import PromptKeys
from skipstone_orchestrator.reuse_policy import ReusePolicy, default_key_steps
from skipstone_shared.latents import checked_namespace
from skipstone_shared.orchestration import Candidate, Explanation, HitTier, LookupDecision


class Explainer:
    """Explains decisions. Shared by all requests; keeps nothing of any."""

    def __init__(
        self,
        *,
        planner: Planner,
        lookup: Lookup,
        policy: ReusePolicy,
        defaults: CacheDefaults,
        prompts: PromptKeys,
        clock: Clock,
        draw_seed: Callable[[], int],
    ) -> None:
        """Creates the explainer.

        Args:
            planner: Checks parameters and plans runs.
            lookup: Decides.
            policy: Reuse policy.
            defaults: What holds for requests that do not say.
            prompts: How prompts stand in what is saved.
            clock: Seconds.
            draw_seed: Gives the seed that a request without one would get.
        """
        self._planner = planner
        self._lookup = lookup
        self._policy = policy
        self._defaults = defaults
        self._prompts = prompts
        self._clock = clock
        self._draw_seed = draw_seed

    async def explain(self, call: GenerationCall) -> Explanation:
        """Decides on a request as `GenerationPipeline.generate` would.

        Raises:
            InvalidArgument: A parameter or option is out of range.
            Unavailable: No executor can be reached.
        """
        namespace = checked_namespace(call.namespace)
        use = resolve_options(call.options, self._defaults)
        params = call.params
        if params.seed is None:
            params = dataclasses.replace(params, seed=self._draw_seed())
        journal = Journal(self._clock)
        with journal.stage(BUILD_QUERY):
            plan = await self._planner.plan(namespace, params)
        check_key_steps(use.key_steps, len(plan.sigmas) - 1)
        query = dataclasses.replace(
            planned_query(call, namespace, use, plan, self._prompts), explains=True
        )
        decision = await self._lookup.decide(query, journal)
        times = journal.times()
        found = await self._with_candidates(query, decision)
        skipped = decision.skip_steps
        return Explanation(
            params=dataclasses.replace(plan.params, seed=call.params.seed),
            decision=self._told(query, found, journal),
            explanation=explain_decision(decision.policy or self._policy, query, decision),
            num_inference_steps=query.schedule.num_inference_steps,
            cache_mode=use.mode,
            start_sigma=query.schedule.sigmas[skipped] if skipped else None,
            stage_times_s=times,
            embedding_model_id=found.embedding.model_id if found.embedding else "",
        )

    async def _with_candidates(self, query: Query, decision: Decision) -> Decision:
        """An exact hit with the candidates that were not looked for: they are asked about too."""
        if decision.tier is not HitTier.EXACT or not query.use.allow_approximate:
            return decision
        beside = dataclasses.replace(query, exact_wanted=False)
        near = await self._lookup.decide(beside, Journal(self._clock))
        return dataclasses.replace(
            decision,
            candidates=near.candidates,
            passed=near.passed,
            embedding=near.embedding,
            policy=near.policy,
        )

    def _told(self, query: Query, decision: Decision, journal: Journal) -> LookupDecision:
        use = query.use
        exact_id = ""
        if query.exact_wanted and query.seed is not None:
            exact_id = exact_entry_id(query.compatibility_key, query.exact_prompt, query.seed)
        steps = use.key_steps or default_key_steps(self._policy, query.schedule, use.limits.kind)
        return LookupDecision(
            tier=decision.tier,
            reason=decision.reason,
            policy_version=decision.policy_version(self._policy),
            compatibility_key=query.compatibility_key,
            entry_id=exact_id,
            donor=decision.donor,
            skip_steps=decision.skip_steps,
            reuse_kind=decision.kind,
            similarity=decision.similarity,
            rerank_score=decision.score,
            candidates=tuple(
                _explained(decision.policy or self._policy, query, decision, candidate)
                for candidate in decision.candidates
            ),
            fallbacks=journal.fallbacks,
            key_steps=steps if use.mode.writes else (),
        )


def _explained(
    policy: ReusePolicy, query: Query, decision: Decision, candidate: Candidate
) -> Candidate:
    told = explain_candidate(policy, query, decision, candidate)
    return dataclasses.replace(candidate, explanation=told)
