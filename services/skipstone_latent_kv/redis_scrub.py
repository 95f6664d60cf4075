"""Finds what only one side has: entries whose values Redis has dropped, values of no entry.

Redis drops keys by itself (expiry, a maxmemory-policy, a failover that loses the last writes). A
read notices at once; this notices without one, so that indexes learn of it, and deletes bytes whose
row was lost.
"""

from __future__ import annotations

from collections.abc import Iterable

from skipstone_latent_kv.redis_catalog import RedisCatalog
from skipstone_latent_kv.redis_catalog_rows import CatalogRow
from skipstone_latent_kv.redis_errors import redis_trouble
from skipstone_latent_kv.redis_servers import RedisServers
from skipstone_latent_kv.redis_values import RedisValues
from skipstone_shared.structured_logging import get_logger

_ROWS = 200
"""Entries that one step looks at."""

_KEYS = 1000
"""Keys that one step looks at, per server."""

_START = ("", "")
"""Before the first entry of the first namespace."""


class RedisScrub:
    """Looks through a store little by little; not thread-safe, a sweeper's thread calls it."""

    def __init__(
        self, servers: RedisServers, catalog: RedisCatalog, values: RedisValues, prefix: str
    ) -> None:
        """Begins at the first entry and the first key.

        Args:
            servers: Where the store is.
            catalog: Its entries.
            values: Its values.
            prefix: Beginning of all keys.
        """
        self._servers = servers
        self._catalog = catalog
        self._values = values
        self._pattern = f"{prefix}:{{*/*}}:*"
        self._logger = get_logger(store="redis")
        self._place = _START
        self._cursors: dict[str, int] = {}

    def step(self) -> None:
        """Looks at some entries and some keys, and goes on after them the next time."""
        if self._place == _START and self._catalog.repair():
            self._logger.error("the catalog had lost a key and was made anew from its rows")
        self._look_at_entries()
        self._look_at_keys()

    def _look_at_entries(self) -> None:
        namespace, after = self._place
        namespaces = self._catalog.namespaces()
        left = _ROWS
        while left > 0:
            if not after:
                namespace = next((later for later in namespaces if later > namespace), "")
            if not namespace:
                break
            rows, after = self._catalog.page(namespace, after, left, include_uncommitted=True)
            self._check(rows)
            left -= max(1, len(rows))
        self._place = (namespace, after)

    def _check(self, rows: Iterable[CatalogRow]) -> None:
        steps = {value.name: step for row in rows for step, value in row.values.items()}
        for name in self._values.missing(list(steps)):
            if self._catalog.lost(steps[name], name):
                self._logger.error(
                    "corrupt entry",
                    namespace=name.namespace,
                    entry_id=name.entry_id,
                    error=f"value {name} is not in Redis",
                )

    def _look_at_keys(self) -> None:
        cursors: dict[str, int] = {}
        for server, client in self._servers.masters().items():
            with redis_trouble():
                cursors[server], keys = client.scan(
                    self._cursors.get(server, 0), match=self._pattern, count=_KEYS
                )
            names = [name for key in keys if (name := self._values.name(key.decode()))]
            strangers = self._catalog.unknown(names) if names else []
            if strangers:
                self._values.delete(strangers)
                self._logger.warning("values of no entry deleted", count=len(strangers))
        self._cursors = cursors
