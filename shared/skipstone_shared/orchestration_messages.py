"""Dataclasses of ``orchestration`` <-> messages of ``skipstone/orchestrator/v1``: requests, events.

What was decided, stored and counted is in ``orchestration_answer_messages``.
"""

from __future__ import annotations

from collections.abc import Iterator

from skipstone.orchestrator.v1 import orchestrator_pb2
from skipstone_shared.artifact_messages import ArtifactReader, artifact_chunks
from skipstone_shared.enum_messages import enum_member, optional_enum, required_enum
from skipstone_shared.generation import Artifact, StepProgress
from skipstone_shared.generation_messages import (
    artifact_header,
    block_cache_report_from_message,
    block_cache_report_to_message,
    duration_from_message,
    duration_to_message,
    params_from_message,
    params_to_message,
    progress_from_message,
    progress_to_message,
)
from skipstone_shared.optional_fields import new_message, set_fields
from skipstone_shared.orchestration import (
    CacheMode,
    CacheOptions,
    Fallback,
    GenerateAccepted,
    GenerateEvent,
    GenerateFinished,
    GenerateStarted,
    HitTier,
    Provenance,
    ReuseKind,
)

_MODE_TO_MESSAGE: dict[CacheMode, orchestrator_pb2.CacheMode.ValueType] = {
    CacheMode.READ_WRITE: orchestrator_pb2.CACHE_MODE_READ_WRITE,
    CacheMode.READ_ONLY: orchestrator_pb2.CACHE_MODE_READ_ONLY,
    CacheMode.WRITE_ONLY: orchestrator_pb2.CACHE_MODE_WRITE_ONLY,
    CacheMode.OFF: orchestrator_pb2.CACHE_MODE_OFF,
}
_MODE_FROM_MESSAGE: dict[int, CacheMode] = {m: mode for mode, m in _MODE_TO_MESSAGE.items()}

_TIER_TO_MESSAGE: dict[HitTier, orchestrator_pb2.HitTier.ValueType] = {
    HitTier.EXACT: orchestrator_pb2.HIT_TIER_EXACT,
    HitTier.APPROXIMATE: orchestrator_pb2.HIT_TIER_APPROXIMATE,
    HitTier.MISS: orchestrator_pb2.HIT_TIER_MISS,
}
_TIER_FROM_MESSAGE: dict[int, HitTier] = {m: tier for tier, m in _TIER_TO_MESSAGE.items()}

_REUSE_TO_MESSAGE: dict[ReuseKind, orchestrator_pb2.ReuseKind.ValueType] = {
    ReuseKind.TRAJECTORY: orchestrator_pb2.REUSE_KIND_TRAJECTORY,
    ReuseKind.RENOISE: orchestrator_pb2.REUSE_KIND_RENOISE,
}
_REUSE_FROM_MESSAGE: dict[int, ReuseKind] = {m: kind for kind, m in _REUSE_TO_MESSAGE.items()}

_OPTIONAL_CACHE_FIELDS = (
    "allow_exact",
    "allow_approximate",
    "min_similarity",
    "max_skip_steps",
    "top_k",
    "donor_choices",
    "donor_margin",
)


def cache_mode_to_message(mode: CacheMode | None) -> orchestrator_pb2.CacheMode.ValueType:
    """The number of a mode; unspecified for None.

    Raises:
        InvalidArgument: no mode.
    """
    if mode is None:
        return orchestrator_pb2.CACHE_MODE_UNSPECIFIED
    return _MODE_TO_MESSAGE[enum_member(CacheMode, mode, "cache.mode")]


def cache_mode_from_message(number: int, field: str) -> CacheMode:
    """The mode of a number.

    Raises:
        InvalidArgument: unspecified, or a mode that this version does not know.
    """
    return required_enum(_MODE_FROM_MESSAGE, number, field)


def tier_to_message(tier: HitTier) -> orchestrator_pb2.HitTier.ValueType:
    """The number of a tier."""
    return _TIER_TO_MESSAGE[tier]


def tier_from_message(number: int) -> HitTier:
    """The tier of a number.

    Raises:
        InvalidArgument: unspecified, or a tier that this version does not know.
    """
    return required_enum(_TIER_FROM_MESSAGE, number, "tier")


