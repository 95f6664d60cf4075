"""What is wrong with the models of a deployment: of the search, the gate and the calibration."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from skipstone_client.doctor_facts import DeploymentFacts, Finding, Severity
from skipstone_shared.frame_samples import frames_model_id

_NOT_CALIBRATED = ("NO_CALIBRATION", "CALIBRATION_MISMATCH")


def _models(facts: DeploymentFacts) -> Iterator[Finding]:
    if facts.embedding is None or not facts.index_sample:
        return
    by_frames = facts.capabilities is not None and facts.capabilities.donor_frames > 0
    current = facts.embedding.model_id
    searched = frames_model_id(current) if by_frames else current
    others = {e.embedding_model_id for e in facts.index_sample} - {searched, ""}
    if others:
        alone = all(e.embedding_model_id not in ("", searched) for e in facts.index_sample)
        yield Finding(
            "embedding_model",
            Severity.WARNING,
            "vector_index",
            f"entries of {', '.join(sorted(others))} are in the index, and vectors of {searched} "
            "are searched: only the very same request finds them"
            + (" (all that were looked at)" * alone),
            "new requests fill the index again; go back to the old model (embedding service) or "
            "donor_vectors (orchestrator), or delete the old entries to free their bytes",
        )


def _frames(facts: DeploymentFacts) -> Iterator[Finding]:
    if facts.embedding is None or facts.capabilities is None or not facts.capabilities.donor_frames:
        return
    missing = {"image", "frames"} - set(facts.embedding.input_kinds)
    if missing:
        yield Finding(
            "donor_vectors",
            Severity.PROBLEM,
            "embedding",
            f"the orchestrator finds donors by frames, and {facts.embedding.model_id} of the "
            f"embedding service reads no {' and no '.join(sorted(missing))}: nothing new is found",
            "give the embedding service a model that sees, or set donor_vectors = prompts in the "
            "orchestrator",
        )


def _gate(facts: DeploymentFacts) -> Iterator[Finding]:
    if facts.embedding is not None and not facts.embedding.reranker_id:
        yield Finding(
            "reranker",
            Severity.WARNING,
            "embedding",
            "the embedding service has no reranker; with the default gate nothing but exact "
            "repeats is reused",
            "set the embedding service's reranker, or accept swapped prompts with "
            "gate = similarity",
        )


def _calibration(facts: DeploymentFacts) -> Iterator[Finding]:
    reasons = facts.reuse_reasons
    unfit = sorted({reason for reason in reasons if reason in _NOT_CALIBRATED})
    if unfit and all(reason in _NOT_CALIBRATED for reason in reasons):
        yield Finding(
            "calibration",
            Severity.WARNING,
            "orchestrator",
            f"stored entries are not reused by their own prompts: {', '.join(unfit)}",
            "make a calibration for these services with `skipstone calibrate` and set "
            "calibration_file; `skipstone explain` tells the details",
        )


MODEL_RULES: tuple[Callable[[DeploymentFacts], Iterator[Finding]], ...] = (
    _models,
    _frames,
    _gate,
    _calibration,
)
"""Rules that know nothing but models."""
