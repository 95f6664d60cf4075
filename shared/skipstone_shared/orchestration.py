"""What the orchestrator is asked and what it answers, as plain dataclasses.

The messages of ``skipstone/orchestrator/v1/orchestrator.proto`` say what each field means. Times
are seconds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum

from skipstone_shared.generation import Artifact, BlockCacheReport, GenerationParams, StepProgress
from skipstone_shared.latents import LatentRef


class CacheMode(Enum):
    """What a request may do with the cache."""

    READ_WRITE = "read_write"
    READ_ONLY = "read_only"
    WRITE_ONLY = "write_only"
    OFF = "off"

    @property
    def reads(self) -> bool:
        """Whether the request looks up."""
        return self in (CacheMode.READ_WRITE, CacheMode.READ_ONLY)

    @property
    def writes(self) -> bool:
        """Whether the request saves."""
        return self in (CacheMode.READ_WRITE, CacheMode.WRITE_ONLY)


class HitTier(Enum):
    """How much of a request was served from the cache."""

    EXACT = "exact"
    APPROXIMATE = "approximate"
    MISS = "miss"


class ReuseKind(Enum):
    """How a donor's latent is used in the approximate tier."""

    TRAJECTORY = "trajectory"
    RENOISE = "renoise"


class BreakerState(Enum):
    """State of a circuit breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclasses.dataclass(frozen=True, slots=True)
class CacheOptions:
    """How one request uses the cache; None and empty take the orchestrator's configuration."""

    mode: CacheMode | None = None
    allow_exact: bool | None = None
    allow_approximate: bool | None = None
    min_similarity: float | None = None
    max_skip_steps: int | None = None
    key_steps: tuple[int, ...] = ()
    top_k: int | None = None
    reproducible: bool = False
    reuse_kind: ReuseKind | None = None
    donor_choices: int | None = None
    donor_margin: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Fallback:
    """One thing that went wrong and did not fail the request."""

    stage: str
    service: str
    reason: str
    message: str = ""
    delay_s: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Provenance:
    """Where a result comes from and what it cost."""

    request_id: str
    tier: HitTier
    reason: str
    executed_steps: int
    num_inference_steps: int
    seed: int
    cache_mode: CacheMode
    policy_version: str
    skip_steps: int = 0
    donor_entry_id: str = ""
    donor_prompt: str = ""
    similarity: float | None = None
    rerank_score: float | None = None
    start_sigma: float | None = None
    reuse_kind: ReuseKind | None = None
    block_cache: BlockCacheReport | None = None
    stage_times_s: Mapping[str, float] = dataclasses.field(default_factory=dict)
    fallbacks: tuple[Fallback, ...] = ()
    saved_entry_id: str = ""
    compatibility_key: str = ""
    snapshot_failures: Mapping[int, str] = dataclasses.field(default_factory=dict)
    joined_request_id: str = ""
    donor_choices: int = 0
    reuse_tier: str = ""
    passed_over: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class GenerateAccepted:
    """The request was accepted; ``params`` has every default and the seed filled in."""

    request_id: str
    params: GenerationParams


@dataclasses.dataclass(frozen=True, slots=True)
class GenerateStarted:
    """Lookup is over and the executor has started."""

    tier: HitTier
    skip_steps: int
    num_inference_steps: int


@dataclasses.dataclass(frozen=True, slots=True)
class GenerateFinished:
    """The request is done; always the last event."""

    provenance: Provenance


GenerateEvent = GenerateAccepted | GenerateStarted | StepProgress | Artifact | GenerateFinished
"""What a generation streams, in this order; artifacts travel in chunks but appear here whole."""


@dataclasses.dataclass(frozen=True, slots=True)
class GenerateResult:
    """A finished generation: the picture and where it comes from."""

    artifact: Artifact
    provenance: Provenance
    params: GenerationParams


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One entry that can be reused."""

    entry_id: str
    prompt: str
    seed: int
    compatibility_key: str
    snapshots: tuple[LatentRef, ...] = ()
    depth: int = 0
    create_time: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class EntryPage:
    """One page of a listing; an empty token means that it was the last."""

    entries: tuple[Entry, ...]
    next_page_token: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """One candidate that was considered; ``skip_steps`` is 0 when it was refused."""

    entry: Entry
    similarity: float
    skip_steps: int
    reason: str
    rerank_score: float | None = None
    explanation: str = ""
    reuse_tier: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class LookupDecision:
    """Whether and from where a request may be resumed; ``donor`` is None on a miss."""

    tier: HitTier
    reason: str
    policy_version: str
    compatibility_key: str
    entry_id: str
    donor: LatentRef | None = None
    skip_steps: int = 0
    reuse_kind: ReuseKind | None = None
    similarity: float | None = None
    rerank_score: float | None = None
    candidates: tuple[Candidate, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    key_steps: tuple[int, ...] = ()
    donor_frames: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Explanation:
    """What a request would get and why; ``decision.entry_id`` is its exact key."""

    params: GenerationParams
    decision: LookupDecision
    explanation: str
    num_inference_steps: int
    cache_mode: CacheMode
    start_sigma: float | None = None
    stage_times_s: Mapping[str, float] = dataclasses.field(default_factory=dict)
    embedding_model_id: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class BlockCacheCounts:
    """Block caching over all requests of a replica, transformers and guidance branches."""

    computed_steps: int = 0
    reused_steps: int = 0
    block_calls: int = 0
    block_calls_full: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class DriftTier:
    """One audited tier; ``mean`` and ``bound`` are None until enough is measured."""

    tier: str
    audits: int
    closed: bool
    mean: float | None = None
    bound: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class DriftReport:
    """What the drift guard of a replica has measured and done since its start."""

    max_drift: float
    tiers: tuple[DriftTier, ...] = ()
    audits: Mapping[str, int] = dataclasses.field(default_factory=dict)
    audit_steps: int = 0
    queued_audits: int = 0
    quarantined_donors: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class ServiceState:
    """One service behind the orchestrator."""

    service: str
    target: str
    breaker: BreakerState
    last_error: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class OrchestratorStats:
    """What was served and saved since the start of a replica; counts of -1 are unknown."""

    tiers: Mapping[HitTier, int] = dataclasses.field(default_factory=dict)
    executed_steps: int = 0
    skipped_steps: int = 0
    saved_count: int = 0
    dropped_saves: int = 0
    queued_saves: int = 0
    fallbacks: Mapping[str, int] = dataclasses.field(default_factory=dict)
    services: tuple[ServiceState, ...] = ()
    entry_count: int = -1
    latent_bytes: int = -1
    joined_requests: int = 0
    block_cache: BlockCacheCounts | None = None
    drift: DriftReport | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class OrchestratorCapabilities:
    """Services behind a replica, its policy and limits; 0 and empty when unknown."""

    version: str
    policy_version: str
    default_cache_mode: CacheMode
    max_prompt_bytes: int
    model_id: str = ""
    default_steps: int = 0
    max_steps: int = 0
    donor_frames: int = 0
    frame_rate: float = 0.0
    frame_step: int = 0
    max_num_frames: int = 0
