"""The one table of what each rpc needs: a right, and whose namespace it touches.

An rpc without a row is refused to everyone, so that none is ever open by being forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from skipstone_shared.access import Caller, Right
from skipstone_shared.errors import PermissionDenied
from skipstone_shared.snapshot_streams import header_of_write

Namespaces = Callable[[Any], Iterator[str | None]]
"""Names the namespaces that a request touches, None for all at once. Of a stream of requests it
gets the first."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What an rpc needs.

    Attributes:
        right: The right; None: any token will do.
        namespaces: What it touches.
    """

    right: Right | None
    namespaces: Namespaces

    def check(self, caller: Caller, request: Any) -> None:
        """Lets a request pass, or not.

        Raises:
            PermissionDenied: The caller lacks the right or a namespace.
        """
        if self.right is None:
            return
        for namespace in self.namespaces(request):
            caller.check(self.right, namespace)


def _nothing(_request: Any) -> Iterator[str | None]:
    return iter(())


def _own(request: Any) -> Iterator[str | None]:
    yield request.namespace


def _everything(_request: Any) -> Iterator[str | None]:
    yield None


def _watched(request: Any) -> Iterator[str | None]:
    # Here empty is no default: it means all.
    yield request.namespace or None


def _written(first: bytes) -> Iterator[str | None]:
    # This rpc's messages come serialized: see snapshot_streams.
    yield header_of_write(first).namespace


def _read(request: Any) -> Iterator[str | None]:
    yield request.namespace
    yield from _of_refs(request, request.ref)


def _upserted(request: Any) -> Iterator[str | None]:
    yield request.namespace
    for entry in request.entries:
        yield from _of_refs(request, *entry.entry.snapshots)


def _run(request: Any) -> Iterator[str | None]:
    yield request.namespace
    yield from _of_refs(request, request.resume.donor)


def _compared(request: Any) -> Iterator[str | None]:
    yield request.namespace
    yield from _of_refs(request, request.first, request.second)


def _of_refs(request: Any, *refs: Any) -> Iterator[str | None]:
    """The namespaces of references; one that names none is of its request's."""
    for ref in refs:
        if ref.namespace and ref.namespace != request.namespace:
            yield ref.namespace


_ANYBODY = Rule(None, _nothing)
_GENERATE = Rule(Right.GENERATE, _own)
_READ = Rule(Right.READ, _own)
_WRITE = Rule(Right.WRITE, _own)
_ADMIN = Rule(Right.ADMIN, _own)

_SERVICES: Mapping[str, Mapping[str, Rule]] = {
    "skipstone.orchestrator.v1.Orchestrator": {
        "Generate": _GENERATE,
        "Lookup": _READ,
        "Explain": _READ,
        "Save": _WRITE,
        "ListEntries": _READ,
        "GetEntry": _READ,
        "DeleteEntries": _WRITE,
        "DeletePrompt": _WRITE,
        "DeleteNamespace": _ADMIN,
        "VerifyDeleted": _READ,
        "GetStats": _READ,
        "GetCapabilities": _ANYBODY,
    },
    "skipstone.embedding.v1.Embedding": {
        "GetCapabilities": _ANYBODY,
        "Embed": _READ,
        "Rerank": _READ,
    },
    "skipstone.vector_index.v1.VectorIndex": {
        "GetCapabilities": _ANYBODY,
        "UpsertEntries": Rule(Right.WRITE, _upserted),
        "SearchEntries": _READ,
        "GetEntry": _READ,
        "ListEntries": _READ,
        "ListNamespaces": Rule(Right.READ, _everything),
        "DeleteEntries": _WRITE,
        "DeletePartition": _ADMIN,
        "GetStats": _READ,
    },
    "skipstone.latent_kv.v1.LatentKV": {
        "GetCapabilities": _ANYBODY,
        "WriteLatent": Rule(Right.WRITE, _written),
        "ReadLatent": Rule(Right.READ, _read),
        "CommitEntry": _WRITE,
        "RenewLease": _WRITE,
        "GetEntry": _READ,
        "ListEntries": _READ,
        "PinEntries": _WRITE,
        "DeleteEntries": _WRITE,
        "DeleteNamespace": _ADMIN,
        "WatchEvictions": Rule(Right.READ, _watched),
        "GetStats": _READ,
    },
    "skipstone.migration.v1.Migration": {
        "GetMissedWrites": Rule(Right.ADMIN, _everything),
        "MigrateEntries": Rule(Right.ADMIN, _everything),
    },
    "skipstone.denoise.v1.Denoise": {
        "GetCapabilities": _ANYBODY,
        "PlanGeneration": _GENERATE,
        "RunDenoise": Rule(Right.GENERATE, _run),
        "CompareLatents": Rule(Right.READ, _compared),
        # Its counts are of all who use the executor.
        "GetStats": Rule(Right.READ, _everything),
    },
}

RULES: Mapping[str, Rule] = MappingProxyType(
    {f"/{service}/{rpc}": rule for service, rpcs in _SERVICES.items() for rpc, rule in rpcs.items()}
)
"""Full method name to what it needs."""

HEALTH_PREFIX = "/grpc.health."
"""Open to all: a probe has no token, and learns only whether the service serves."""

_CHANNELZ_PREFIX = "/grpc.channelz."
_REFLECTION_PREFIX = "/grpc.reflection."


def rule_of(method: str) -> Rule:
    """What an rpc needs.

    Args:
        method: Full name, `/skipstone.latent_kv.v1.LatentKV/ReadLatent`; not one of health.

    Raises:
        PermissionDenied: It has no row.
    """
    if method.startswith(_REFLECTION_PREFIX):
        return _ANYBODY
    if method.startswith(_CHANNELZ_PREFIX):
        return Rule(Right.ADMIN, _everything)  # it shows who is connected
    try:
        return RULES[method]
    except KeyError:
        raise PermissionDenied("nobody may call this rpc: it has no rule") from None
