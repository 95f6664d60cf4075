"""Namespaces that share what they save, because the operator says so; all others share nothing."""

from __future__ import annotations

from collections.abc import Mapping

from skipstone_shared.latents import checked_namespace


class Pools:
    """Which namespace of the stores a caller's namespace is. Shared by all requests."""

    def __init__(self, pools: Mapping[str, str]) -> None:
        """Takes the pools.

        Args:
            pools: Namespace to the pool it shares; see `check_pools`.
        """
        self._pools = dict(pools)

    def of(self, namespace: str) -> str:
        """The namespace of the stores: the pool's, or the caller's own.

        Raises:
            InvalidArgument: A bad namespace.
        """
        namespace = checked_namespace(namespace)
        return self._pools.get(namespace, namespace)


def check_pools(pools: Mapping[str, str]) -> None:
    """Checks names, and that no pool is itself in another.

    Raises:
        ValueError: One is not right.
    """
    for namespace, pool in pools.items():
        for name in (namespace, pool):
            if not name or checked_namespace(name) != name:
                raise ValueError(f"{name!r} is no namespace")
        if pools.get(pool, pool) != pool:
            raise ValueError(f"{pool} is the pool of {namespace} and itself in {pools[pool]}")
