"""The calibration file: what reuse was measured to cost with one encoder, reranker and model.

`skipstone calibrate` writes it and the orchestrator's policy reads it. A file is a statement about
three things at once: scores belong to a reranker, candidates to an encoder, and what a depth costs
to a model; so it names all three, and with others it says nothing.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from skipstone_shared.latents import LatentFingerprint, canonical_hash
from skipstone_shared.orchestration import ReuseKind

SCHEMA_VERSION: Final = 1
"""Changes when a reader of the former version would misread a file."""

MIN_PAIRS: Final = 20
"""Pairs without which a tier cannot be open: of fewer, no bound is worth its name."""

_Share = Annotated[float, Field(ge=0.0, le=1.0)]


class CalibrationError(ValueError):
    """A calibration file cannot be used; the text says which file and why."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Interval(_Record):
    """A measured number with the bounds of its 95 % confidence interval.

    Attributes:
        value: What was measured: a share or a mean.
        low: Lower bound.
        high: Upper bound.
        n: How many measurements it rests on.
    """

    value: float
    low: float
    high: float
    n: int = Field(ge=0)

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if not self.low <= self.value <= self.high:
            raise ValueError("low, value and high do not ascend")
        return self


class ServiceIds(_Record):
    """What a calibration holds for.

    Attributes:
        embedder_id: `model_id` that the embedding service tells.
        reranker_id: `reranker_id` that it tells; empty: similarity itself was the score.
        model_hash: Hash of the denoiser's weights as the executor's fingerprint has it. A path or a
            name would not do: the one differs by machine, the other stays when the weights change.
    """

    embedder_id: str
    reranker_id: str
    model_hash: str

    def differences(self, other: ServiceIds) -> tuple[str, ...]:
        """Names of the fields in which two differ."""
        names = type(self).model_fields
        return tuple(name for name in names if getattr(self, name) != getattr(other, name))


def model_hash(fingerprint: LatentFingerprint) -> str:
    """Hash of the denoiser of a fingerprint, as `ServiceIds` has it."""
    return canonical_hash(fingerprint.weights_hash)


class Measurement(_Record):
    """Who measured, when, how and on what."""

    by: str
    at: str
    command: str
    skipstone: str
    model_name: str
    source: str
    """Where the prompts came from."""
    pairs: int = Field(ge=0)
    num_inference_steps: int = Field(ge=1)
    guidance_scale: float
    drift: str
    """What drift is and its unit."""
    wrong: str = ""
    """How a picture was judged; empty: it was not."""


class Scores(_Record):
    """Distribution of the scores of pairs that must not be reused."""

    n: int = Field(ge=0)
    p50: float
    p90: float
    p99: float
    highest: float


class CalibratedTier(_Record):
    """A depth, the score from which it may be taken, and what it was measured to cost there.

    Attributes:
        kind: How the donor's latent is used.
        same_seed: Whether it is for donors of the request's own seed; those of others are measured
            apart, since they know nothing of the request's noise.
        level: Noise level the run resumes at, 0 to 1.
        executed_steps: Steps that the measured runs executed.
        above: Scores above it may resume there.
        pairs: Pairs above it.
        wrong: Share of pictures that show something else than asked, where the full run does not.
            None: no checker for this model.
        drift: Mean distance from the request's own full run; 1 is that of two seeds of one prompt.
        diversity: Distance among pictures of one prompt and many seeds from one donor, over that
            among full runs. None: for donors of the same seed, where it cannot suffer.
        open: Whether the tier may be used at all.
        closed_because: One sentence, when it may not.
    """

    kind: ReuseKind
    same_seed: bool
    level: float = Field(gt=0.0, lt=1.0)
    executed_steps: int = Field(ge=1)
    above: _Share
    pairs: int = Field(ge=0)
    wrong: Interval | None
    drift: Interval | None
    diversity: Interval | None
    open: bool
    closed_because: str = ""

    @model_validator(mode="after")
    def _check_open(self) -> Self:
        if self.open and (self.drift is None or self.pairs < MIN_PAIRS):
            raise ValueError(f"an open tier needs a measured drift and at least {MIN_PAIRS} pairs")
        if self.open == bool(self.closed_because):
            raise ValueError("closed_because belongs to closed tiers and to all of them")
        return self


class Bucket(_Record):
    """What was measured of the pairs within a range of scores at one depth; for the reader."""

    kind: ReuseKind
    same_seed: bool
    level: float = Field(gt=0.0, lt=1.0)
    score_from: _Share
    score_to: _Share
    wrong: Interval | None
    drift: Interval


class PlainRun(_Record):
    """A run of few steps from noise: what the same cost buys without any donor.

    Attributes:
        steps: Its steps.
        drift: Mean distance from the full run of the same noise, in the unit of a tier's drift.
        wrong: Share of its pictures that are wrong where the full run's are not.
    """

    steps: int = Field(ge=1)
    drift: Interval
    wrong: Interval | None


class Calibration(_Record):
    """A calibration file.

    Attributes:
        services: What it holds for.
        measured: How it came about.
        random_scores: Of pairs of unrelated prompts: what chance alone reaches.
        edited_scores: Of pairs that differ in one thing that a picture shows; None: none were
            known to.
        tiers: At most one for each kind, seed and level.
        plain_runs: What tiers are compared with, by ascending steps.
        buckets: The measurements by score, for the reader.
    """

    schema_version: Literal[1]
    services: ServiceIds
    measured: Measurement
    random_scores: Scores
    edited_scores: Scores | None
    tiers: tuple[CalibratedTier, ...]
    plain_runs: tuple[PlainRun, ...]
    buckets: tuple[Bucket, ...] = ()

    @model_validator(mode="after")
    def _check_tiers(self) -> Self:
        places = [(tier.kind, tier.same_seed, tier.level) for tier in self.tiers]
        if len(set(places)) != len(places):
            raise ValueError("two tiers have the same kind, seed and level")
        steps = [run.steps for run in self.plain_runs]
        if steps != sorted(set(steps)):
            raise ValueError("plain_runs do not ascend")
        return self

    @property
    def content_hash(self) -> str:
        """16 hexadecimal digits that change with everything in the file but its layout."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def as_json(self) -> str:
        """The text of the file."""
        return self.model_dump_json(indent=1) + "\n"


def read_calibration(path: Path) -> Calibration:
    """Reads a calibration file.

    Raises:
        CalibrationError: It cannot be read, is of another version, or says what cannot be.
    """
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CalibrationError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise CalibrationError(f"{path} is not JSON: {error}") from None
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version != SCHEMA_VERSION:
        raise CalibrationError(
            f"{path} has schema_version {version!r}, this release reads {SCHEMA_VERSION}; "
            "make it anew with `skipstone calibrate`"
        )
    try:
        return Calibration.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise CalibrationError(f"{path}: {place}: {first['msg']}") from None
