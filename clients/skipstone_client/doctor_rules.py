"""From what was found out to what is wrong and what to do; knows no network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from skipstone_client.doctor_facts import (
    Condition,
    DeploymentFacts,
    Finding,
    ServiceFacts,
    Severity,
)
from skipstone_client.doctor_model_rules import MODEL_RULES
from skipstone_shared.orchestration import BreakerState, CacheMode

MAX_CLOCK_SKEW_S = 2.0
"""Clocks may differ by this. Leases and times to live are minutes, so more is needed to do harm."""

NEAR_QUOTA = 0.95
"""Share of a namespace's quota from which it is told."""

MAX_COUNT_DIFFERENCE = 0.1
"""Share by which the entry counts of both stores may differ: saves are always under way."""

_FEW_ENTRIES = 20
_MANY_DROPPED = 0.05

FULL_DISK = 0.02
"""Share of a disk below which there is no room for another entry of some size."""

NEARLY_FULL_DISK = 0.1
"""Share of a disk below which it is told; a rescue of a damaged file needs as much as the file."""

ENDS_SOON_S = 14 * 86_400.0
"""What a certificate must have left; those that renew themselves do it a month before."""

_CONDITIONS = {
    Condition.NOT_SERVING: "wait until it has started; if it stays so, see its log",
    Condition.UNREACHABLE: "start it, or correct the target; a firewall or network policy may "
    "stand between, or it speaks TLS and you do not (--tls-ca-file)",
    Condition.HANGING: "it accepts connections and does not answer: see its log and CPU, then "
    "restart it",
    Condition.TLS: "the two sides do not agree on TLS: check --tls-ca-file, the own certificate "
    "and whether the service has tls_cert_file",
    Condition.REFUSED: "check --token-file: the token must be in the service's access_file and "
    "have the right to read",
    Condition.FAILING: "see its log",
}


def findings(facts: DeploymentFacts) -> Iterator[Finding]:
    """Everything that is wrong, the worst first."""
    found = [finding for rule in _RULES for finding in rule(facts)]
    yield from sorted(found, key=lambda finding: finding.severity is not Severity.PROBLEM)


def _conditions(facts: DeploymentFacts) -> Iterator[Finding]:
    for service in facts.services:
        if service.condition is not Condition.SERVING:
            yield Finding(
                service.condition.value,
                Severity.PROBLEM,
                service.service,
                f"{service.service} at {service.target}: {service.error}",
                _CONDITIONS[service.condition],
            )


def _breakers(facts: DeploymentFacts) -> Iterator[Finding]:
    for state in facts.stats.services if facts.stats else ():
        if state.breaker is not BreakerState.CLOSED:
            yield Finding(
                "breaker",
                Severity.PROBLEM,
                state.service,
                f"the orchestrator does not reach {state.service} at {state.target}: "
                f"its breaker is {state.breaker.value}, the last error was {state.last_error!r}",
                "if the service answers from here, check the orchestrator's "
                f"{state.service}_target and the network between; else heal the service. The "
                "breaker closes by itself",
            )


def _versions(facts: DeploymentFacts) -> Iterator[Finding]:
    versions: dict[str, list[str]] = {}
    for service in _serving(facts):
        versions.setdefault(service.version or "unknown", []).append(service.service)
    if len(versions) > 1:
        told = ", ".join(f"{' and '.join(names)} {v}" for v, names in sorted(versions.items()))
        yield Finding(
            "versions",
            Severity.WARNING,
            "",
            f"the services run different versions: {told}",
            "finish the upgrade; versions next to each other work together meanwhile",
        )


def _clocks(facts: DeploymentFacts) -> Iterator[Finding]:
    for service in _serving(facts):
        offset = service.clock_offset_s
        # Half of the answer's time is what the measurement itself may be wrong by.
        if offset is not None and abs(offset) > MAX_CLOCK_SKEW_S + service.answer_s / 2:
            direction = "ahead of" if offset > 0 else "behind"
            yield Finding(
                "clock",
                Severity.WARNING,
                service.service,
                f"the clock of {service.service} is {abs(offset):.1f} s {direction} this machine's",
                "run a time service on both; leases and times to live go by these clocks",
            )


def _stores(facts: DeploymentFacts) -> Iterator[Finding]:
    if facts.index is None or facts.store is None:
        return
    vectors, latents = facts.index.entry_count, facts.store.entry_count
    allowed = max(_FEW_ENTRIES, MAX_COUNT_DIFFERENCE * max(vectors, latents))
    if abs(vectors - latents) > allowed:
        missing = "vectors" if vectors < latents else "latents"
        yield Finding(
            "stores_in_step",
            Severity.WARNING,
            "",
            f"namespace {facts.namespace or 'default'!r} has {latents} entries in latent_kv and "
            f"{vectors} in vector_index: {missing} are missing",
            "the next reconcile pass removes what only one of them has (reconcile_interval_s); if "
            "it does not, see the orchestrator's log and skipstone_reconcile_passes_total",
        )