def reuse_kind_to_message(kind: ReuseKind | None) -> orchestrator_pb2.ReuseKind.ValueType:
    """The number of a kind of reuse; unspecified for None.

    Raises:
        InvalidArgument: no kind.
    """
    if kind is None:
        return orchestrator_pb2.REUSE_KIND_UNSPECIFIED
    return _REUSE_TO_MESSAGE[enum_member(ReuseKind, kind, "cache.reuse_kind")]


def reuse_kind_from_message(number: int, field: str = "reuse_kind") -> ReuseKind | None:
    """The kind of reuse of a number; None for unspecified.

    Raises:
        InvalidArgument: a kind that this version does not know.
    """
    return optional_enum(_REUSE_FROM_MESSAGE, number, field)


def cache_options_to_message(options: CacheOptions) -> orchestrator_pb2.CacheOptions:
    """The message of cache options.

    Raises:
        InvalidArgument: a value that cannot be sent.
    """
    message = new_message(
        orchestrator_pb2.CacheOptions,
        mode=cache_mode_to_message(options.mode),
        key_steps=options.key_steps,
        reuse_kind=reuse_kind_to_message(options.reuse_kind),
    )
    set_fields(message, options, _OPTIONAL_CACHE_FIELDS)
    if options.reproducible:
        message.reproducible = True
    return message


def cache_options_from_message(message: orchestrator_pb2.CacheOptions) -> CacheOptions:
    """The cache options of a message. Ranges are checked where the policy is known, not here.

    Raises:
        InvalidArgument: a mode or kind of reuse that this version does not know.
    """
    set_fields = {field.name for field, _ in message.ListFields()}
    optional = {
        name: getattr(message, name) for name in _OPTIONAL_CACHE_FIELDS if name in set_fields
    }
    return CacheOptions(
        mode=optional_enum(_MODE_FROM_MESSAGE, message.mode, "cache.mode"),
        key_steps=tuple(message.key_steps),
        reproducible=message.reproducible,
        reuse_kind=reuse_kind_from_message(message.reuse_kind, "cache.reuse_kind"),
        **optional,
    )


def event_to_messages(event: GenerateEvent) -> Iterator[orchestrator_pb2.GenerateResponse]:
    """The messages of one event: several for an artifact, one for every other."""
    match event:
        case GenerateAccepted():
            accepted = orchestrator_pb2.GenerateAccepted(
                request_id=event.request_id, params=params_to_message(event.params)
            )
            yield orchestrator_pb2.GenerateResponse(accepted=accepted)
        case GenerateStarted():
            started = orchestrator_pb2.GenerateStarted(
                tier=tier_to_message(event.tier),
                skip_steps=event.skip_steps,
                num_inference_steps=event.num_inference_steps,
            )
            yield orchestrator_pb2.GenerateResponse(started=started)
        case StepProgress():
            yield orchestrator_pb2.GenerateResponse(step=progress_to_message(event))
        case Artifact():
            yield orchestrator_pb2.GenerateResponse(artifact=artifact_header(event))
            for chunk in artifact_chunks(event):
                yield orchestrator_pb2.GenerateResponse(artifact_data=chunk)
        case GenerateFinished():
            finished = orchestrator_pb2.GenerateFinished(
                provenance=provenance_to_message(event.provenance)
            )
            yield orchestrator_pb2.GenerateResponse(finished=finished)


class GenerateEventReader:
    """Turns the messages of one Generate into events. Not shared between threads."""

    def __init__(self) -> None:
        self._artifacts = ArtifactReader()

    def read(self, message: orchestrator_pb2.GenerateResponse) -> GenerateEvent | None:
        """The event that a message completes.

        None while an artifact is incomplete, and for a kind of event that this version does not
        know.

        Raises:
            DataCorrupt: an artifact is truncated, or does not match its checksum.
        """
        kind = message.WhichOneof("event")
        if kind == "artifact_data":
            return self._artifacts.add(message.artifact_data)
        if kind == "artifact":
            return self._artifacts.start(message.artifact)
        self._artifacts.check_complete()
        match kind:
            case "accepted":
                params = params_from_message(message.accepted.params)
                return GenerateAccepted(message.accepted.request_id, params)
            case "started":
                started = message.started
                tier = tier_from_message(started.tier)
                return GenerateStarted(tier, started.skip_steps, started.num_inference_steps)
            case "step":
                return progress_from_message(message.step)
            case "finished":
                return GenerateFinished(provenance_from_message(message.finished.provenance))
            case _:
                return None

    def finish(self) -> None:
        """Called when the stream has ended.

        Raises:
            DataCorrupt: an artifact is truncated.
        """
        self._artifacts.check_complete()


