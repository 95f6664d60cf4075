"""Dataclasses of ``orchestration`` <-> messages of ``skipstone/orchestrator/v1``: answers.

Decisions, entries, counts and capabilities; requests and events are in ``orchestration_messages``.
"""

from __future__ import annotations

from skipstone.orchestrator.v1 import orchestrator_pb2
from skipstone_shared.drift_messages import drift_report_from_message, drift_report_to_message
from skipstone_shared.enum_messages import required_enum
from skipstone_shared.latent_messages import ref_from_message, ref_to_message
from skipstone_shared.orchestration import (
    BlockCacheCounts,
    BreakerState,
    Candidate,
    Entry,
    EntryPage,
    LookupDecision,
    OrchestratorCapabilities,
    OrchestratorStats,
    ServiceState,
)
from skipstone_shared.orchestration_messages import (
    cache_mode_from_message,
    cache_mode_to_message,
    fallback_from_message,
    fallback_to_message,
    reuse_kind_from_message,
    reuse_kind_to_message,
    tier_from_message,
    tier_to_message,
)
from skipstone_shared.timestamp_messages import timestamp_from_message, timestamp_to_message

_BREAKER_TO_MESSAGE: dict[BreakerState, orchestrator_pb2.BreakerState.ValueType] = {
    BreakerState.CLOSED: orchestrator_pb2.BREAKER_STATE_CLOSED,
    BreakerState.OPEN: orchestrator_pb2.BREAKER_STATE_OPEN,
    BreakerState.HALF_OPEN: orchestrator_pb2.BREAKER_STATE_HALF_OPEN,
}
_BREAKER_FROM_MESSAGE: dict[int, BreakerState] = {m: s for s, m in _BREAKER_TO_MESSAGE.items()}


def entry_to_message(entry: Entry) -> orchestrator_pb2.Entry:
    """The message of an entry."""
    return orchestrator_pb2.Entry(
        entry_id=entry.entry_id,
        prompt=entry.prompt,
        seed=entry.seed,
        compatibility_key=entry.compatibility_key,
        snapshots=[ref_to_message(ref) for ref in entry.snapshots],
        depth=entry.depth,
        create_time=timestamp_to_message(entry.create_time) if entry.create_time else None,
    )


def entry_from_message(message: orchestrator_pb2.Entry) -> Entry:
    """The entry of a message.

    Raises:
        InvalidArgument: a bad reference.
    """
    return Entry(
        entry_id=message.entry_id,
        prompt=message.prompt,
        seed=message.seed,
        compatibility_key=message.compatibility_key,
        snapshots=tuple(ref_from_message(ref) for ref in message.snapshots),
        depth=message.depth,
        create_time=(
            timestamp_from_message(message.create_time) if message.HasField("create_time") else 0.0
        ),
    )


def entry_page_to_message(page: EntryPage) -> orchestrator_pb2.ListEntriesResponse:
    """The message of one page."""
    return orchestrator_pb2.ListEntriesResponse(
        entries=[entry_to_message(e) for e in page.entries], next_page_token=page.next_page_token
    )


def entry_page_from_message(message: orchestrator_pb2.ListEntriesResponse) -> EntryPage:
    """The page of a message."""
    return EntryPage(tuple(entry_from_message(e) for e in message.entries), message.next_page_token)


def decision_to_message(decision: LookupDecision) -> orchestrator_pb2.LookupResponse:
    """The message of a decision."""
    return orchestrator_pb2.LookupResponse(
        tier=tier_to_message(decision.tier),
        reason=decision.reason,
        donor=ref_to_message(decision.donor) if decision.donor is not None else None,
        skip_steps=decision.skip_steps,
        reuse_kind=reuse_kind_to_message(decision.reuse_kind),
        similarity=decision.similarity,
        rerank_score=decision.rerank_score,
        candidates=[_candidate_to_message(c) for c in decision.candidates],
        fallbacks=[fallback_to_message(f) for f in decision.fallbacks],
        compatibility_key=decision.compatibility_key,
        entry_id=decision.entry_id,
        key_steps=decision.key_steps,
        policy_version=decision.policy_version,
        donor_frames=decision.donor_frames,
    )


def decision_from_message(message: orchestrator_pb2.LookupResponse) -> LookupDecision:
    """The decision of a message.

    Raises:
        InvalidArgument: a tier or kind of reuse that this version does not know.
    """
    return LookupDecision(
        tier=tier_from_message(message.tier),
        reason=message.reason,
        donor=ref_from_message(message.donor) if message.HasField("donor") else None,
        skip_steps=message.skip_steps,
        reuse_kind=reuse_kind_from_message(message.reuse_kind),
        similarity=message.similarity if message.HasField("similarity") else None,
        rerank_score=message.rerank_score if message.HasField("rerank_score") else None,
        candidates=tuple(_candidate_from_message(c) for c in message.candidates),
        fallbacks=tuple(fallback_from_message(f) for f in message.fallbacks),
        compatibility_key=message.compatibility_key,
        entry_id=message.entry_id,
        key_steps=tuple(message.key_steps),
        policy_version=message.policy_version,
        donor_frames=message.donor_frames,
    )


