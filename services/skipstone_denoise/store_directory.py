"""The stores an executor reads from and writes to, by gRPC target."""

from __future__ import annotations

import threading
from collections.abc import Callable

from skipstone_client.latent_kv import LatentKVClient
from skipstone_shared.errors import Unavailable

_MAX_STORES = 16


class StoreDirectory:
    """Opens one client for each target that requests name. Threads may share it."""

    def __init__(
        self, default_target: str, open_client: Callable[[str], LatentKVClient] = LatentKVClient
    ) -> None:
        """Opens nothing yet.

        Args:
            default_target: Target of requests that name none; empty for no store.
            open_client: Makes a client without connecting.
        """
        self._default_target = default_target
        self._open_client = open_client
        self._clients: dict[str, LatentKVClient] = {}
        self._lock = threading.Lock()

    def __call__(self, target: str) -> LatentKVClient:
        """The client of a target.

        Raises:
            Unavailable: no store is configured, or requests have named too many.
        """
        target = target or self._default_target
        if not target:
            raise Unavailable("no latent_kv_target is configured")
        with self._lock:
            if target not in self._clients:
                # Targets come with requests: without a bound a caller could exhaust sockets.
                if len(self._clients) >= _MAX_STORES:
                    raise Unavailable(f"more than {_MAX_STORES} stores are in use")
                self._clients[target] = self._open_client(target)
            return self._clients[target]

    def close(self) -> None:
        """Closes all connections."""
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()
