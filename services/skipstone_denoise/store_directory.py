"""The stores an executor reads from and writes to, by gRPC target."""

from __future__ import annotations

import dataclasses
import threading

from skipstone_client.latent_kv import LatentKVClient
from skipstone_shared.credentials import Credentials
from skipstone_shared.errors import Unavailable

_MAX_STORES = 16


class StoreDirectory:
    """Opens one client for each target that requests name. Threads may share it."""

    def __init__(self, default_target: str, credentials: Credentials | None = None) -> None:
        """Connects to none yet.

        Args:
            default_target: Target of requests that name none; empty for no store.
            credentials: Who the executor is to its stores. The token goes to the default one alone:
                others are named by requests, and a caller must not have it sent where they like.

        Raises:
            InvalidArgument: A file of the credentials cannot be used.
        """
        self._default_target = default_target
        credentials = credentials or Credentials()
        self._credentials_elsewhere = dataclasses.replace(credentials, token=None, token_file=None)
        self._clients: dict[str, LatentKVClient] = {}
        self._lock = threading.Lock()
        if default_target:  # now, so that a file that cannot be used is a start that fails
            self._clients[default_target] = LatentKVClient(default_target, credentials=credentials)

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
                self._clients[target] = LatentKVClient(
                    target, credentials=self._credentials_elsewhere
                )
            return self._clients[target]

    def close(self) -> None:
        """Closes all connections."""
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()
