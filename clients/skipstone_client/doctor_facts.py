"""What `skipstone doctor` finds out about a deployment, and what it concludes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum

from skipstone_shared.denoise_runs import DenoiseCapabilities, DenoiseStats
from skipstone_shared.embeddings import EmbeddingCapabilities
from skipstone_shared.index_entries import IndexEntry, IndexStats
from skipstone_shared.orchestration import OrchestratorCapabilities, OrchestratorStats
from skipstone_shared.stored_entries import StoreStats


class Condition(Enum):
    """How a service met the doctor."""

    SERVING = "serving"
    NOT_SERVING = "not_serving"
    UNREACHABLE = "unreachable"
    HANGING = "hanging"
    TLS = "tls"
    REFUSED = "refused"
    FAILING = "failing"


class Severity(Enum):
    """How bad a finding is: requests fail or reuse is lost, or it may come to that."""

    PROBLEM = "problem"
    WARNING = "warning"


@dataclasses.dataclass(frozen=True, slots=True)
class ServiceFacts:
    """One service as it answered.

    Attributes:
        service: Short name: ``latent_kv``.
        target: gRPC target that was asked.
        condition: How it met the call.
        error: What gRPC or the service said, empty when it serves.
        version: Its version of Skipstone, empty when not told.
        clock_offset_s: Its clock minus this machine's, in seconds; None when not told.
        answer_s: Seconds its answer took.
        disk_free_bytes: Bytes free on the disk of its data; None where it keeps none.
        disk_size_bytes: Bytes that there are.
        certificates_left_s: Setting of a certificate to the seconds until it ends; negative:
            since it ended.
    """

    service: str
    target: str
    condition: Condition
    error: str = ""
    version: str = ""
    clock_offset_s: float | None = None
    answer_s: float = 0.0
    disk_free_bytes: int | None = None
    disk_size_bytes: int | None = None
    certificates_left_s: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class DeploymentFacts:
    """All that was found out; None and empty where it could not be, or was not asked.

    Attributes:
        namespace: Whose counts were asked.
        services: Every service that was asked, the orchestrator first.
        stats: What the orchestrator has served.
        capabilities: Policy of the orchestrator.
        reuse_reasons: Reasons that ``Explain`` gave for entries that are stored.
        embedding: Models of the embedding service.
        index: Counts of vector_index.
        index_sample: Some entries of vector_index.
        store: Counts of latent_kv.
        denoise: The executor's model.
        denoise_stats: The executor's counts.
        own_certificates_left_s: Option of a certificate that the doctor calls with to the seconds
            until it ends.
    """

    namespace: str
    services: tuple[ServiceFacts, ...]
    stats: OrchestratorStats | None = None
    capabilities: OrchestratorCapabilities | None = None
    reuse_reasons: tuple[str, ...] = ()
    embedding: EmbeddingCapabilities | None = None
    index: IndexStats | None = None
    index_sample: tuple[IndexEntry, ...] = ()
    store: StoreStats | None = None
    denoise: DenoiseCapabilities | None = None
    denoise_stats: DenoiseStats | None = None
    own_certificates_left_s: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong.

    Attributes:
        check: Short name of what was checked, the same in every version: ``breaker``.
        severity: How bad it is.
        service: Which service it is about; empty for the deployment.
        message: What is wrong.
        action: What to do.
    """

    check: str
    severity: Severity
    service: str
    message: str
    action: str


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """What the doctor says."""

    healthy: bool
    services: tuple[ServiceFacts, ...]
    findings: tuple[Finding, ...]
