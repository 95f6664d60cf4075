"""What a trace tells of a generation, beside the stages that `stage_span` and `traced` make.

Never the prompt or the namespace: traces leave the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from skipstone_orchestrator.journal import DENOISE, RESUME
from skipstone_shared.orchestration import Provenance
from skipstone_shared.tracing import Span, current_span, stage_span


def describe_request(provenance: Provenance) -> None:
    """Writes where a result comes from on the span of its request."""
    span = current_span()
    if span is None:
        return
    span.set("skipstone.tier", provenance.tier.value)
    span.set("skipstone.reason", provenance.reason)
    span.set("skipstone.skip_steps", provenance.skip_steps)
    span.set("skipstone.executed_steps", provenance.executed_steps)
    span.set("skipstone.num_inference_steps", provenance.num_inference_steps)
    if provenance.joined_request_id:
        span.set("skipstone.joined_request_id", provenance.joined_request_id)
    if provenance.fallbacks:
        told = [f"{f.stage}/{f.service}/{f.reason}" for f in provenance.fallbacks]
        span.set("skipstone.fallbacks", told)


class ResumeSpan:
    """The part of a run before its first step: the executor reads the donor's latent."""

    def __init__(self, span: Span | None) -> None:
        """Takes the span, None outside of a trace or when there is no donor."""
        self._span = span

    def end(self, refusal_reason: str = "") -> None:
        """The executor has begun, or will not; only the first call counts."""
        if self._span is not None:
            self._span.end(refusal_reason)
            self._span = None


@contextmanager
def run_spans(*, resumes: bool) -> Iterator[ResumeSpan]:
    """Spans of one run of the executor: `denoise`, and `resume` under it."""
    with stage_span(DENOISE) as span:
        resume = ResumeSpan(span.child(RESUME) if span is not None and resumes else None)
        try:
            yield resume
        finally:
            resume.end()
