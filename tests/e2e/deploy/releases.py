"""Values of the releases that the tests run."""

from __future__ import annotations

from typing import Any

_PATIENT = {f"{stage}_timeout_s": 10 for stage in ("embedding", "index", "latent_kv", "gate")}
"""Deadlines of a lookup are made for idle machines."""


def small_release(model: dict[str, str], **denoise: Any) -> dict[str, Any]:
    """Values of a release of all services around a small model.

    Args:
        model: Of the section `denoise`.
        denoise: More of it.
    """
    # Nobody has calibrated random weights.
    settings = {**_PATIENT, "lookup_timeout_s": 20, "uncalibrated": "table"}
    return {
        "common": {"preStopSeconds": 1, "maxConnectionAgeSeconds": 3},
        "orchestrator": {"replicas": 1, "settings": settings},
        "embedding": {"replicas": 1},
        "denoise": {"replicas": 1, "model": model, **denoise},
    }