def fallback_to_message(fallback: Fallback) -> orchestrator_pb2.Fallback:
    """The message of one thing that went wrong."""
    return orchestrator_pb2.Fallback(
        stage=fallback.stage,
        service=fallback.service,
        reason=fallback.reason,
        message=fallback.message,
        delay=duration_to_message(fallback.delay_s),
    )


def fallback_from_message(message: orchestrator_pb2.Fallback) -> Fallback:
    """The thing that went wrong of a message."""
    return Fallback(
        stage=message.stage,
        service=message.service,
        reason=message.reason,
        message=message.message,
        delay_s=duration_from_message(message.delay),
    )


def provenance_to_message(provenance: Provenance) -> orchestrator_pb2.Provenance:
    """The message of a provenance."""
    report = provenance.block_cache
    return orchestrator_pb2.Provenance(
        request_id=provenance.request_id,
        tier=tier_to_message(provenance.tier),
        reason=provenance.reason,
        donor_entry_id=provenance.donor_entry_id,
        donor_prompt=provenance.donor_prompt,
        similarity=provenance.similarity,
        rerank_score=provenance.rerank_score,
        skip_steps=provenance.skip_steps,
        executed_steps=provenance.executed_steps,
        num_inference_steps=provenance.num_inference_steps,
        start_sigma=provenance.start_sigma,
        reuse_kind=reuse_kind_to_message(provenance.reuse_kind),
        block_cache=block_cache_report_to_message(report) if report is not None else None,
        stage_times={
            stage: duration_to_message(seconds)
            for stage, seconds in provenance.stage_times_s.items()
        },
        policy_version=provenance.policy_version,
        fallbacks=[fallback_to_message(f) for f in provenance.fallbacks],
        saved_entry_id=provenance.saved_entry_id,
        cache_mode=cache_mode_to_message(provenance.cache_mode),
        seed=provenance.seed,
        compatibility_key=provenance.compatibility_key,
        snapshot_failures=provenance.snapshot_failures,
        joined_request_id=provenance.joined_request_id,
        donor_choices=provenance.donor_choices,
        reuse_tier=provenance.reuse_tier,
        passed_over=provenance.passed_over,
    )


def provenance_from_message(message: orchestrator_pb2.Provenance) -> Provenance:
    """The provenance of a message.

    Raises:
        InvalidArgument: a tier, mode or kind of reuse that this version does not know.
    """
    return Provenance(
        request_id=message.request_id,
        tier=tier_from_message(message.tier),
        reason=message.reason,
        donor_entry_id=message.donor_entry_id,
        donor_prompt=message.donor_prompt,
        similarity=message.similarity if message.HasField("similarity") else None,
        rerank_score=message.rerank_score if message.HasField("rerank_score") else None,
        skip_steps=message.skip_steps,
        executed_steps=message.executed_steps,
        num_inference_steps=message.num_inference_steps,
        start_sigma=message.start_sigma if message.HasField("start_sigma") else None,
        reuse_kind=reuse_kind_from_message(message.reuse_kind),
        block_cache=(
            block_cache_report_from_message(message.block_cache)
            if message.HasField("block_cache")
            else None
        ),
        stage_times_s={
            stage: duration_from_message(duration)
            for stage, duration in message.stage_times.items()
        },
        policy_version=message.policy_version,
        fallbacks=tuple(fallback_from_message(f) for f in message.fallbacks),
        saved_entry_id=message.saved_entry_id,
        cache_mode=cache_mode_from_message(message.cache_mode, "cache_mode"),
        seed=message.seed,
        compatibility_key=message.compatibility_key,
        snapshot_failures=dict(message.snapshot_failures),
        joined_request_id=message.joined_request_id,
        donor_choices=message.donor_choices,
        reuse_tier=message.reuse_tier,
        passed_over=message.passed_over,
    )
