"""Finds out what a deployment does, from outside, in a bounded time.

Every service is asked in a thread of its own, so that one that hangs costs its own timeout once and
nobody else's answer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from skipstone_client._channel import (
    DENOISE,
    EMBEDDING,
    LATENT_KV,
    ORCHESTRATOR,
    VECTOR_INDEX,
    Service,
)
from skipstone_client.denoise import DenoiseClient
from skipstone_client.doctor_facts import (
    Condition,
    DeploymentFacts,
    Report,
    ServiceFacts,
    Severity,
)
from skipstone_client.doctor_gateway import checked_url, probe_gateway
from skipstone_client.doctor_probe import probe
from skipstone_client.doctor_rules import findings
from skipstone_client.embedding import EmbeddingClient
from skipstone_client.latent_kv import LatentKVClient
from skipstone_client.orchestrator import OrchestratorClient
from skipstone_client.vector_index import VectorIndexClient
from skipstone_shared.credentials import Credentials
from skipstone_shared.errors import SkipstoneError
from skipstone_shared.grpc_server_facts import certificate_dates
from skipstone_shared.latents import checked_namespace
from skipstone_shared.orchestration import OrchestratorStats

BACKENDS: Mapping[str, Service] = {
    service.name: service for service in (EMBEDDING, VECTOR_INDEX, LATENT_KV, DENOISE)
}
"""The services behind the orchestrator, by name."""

_SAMPLE_SIZE = 20
_EXPLAINED = 3

T = TypeVar("T")


def examine(
    target: str,
    backends: Mapping[str, str],
    *,
    direct: bool = False,
    gateway_url: str = "",
    namespace: str = "",
    timeout_s: float = 10.0,
    credentials: Credentials | None = None,
) -> Report:
    """Examines a deployment. Takes four times `timeout_s` at most.

    Args:
        target: gRPC target of the orchestrator.
        backends: Targets of services to ask directly, by name.
        direct: Whether to ask the others directly too, where the orchestrator says they are.
        gateway_url: Where the gateway is, which nobody else knows; empty: it is not asked.
        namespace: Whose entries and bytes are looked at.
        timeout_s: Most that one service may take for an answer.
        credentials: Who asks.

    Raises:
        InvalidArgument: A bad namespace or URL, or a file of the credentials cannot be used.
    """
    checked_namespace(namespace)
    with ThreadPoolExecutor(2 * len(BACKENDS) + 1) as threads:
        asking = _Asking(threads, namespace, timeout_s, credentials)
        gateway = asking.start_gateway(gateway_url)
        facts = asking.facts(target, dict(backends), direct=direct)
        if gateway is not None:
            facts = dataclasses.replace(facts, services=(*facts.services, gateway.result()))
    found = tuple(findings(facts))
    healthy = not any(finding.severity is Severity.PROBLEM for finding in found)
    return Report(healthy, facts.services, found)


class _Asking:
    """One examination."""

    def __init__(
        self,
        threads: ThreadPoolExecutor,
        namespace: str,
        timeout_s: float,
        credentials: Credentials | None,
    ) -> None:
        self._threads = threads
        self._namespace = namespace
        self._timeout_s = timeout_s
        self._credentials = credentials

    def start_gateway(self, url: str) -> Future[ServiceFacts] | None:
        """Asks the gateway, if there is one, beside all others.

        Raises:
            InvalidArgument: `url` is none.
        """
        if not url:
            return None
        checked_url(url)
        return self._threads.submit(probe_gateway, url, self._credentials, self._timeout_s)

    def facts(self, target: str, backends: dict[str, str], *, direct: bool) -> DeploymentFacts:
        """Probes all services, then asks those that serve for what only they know."""
        probes = {name: self._probe(BACKENDS[name], t) for name, t in backends.items()}
        orchestrator = self._probe(ORCHESTRATOR, target).result()
        serves = orchestrator.condition is Condition.SERVING
        with OrchestratorClient(
            target, timeout_s=self._timeout_s, credentials=self._credentials
        ) as client:
            # Together: where a service hangs, the orchestrator itself waits for it.
            stats = self._start(serves, lambda: client.get_stats(self._namespace))
            capabilities = self._start(serves, client.get_capabilities)
            reasons = self._start(serves, lambda: self._reuse_reasons(client))
            told = stats.result()
            if direct and told is not None:
                for name, found in _targets(told).items():
                    if name not in probes:
                        probes[name] = self._probe(BACKENDS[name], found)
            services = {name: future.result() for name, future in probes.items()}
            return self._with_backends(
                services,
                DeploymentFacts(
                    self._namespace,
                    (orchestrator, *(services[name] for name in BACKENDS if name in services)),
                    told,
                    capabilities.result(),
                    reasons.result() or (),
                ),
            )

    def _with_backends(
        self, services: Mapping[str, ServiceFacts], facts: DeploymentFacts
    ) -> DeploymentFacts:
        def serves(name: str) -> bool:
            return name in services and services[name].condition is Condition.SERVING

        def target(name: str) -> str:
            return services[name].target if name in services else ""

        timeout_s, credentials, namespace = self._timeout_s, self._credentials, self._namespace
        with (
            EmbeddingClient(
                target("embedding"), timeout_s=timeout_s, credentials=credentials
            ) as embedding,
            VectorIndexClient(
                target("vector_index"), timeout_s=timeout_s, credentials=credentials
            ) as index,
            LatentKVClient(
                target("latent_kv"), timeout_s=timeout_s, credentials=credentials
            ) as store,
            DenoiseClient(
                target("denoise"), timeout_s=timeout_s, credentials=credentials
            ) as denoise,
        ):
            models = self._start(serves("embedding"), embedding.get_capabilities)
            vectors = self._start(serves("vector_index"), lambda: index.get_stats(namespace))
            sample = self._start(
                serves("vector_index"),
                lambda: index.list_entries(namespace, page_size=_SAMPLE_SIZE).entries,
            )
            latents = self._start(serves("latent_kv"), lambda: store.get_stats(namespace))
            model = self._start(serves("denoise"), denoise.get_capabilities)
            runs = self._start(serves("denoise"), denoise.get_stats)
            return DeploymentFacts(
                facts.namespace,
                facts.services,
                facts.stats,
                facts.capabilities,
                facts.reuse_reasons,
                models.result(),
                vectors.result(),
                sample.result() or (),
                latents.result(),
                model.result(),
                runs.result(),
                self._own_certificates(),
            )

    def _own_certificates(self) -> dict[str, float]:
        """Seconds that the certificates have left which the doctor itself calls with."""
        me = self._credentials
        if me is None:
            return {}
        files = {"tls_cert_file": me.tls_cert_file, "tls_ca_file": me.tls_ca_file}
        now_s = time.time()
        return {name: at - now_s for name, at in certificate_dates(files)}

    def _probe(self, service: Service, target: str) -> Future[ServiceFacts]:
        return self._threads.submit(probe, service, target, self._credentials, self._timeout_s)

    def _start(self, wanted: bool, ask: Callable[[], T]) -> Future[T | None]:
        """Asks in a thread; None for what is not wanted or gets no answer: the probe says why."""

        def answer() -> T | None:
            with contextlib.suppress(SkipstoneError):
                return ask() if wanted else None
            return None

        return self._threads.submit(answer)

    def _reuse_reasons(self, client: OrchestratorClient) -> tuple[str, ...]:
        """Why stored entries would or would not donate to their own prompts."""
        page = client.list_entries(self._namespace, _EXPLAINED)
        reasons: list[str] = []
        for entry in page.entries:
            if entry.prompt:
                told = client.explain(entry.prompt, namespace=self._namespace)
                reasons += [candidate.reason for candidate in told.decision.candidates]
        return tuple(reasons)


def _targets(stats: OrchestratorStats) -> dict[str, str]:
    return {state.service: state.target for state in stats.services}
