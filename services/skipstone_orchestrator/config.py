"""Settings of the orchestrator."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from skipstone_orchestrator.audits import AuditSettings
from skipstone_orchestrator.cache_options import MAX_TOP_K, CacheDefaults
from skipstone_orchestrator.calibration import (
    BUNDLED,
    CalibrationLimits,
    Policies,
    Uncalibrated,
    load_calibration,
)
from skipstone_orchestrator.deadlines import LookupLimits
from skipstone_orchestrator.drift_guard import DriftLimits
from skipstone_orchestrator.pools import check_pools
from skipstone_orchestrator.rate_limits import check_rates
from skipstone_orchestrator.reuse_policy import TABLE_STEPS, ReusePolicy, Tables, Tier
from skipstone_shared.config import CallerSettings, Port
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.frame_samples import MAX_FRAMES
from skipstone_shared.orchestration import CacheMode, ReuseKind
from skipstone_shared.ports import DEFAULT_PORTS, default_target
from skipstone_shared.stored_entries import MAX_LEASE_S, MIN_LEASE_S

_LEAST_OF_PROMPTS = 0.3
_PUBLISHED = ("0.95:25", "0.9:20", "0.85:15", "0.75:10", "0.65:5")


class OrchestratorSettings(CallerSettings):
    """The orchestrator: build_query, lookup, resume, denoise, save, with fallback per request."""

    service_name: ClassVar[str] = "orchestrator"

    port: Port = DEFAULT_PORTS["orchestrator"]
    """TCP port to listen on; 0 takes any free one and logs it."""

    embedding_target: str = default_target("embedding")
    """gRPC target of the embedding service."""

    vector_index_target: str = default_target("vector_index")
    """gRPC target of the vector_index service."""

    latent_kv_target: str = default_target("latent_kv")
    """gRPC target of the latent_kv service; the one that the executor is configured with."""

    denoise_target: str = default_target("denoise")
    """gRPC target of the denoise executor."""

    cache_mode: Literal["read_write", "read_only", "write_only", "off"] = "read_write"
    """What a request may do with the cache when it does not say."""

    top_k: int = Field(default=8, ge=1, le=MAX_TOP_K)
    """Candidates of requests that give no number."""

    donor_choices: int = Field(default=1, ge=1, le=MAX_TOP_K)
    """Among how many of the best candidates that may donate the donor is drawn at random, each at
    its own depth; 1 takes the best. More give more diverse pictures, and tell less about what is
    stored."""

    donor_margin: float = Field(default=0.02, ge=0.0, le=1.0)
    """Most that the score of a donor that is drawn may lie below that of the best."""

    gate: Literal["rerank", "similarity"] = "rerank"
    """What decides behind the search: rerank asks the reranker of the embedding service, and where
    it has none or it fails there is no approximate hit; similarity leaves it to the search alone,
    which takes a swap for a rewording."""

    donor_vectors: Literal["prompts", "frames"] = "prompts"
    """By what donors are found: by their prompts, or by frames of what they show, for which the
    embedding service needs a model that sees. The search only shortlists: what is taken is up to
    the gate, which compares prompts, so frames need gate rerank. Entries saved under the other
    setting, or without frames, are found by nobody but the very same request."""

    donor_frames: int = Field(default=8, ge=1, le=MAX_FRAMES)
    """Frames of a clip that are looked at with donor_vectors frames, evenly spaced."""

    calibration_file: str = BUNDLED
    """File of `skipstone calibrate` that says which score may skip how much: bundled is that of the
    default encoder and gate on the bundled model, empty is none."""

    uncalibrated: Uncalibrated = "shallow"
    """What holds where no calibration fits: shallow uses donors down to noise level 0.8 when only
    the model is another one, and else none; closed uses none; table follows similarity_table."""

    max_calibrated_drift: float = Field(default=1.25, ge=0.0)
    """Largest upper bound of the drift of a calibrated tier, as a distance of pixels; 1 is that of
    two pictures of one prompt with two seeds."""

    min_seed_diversity: float = Field(default=0.95, ge=0.0, le=2.0)
    """Least diversity over seeds, as a share of that without a cache and by its lower bound, of a
    calibrated tier that serves a prompt which was answered with another seed before."""

    beat_fewer_steps: bool = True
    """Whether a calibrated tier must do better than plain runs of as many steps."""

    similarity_table: tuple[str, ...] = _PUBLISHED
    """Tiers as score:k, by falling score: a score above it may skip k of 50 steps at shift 1. Used
    where no calibration is."""

    sigma_floor: float = Field(default=0.5, ge=0.0, lt=1.0)
    """Noise level, 0 to 1, below which nothing is skipped."""

    min_similarity: float | None = Field(default=None, ge=0.0, le=1.0)
    """Least cosine similarity of a donor; requests can only raise it. Unset: 0.3, since the gate
    decides and a prompt and its rewrite with much detail may have 0.4; 0 with donor_vectors frames,
    where each model has a range of its own (CLIP 0.2 to 0.35)."""

    reuse_kind: Literal["renoise", "trajectory"] = "renoise"
    """How a donor's latent is used when a request does not say: renoise mixes its clean latent with
    noise of the request's seed, trajectory goes on from its snapshot."""

    max_donor_depth: int = Field(default=0, ge=0, le=100)
    """Most resumed runs between a donor and noise; 0: only full runs donate."""

    key_levels: tuple[float, ...] = (0.9, 0.8, 0.7, 0.6, 0.5)
    """Noise levels whose snapshots are stored when donors are used by trajectory."""

    max_drift: float = Field(default=0.8, ge=0.0)
    """Largest drift of latents that is accepted: 0 is the full run itself, about 1 is something
    that has nothing in common with it. A tier whose audits have an upper confidence bound above
    this closes, and a donor with one audit above it is set aside."""

    drift_audit_share: float = Field(default=0.01, ge=0.0, le=1.0)
    """Share of the hits that is run again in full while the executor is idle, to measure drift; 0
    measures none."""

    drift_min_audits: int = Field(default=8, ge=1)
    """Audits of a tier before drift may close it, or open it again."""

    drift_window: int = Field(default=64, ge=1)
    """Latest audits of a tier that count. At least drift_min_audits."""

    drift_audit_queue_size: int = Field(default=16, ge=1)
    """Audits that may wait for an idle executor; more are dropped and counted."""

    drift_audit_poll_s: float = Field(default=1.0, gt=0.0)
    """Seconds between two looks at whether the executor is idle, or has become busy."""

    store_prompts: bool = True
    """Whether the index keeps the prompt of an entry, or only its hash."""

    pools: dict[str, str] = Field(default_factory=dict)
    """Namespaces that share what they save, each with the name of its pool, such as {"a": "both",
    "b": "both"}. Others share nothing."""

    rate_limits: dict[str, float] = Field(default_factory=dict)
    """Requests per second (generate, lookup, explain, save) that a namespace may make of this
    replica, such as {"gallery": 5, "*": 50}; * stands for each that is not named. Those without
    are not limited."""

    rate_burst_s: float = Field(default=2.0, ge=0.0)
    """Seconds of its rate that a quiet namespace may use at once; at least one request."""

    prompt_key_file: Path | None = None
    """File with a secret of at least 32 bytes, the same for every replica: prompts are then saved
    only as hashes that need it to be told. None saves them as store_prompts says. Another wording
    of a stored prompt then finds no donor."""

    embedding_timeout_s: float = Field(default=0.25, gt=0.0)
    """Deadline of a prompt's vector in a lookup, in seconds. A busy CPU needs a tenth."""

    index_timeout_s: float = Field(default=0.1, gt=0.0)
    """Deadline of a search, in seconds."""

    latent_kv_timeout_s: float = Field(default=0.1, gt=0.0)
    """Deadline of reading an entry without its bytes, in seconds."""

    gate_timeout_s: float = Field(default=0.1, gt=0.0)
    """Deadline of scoring candidates behind the search, in seconds."""

    lookup_timeout_s: float = Field(default=0.6, gt=0.0)
    """Most that all stages of a lookup may take together, in seconds."""

    plan_timeout_s: float = Field(default=10.0, gt=0.0)
    """Deadline of planning a run, in seconds; plans are kept, so few requests need one."""

    run_timeout_s: float = Field(default=3600.0, gt=0.0)
    """Deadline of a run of the executor, in seconds; the caller's own holds too."""

    call_timeout_s: float = Field(default=5.0, gt=0.0)
    """Deadline of every other call, in seconds: saves, lists, deletes."""

    frames_timeout_s: float = Field(default=30.0, gt=0.0)
    """Deadline of a vector of frames at a save, in seconds: a model that sees takes its time."""

    breaker_failures: int = Field(default=2, ge=1)
    """Failures in a row that open a breaker; a refused connection opens it at once."""

    breaker_open_s: float = Field(default=5.0, gt=0.0)
    """Seconds until an open breaker tries one request although no probe says that it should."""

    probe_timeout_s: float = Field(default=1.0, gt=0.0)
    """Seconds after which a background probe of a service counts as failed."""

    probe_interval_s: float = Field(default=5.0, gt=0.0)
    """Seconds between probes of a service that answers; a failed call probes it at once."""

    sick_probe_interval_s: float = Field(default=0.1, gt=0.0)
    """Seconds between probes of a service that does not: how soon its return is noticed."""

    return_wait_s: float = Field(default=0.2, ge=0.0)
    """Most that a request waits for a service that has begun to listen again, in seconds."""

    save_queue_size: int = Field(default=256, ge=1)
    """Saves, discards and repairs that may wait; more are dropped and counted."""

    late_write_s: float = Field(default=5.0, gt=0.0)
    """Seconds until a snapshot of an abandoned run must have reached latent_kv."""

    save_drain_s: float = Field(default=10.0, ge=0.0)
    """Seconds that waiting saves get at shutdown."""

    lease_s: float = Field(default=600.0, ge=MIN_LEASE_S, le=MAX_LEASE_S)
    """Seconds until snapshots of a run that is never saved are removed. Longer than a run."""

    follow_evictions: bool = True
    """Whether this replica follows what latent_kv removes and takes the vectors out of the index.
    One replica that does is enough; latent_kv bounds how many may (max_watchers)."""

    reconcile_interval_s: float = Field(default=3600.0, ge=0.0)
    """Seconds between passes that compare latent_kv with vector_index and remove what only one of
    them has; 0: only when removals may have been missed."""

    reconcile_entries_per_s: float = Field(default=200.0, gt=0.0)
    """Entries that a pass compares per second at most."""

    reconcile_grace_s: float = Field(default=300.0, ge=0.0)
    """Seconds that a pass gives an entry without a vector: one that is used or gets its vector
    meanwhile stays."""

    reconcile_removes_entries: bool = True
    """Whether a pass removes committed entries without a vector from latent_kv. No for a store
    that others use for entries of their own; they are evicted like all."""

    plan_cache_size: int = Field(default=256, ge=1)
    """Plans kept, one per set of parameters without prompt and seed."""

    @field_validator("calibration_file")
    @classmethod
    def _check_calibration(cls, name: str) -> str:
        load_calibration(name)
        return name

    @field_validator("pools")
    @classmethod
    def _check_pools(cls, pools: dict[str, str]) -> dict[str, str]:
        try:
            check_pools(pools)
        except InvalidArgument as error:
            raise ValueError(str(error)) from None
        return pools

    @field_validator("rate_limits")
    @classmethod
    def _check_rates(cls, rates: dict[str, float]) -> dict[str, float]:
        try:
            check_rates(rates)
        except InvalidArgument as error:
            raise ValueError(str(error)) from None
        return rates

    @field_validator("similarity_table")
    @classmethod
    def _check_table(cls, table: tuple[str, ...]) -> tuple[str, ...]:
        tiers = parse_table(table)
        if not tiers:
            raise ValueError("at least one row is needed")
        pairs = list(itertools.pairwise(tiers))
        if not all(a.above > b.above and a.level < b.level for a, b in pairs):
            raise ValueError("scores and steps must both fall from row to row")
        return table

    @field_validator("key_levels")
    @classmethod
    def _check_levels(cls, levels: tuple[float, ...]) -> tuple[float, ...]:
        if not all(0.0 < level < 1.0 for level in levels):
            raise ValueError("noise levels must lie between 0 and 1")
        return levels

    @property
    def default_mode(self) -> CacheMode:
        """Cache mode of requests that give none."""
        return CacheMode(self.cache_mode)

    @property
    def sampled_frames(self) -> int:
        """Frames by which a run is found; 0: by its prompt."""
        return self.donor_frames if self.donor_vectors == "frames" else 0

    def cache_defaults(self) -> CacheDefaults:
        """What holds for requests that do not say."""
        return CacheDefaults(self.default_mode, self.top_k, self.donor_choices, self.donor_margin)

    def drift_limits(self) -> DriftLimits:
        """What the drift guard asks of a tier."""
        return DriftLimits(self.max_drift, self.drift_min_audits, self.drift_window)

    def audit_settings(self) -> AuditSettings:
        """How audits are made."""
        return AuditSettings(
            share=self.drift_audit_share,
            queue_size=self.drift_audit_queue_size,
            poll_s=self.drift_audit_poll_s,
            timeout_s=self.call_timeout_s,
            lease_s=self.lease_s,
        )

    @model_validator(mode="after")
    def _enough_window(self) -> Self:
        if self.drift_window < self.drift_min_audits:
            raise ValueError("drift_window must be at least drift_min_audits")
        return self

    @model_validator(mode="after")
    def _frames_need_a_gate(self) -> Self:
        if self.donor_vectors == "frames" and self.gate != "rerank":
            raise ValueError(
                "donor_vectors frames needs gate rerank: how near a prompt is to a picture says "
                "nothing about how much of its run can be skipped"
            )
        return self

    @property
    def _least_similarity(self) -> float:
        if self.min_similarity is not None:
            return self.min_similarity
        return 0.0 if self.sampled_frames else _LEAST_OF_PROMPTS

    def policy(self) -> ReusePolicy:
        """The reuse policy these settings make."""
        return ReusePolicy(
            tables=Tables.alike(parse_table(self.similarity_table)),
            sigma_floor=self.sigma_floor,
            min_similarity=self._least_similarity,
            default_kind=ReuseKind(self.reuse_kind),
            max_donor_depth=self.max_donor_depth,
            key_levels=self.key_levels,
        )

    def policies(self) -> Policies:
        """The reuse policy by the services that are connected.

        Raises:
            CalibrationError: calibration_file cannot be used.
        """
        return Policies(
            self.policy(),
            load_calibration(self.calibration_file),
            CalibrationLimits(
                max_drift=self.max_calibrated_drift,
                min_diversity=self.min_seed_diversity,
                beat_fewer_steps=self.beat_fewer_steps,
                otherwise=self.uncalibrated,
            ),
        )

    def lookup_limits(self) -> LookupLimits:
        """The deadlines of a lookup."""
        return LookupLimits(
            embedding_s=self.embedding_timeout_s,
            index_s=self.index_timeout_s,
            store_s=self.latent_kv_timeout_s,
            gate_s=self.gate_timeout_s,
            total_s=self.lookup_timeout_s,
        )


def parse_table(rows: tuple[str, ...]) -> tuple[Tier, ...]:
    """The tiers of rows such as `0.95:25`.

    Raises:
        ValueError: A row is not score:k with a score of 0 to 1 and a k of 1 to 49.
    """
    return tuple(_parse_row(row) for row in rows)


def _parse_row(row: str) -> Tier:
    score, _, steps = row.partition(":")
    try:
        above, skip_steps = float(score), int(steps)
    except ValueError:
        above, skip_steps = -1.0, 0
    if not (0.0 <= above <= 1.0 and 1 <= skip_steps < TABLE_STEPS):
        raise ValueError(f"row {row!r} is not score:k, for example 0.95:25")
    return Tier.of_50(above, skip_steps)