def _quota(facts: DeploymentFacts) -> Iterator[Finding]:
    store = facts.store
    if store is not None and store.quota_bytes:
        share = store.size_bytes / store.quota_bytes
        if share >= NEAR_QUOTA:
            yield Finding(
                "quota",
                Severity.WARNING,
                "latent_kv",
                f"namespace {facts.namespace or 'default'!r} uses {100 * share:.0f} % of its "
                f"quota of {store.quota_bytes} bytes; {store.evicted_count} entries were removed "
                "since the start",
                "that is how a cache runs; raise namespace_quota_bytes if hits are lost to it, or "
                "unpin entries if writes are refused",
            )


def _disks(facts: DeploymentFacts) -> Iterator[Finding]:
    for service in _serving(facts):
        free, size = service.disk_free_bytes, service.disk_size_bytes
        if free is None or not size or free >= NEARLY_FULL_DISK * size:
            continue
        full = free < FULL_DISK * size
        yield Finding(
            "disk",
            Severity.PROBLEM if full else Severity.WARNING,
            service.service,
            f"the disk with the data of {service.service} has {100 * free / size:.1f} % free: "
            f"{free} of {size} bytes",
            "make room or give a larger disk; until then nothing new is stored"
            if full
            else "make room, give a larger disk, or lower the service's quota",
        )


def _certificates(facts: DeploymentFacts) -> Iterator[Finding]:
    own = {f"--{n.replace('_', '-')}": s for n, s in facts.own_certificates_left_s.items()}
    yield from _ending("", own)
    for service in _serving(facts):
        yield from _ending(service.service, service.certificates_left_s)


def _ending(service: str, left_s: Mapping[str, float]) -> Iterator[Finding]:
    for name, seconds in left_s.items():
        if seconds < ENDS_SOON_S:
            ended = seconds <= 0
            days = f"{abs(seconds) / 86_400:.1f} days"
            yield Finding(
                "certificate",
                Severity.PROBLEM if ended else Severity.WARNING,
                service,
                f"a certificate of {name}{f' of {service}' if service else ''} "
                + (f"ended {days} ago" if ended else f"ends in {days}"),
                "replace the file; it is taken up without a restart",
            )


def _saves(facts: DeploymentFacts) -> Iterator[Finding]:
    stats = facts.stats
    total = stats.saved_count + stats.dropped_saves if stats else 0
    if stats is not None and stats.dropped_saves > _MANY_DROPPED * total:
        reasons = {k: n for k, n in stats.fallbacks.items() if k.startswith("save/")}
        told = ", ".join(f"{k} {n} times" for k, n in sorted(reasons.items()))
        yield Finding(
            "saves",
            Severity.WARNING,
            "orchestrator",
            f"{stats.dropped_saves} of {total} new entries were lost"
            + (f": {told}" if told else ""),
            "a full queue asks for another replica; else see what the reason's service says",
        )


def _drift(facts: DeploymentFacts) -> Iterator[Finding]:
    report = facts.stats.drift if facts.stats else None
    for tier in report.tiers if report else ():
        if tier.closed:
            bound = "" if tier.bound is None else f" (bound {tier.bound:.2f})"
            yield Finding(
                "drift",
                Severity.WARNING,
                "orchestrator",
                f"drift has closed tier {tier.tier}{bound}",
                "it opens again when audits allow; if it stays closed, calibrate again",
            )


def _executor(facts: DeploymentFacts) -> Iterator[Finding]:
    runs, model = facts.denoise_stats, facts.denoise
    if runs is not None and model is not None and runs.queued_count > model.max_concurrent_requests:
        yield Finding(
            "executor_queue",
            Severity.WARNING,
            "denoise",
            f"{runs.queued_count} runs wait and {model.max_concurrent_requests} can run at once",
            "add executors",
        )
    stores = {s.service: s.target for s in facts.stats.services} if facts.stats else {}
    asked = stores.get("latent_kv", "")
    used = model.latent_kv_target if model is not None else ""
    if asked and used and _plain(used) != _plain(asked):
        yield Finding(
            "latent_kv_target",
            Severity.WARNING,
            "denoise",
            f"the executor uses latent_kv at {used}, the orchestrator at {asked}",
            "make sure that both names are the same store; with two nothing is ever reused",
        )


def _mode(facts: DeploymentFacts) -> Iterator[Finding]:
    if facts.capabilities is not None and facts.capabilities.default_cache_mode is CacheMode.OFF:
        yield Finding(
            "cache_mode",
            Severity.WARNING,
            "orchestrator",
            "requests that do not ask for it are served without the cache",
            "set cache_mode = read_write",
        )


def _serving(facts: DeploymentFacts) -> list[ServiceFacts]:
    return [s for s in facts.services if s.condition is Condition.SERVING]


def _plain(target: str) -> str:
    return target.removeprefix("dns:///").replace("localhost", "127.0.0.1")


_RULES: tuple[Callable[[DeploymentFacts], Iterator[Finding]], ...] = (
    _conditions,
    _breakers,
    _versions,
    _clocks,
    _stores,
    _quota,
    _disks,
    _certificates,
    _saves,
    _drift,
    _executor,
    _mode,
    *MODEL_RULES,
)