def _candidate_to_message(candidate: Candidate) -> orchestrator_pb2.Candidate:
    return orchestrator_pb2.Candidate(
        entry=entry_to_message(candidate.entry),
        similarity=candidate.similarity,
        rerank_score=candidate.rerank_score,
        skip_steps=candidate.skip_steps,
        reason=candidate.reason,
        explanation=candidate.explanation,
        reuse_tier=candidate.reuse_tier,
    )


def _candidate_from_message(message: orchestrator_pb2.Candidate) -> Candidate:
    return Candidate(
        entry=entry_from_message(message.entry),
        similarity=message.similarity,
        rerank_score=message.rerank_score if message.HasField("rerank_score") else None,
        skip_steps=message.skip_steps,
        reason=message.reason,
        explanation=message.explanation,
        reuse_tier=message.reuse_tier,
    )


def _block_cache_to_message(counts: BlockCacheCounts) -> orchestrator_pb2.BlockCacheCounts:
    return orchestrator_pb2.BlockCacheCounts(
        computed_steps=counts.computed_steps,
        reused_steps=counts.reused_steps,
        block_calls=counts.block_calls,
        block_calls_full=counts.block_calls_full,
    )


def _block_cache_from_message(message: orchestrator_pb2.BlockCacheCounts) -> BlockCacheCounts:
    return BlockCacheCounts(
        computed_steps=message.computed_steps,
        reused_steps=message.reused_steps,
        block_calls=message.block_calls,
        block_calls_full=message.block_calls_full,
    )


def orchestrator_stats_to_message(stats: OrchestratorStats) -> orchestrator_pb2.GetStatsResponse:
    """The message of the counts."""
    return orchestrator_pb2.GetStatsResponse(
        tiers=[
            orchestrator_pb2.TierCount(tier=tier_to_message(tier), count=count)
            for tier, count in stats.tiers.items()
        ],
        executed_steps=stats.executed_steps,
        skipped_steps=stats.skipped_steps,
        saved_count=stats.saved_count,
        dropped_saves=stats.dropped_saves,
        queued_saves=stats.queued_saves,
        fallbacks=stats.fallbacks,
        services=[
            orchestrator_pb2.ServiceState(
                service=state.service,
                target=state.target,
                breaker=_BREAKER_TO_MESSAGE[state.breaker],
                last_error=state.last_error,
            )
            for state in stats.services
        ],
        entry_count=stats.entry_count,
        latent_bytes=stats.latent_bytes,
        joined_requests=stats.joined_requests,
        block_cache=_block_cache_to_message(stats.block_cache) if stats.block_cache else None,
        drift=drift_report_to_message(stats.drift) if stats.drift is not None else None,
    )


def orchestrator_stats_from_message(
    message: orchestrator_pb2.GetStatsResponse,
) -> OrchestratorStats:
    """The counts of a message.

    Raises:
        InvalidArgument: a tier or state of a breaker that this version does not know.
    """
    return OrchestratorStats(
        tiers={tier_from_message(count.tier): count.count for count in message.tiers},
        executed_steps=message.executed_steps,
        skipped_steps=message.skipped_steps,
        saved_count=message.saved_count,
        dropped_saves=message.dropped_saves,
        queued_saves=message.queued_saves,
        fallbacks=dict(message.fallbacks),
        services=tuple(
            ServiceState(
                service=state.service,
                target=state.target,
                breaker=required_enum(_BREAKER_FROM_MESSAGE, state.breaker, "services.breaker"),
                last_error=state.last_error,
            )
            for state in message.services
        ),
        entry_count=message.entry_count,
        latent_bytes=message.latent_bytes,
        joined_requests=message.joined_requests,
        block_cache=(
            _block_cache_from_message(message.block_cache)
            if message.HasField("block_cache")
            else None
        ),
        drift=drift_report_from_message(message.drift) if message.HasField("drift") else None,
    )


def orchestrator_capabilities_to_message(
    capabilities: OrchestratorCapabilities,
) -> orchestrator_pb2.GetCapabilitiesResponse:
    """The message of a replica's policy and limits."""
    return orchestrator_pb2.GetCapabilitiesResponse(
        version=capabilities.version,
        policy_version=capabilities.policy_version,
        default_cache_mode=cache_mode_to_message(capabilities.default_cache_mode),
        max_prompt_bytes=capabilities.max_prompt_bytes,
        model_id=capabilities.model_id,
        default_steps=capabilities.default_steps,
        max_steps=capabilities.max_steps,
        donor_frames=capabilities.donor_frames,
        frame_rate=capabilities.frame_rate,
        frame_step=capabilities.frame_step,
        max_num_frames=capabilities.max_num_frames,
    )


def orchestrator_capabilities_from_message(
    message: orchestrator_pb2.GetCapabilitiesResponse,
) -> OrchestratorCapabilities:
    """The policy and limits of a message.

    Raises:
        InvalidArgument: a mode that this version does not know.
    """
    return OrchestratorCapabilities(
        version=message.version,
        policy_version=message.policy_version,
        default_cache_mode=cache_mode_from_message(
            message.default_cache_mode, "default_cache_mode"
        ),
        max_prompt_bytes=message.max_prompt_bytes,
        model_id=message.model_id,
        default_steps=message.default_steps,
        max_steps=message.max_steps,
        donor_frames=message.donor_frames,
        frame_rate=message.frame_rate,
        frame_step=message.frame_step,
        max_num_frames=message.max_num_frames,
    )
