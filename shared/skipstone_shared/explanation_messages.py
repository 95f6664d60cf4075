"""``orchestration.Explanation`` <-> messages of ``skipstone/orchestrator/v1``."""

from __future__ import annotations

from skipstone.orchestrator.v1 import orchestrator_pb2
from skipstone_shared.generation_messages import (
    duration_from_message,
    duration_to_message,
    params_from_message,
    params_to_message,
)
from skipstone_shared.orchestration import Explanation
from skipstone_shared.orchestration_answer_messages import (
    decision_from_message,
    decision_to_message,
)
from skipstone_shared.orchestration_messages import cache_mode_from_message, cache_mode_to_message


def explanation_to_message(told: Explanation) -> orchestrator_pb2.ExplainResponse:
    """The message of an explanation."""
    return orchestrator_pb2.ExplainResponse(
        params=params_to_message(told.params),
        decision=decision_to_message(told.decision),
        explanation=told.explanation,
        num_inference_steps=told.num_inference_steps,
        start_sigma=told.start_sigma,
        stage_times={
            stage: duration_to_message(seconds) for stage, seconds in told.stage_times_s.items()
        },
        embedding_model_id=told.embedding_model_id,
        cache_mode=cache_mode_to_message(told.cache_mode),
    )


def explanation_from_message(message: orchestrator_pb2.ExplainResponse) -> Explanation:
    """The explanation of a message.

    Raises:
        InvalidArgument: a tier, mode or kind of reuse that this version does not know.
    """
    return Explanation(
        params=params_from_message(message.params),
        decision=decision_from_message(message.decision),
        explanation=message.explanation,
        num_inference_steps=message.num_inference_steps,
        cache_mode=cache_mode_from_message(message.cache_mode, "cache_mode"),
        start_sigma=message.start_sigma if message.HasField("start_sigma") else None,
        stage_times_s={
            stage: duration_from_message(duration)
            for stage, duration in message.stage_times.items()
        },
        embedding_model_id=message.embedding_model_id,
    )
