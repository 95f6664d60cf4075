"""Which entries there are, their order and totals: the one place in Redis that decides.

All keys begin with ``PREFIX:{PREFIX}:`` and so lie in one slot, on one server of a cluster, which
runs each call to its end before it begins the next: a call is a transaction, whichever process
makes it. Values are in the slots of their entries; a value counts only while a row refers to it.

========================  ======  ================================================================
key                       type    holds
========================  ======  ================================================================
``meta``                  hash    entries, bytes, removed:KIND, uses, sequence, format, policy
``namespaces``            set     namespaces that have entries
``rows:NAMESPACE``        hash    entry id -> times, use, flags, and value, bytes and checksum per
                                  step (MessagePack)
``ids:NAMESPACE``         zset    entry ids, in order
``totals:NAMESPACE``      hash    bytes, snapshots, committed
``order``,                zset    evictable entries, first the one to go
``order:NAMESPACE``
``leases``,               zset    uncommitted entries by the end of their lease
``leases:NAMESPACE``
``created``               zset    evictable entries by creation, for the time to live
``events``                stream  removals; ids are their sequence numbers
``pending``               zset    values being written, by when they must be in use
``trash``                 set     values that nothing refers to and that are being deleted
========================  ======  ================================================================

Rows are in one hash per namespace, not in keys of their own: a server that drops keys when it is
full takes those that were not used lately, and these keys are used all the time.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from skipstone_latent_kv.entry_table import EntryKey, use_elsewhere
from skipstone_latent_kv.eviction import Quotas
from skipstone_latent_kv.eviction_policies import (
    AgedLeastBenefit,
    EvictionPolicy,
    FirstInFirstOut,
    LeastBenefit,
    LeastRecentlyUsed,
)
from skipstone_latent_kv.redis_catalog_rows import (
    CatalogRow,
    StoredValue,
    parse_row,
    parse_value,
)
from skipstone_latent_kv.redis_errors import redis_trouble
from skipstone_latent_kv.redis_servers import RedisServers, Script
from skipstone_latent_kv.redis_values import ValueName
from skipstone_shared.errors import FailedPrecondition, QuotaExceeded, Unavailable
from skipstone_shared.stored_entries import EvictionEvent, EvictionKind, StoredEntry, StoreStats

_FORMAT = "1"

_PENDING_S = 900.0
"""Seconds that a write may take before its bytes count as left behind."""

_POLICIES: Mapping[type[EvictionPolicy], str] = {
    LeastRecentlyUsed: "lru",
    FirstInFirstOut: "fifo",
    LeastBenefit: "lcbfu",
    AgedLeastBenefit: "aged_lcbfu",
}

_PARTS = ("redis_rows.lua", "redis_room.lua", "redis_operations.lua", "redis_upkeep.lua")


class RedisCatalog:
    """Calls of the catalog; each is atomic. What is left to delete goes to ``discard``."""

    def __init__(
        self,
        servers: RedisServers,
        prefix: str,
        *,
        quotas: Quotas,
        policy: EvictionPolicy,
        ttl_s: float,
        event_history: int,
        clock: Callable[[], float] | None,
        discard: Callable[[Sequence[ValueName]], None],
    ) -> None:
        """Opens or creates the catalog.

        Args:
            servers: Where it is.
            prefix: Beginning of all keys.
            quotas: Byte bounds.
            policy: Which entries go first; from now on for all processes.
            ttl_s: Time to live of committed entries in seconds; 0 for none.
            event_history: Eviction events kept.
            clock: Seconds since the epoch; None for the clock of Redis, one for all processes.
            discard: Deletes values that nothing refers to any more.

        Raises:
            FailedPrecondition: the prefix is that of another version's catalog.
        """
        folder = Path(__file__).parent
        text = "\n".join((folder / part).read_text(encoding="utf-8") for part in _PARTS)
        self._base = f"{prefix}:{{{prefix}}}:"
        # A key that is never there beside one that always is: while a cluster moves the slot, some
        # keys are here and some there, and it refuses a call that names one of each.
        self._keys = (self._key("meta"), self._key("never"))
        self._servers = servers
        self._script = Script(servers, text)
        self._quotas = quotas
        self._clock = clock
        self._discard = discard
        half_life = policy.half_life if isinstance(policy, AgedLeastBenefit) else 1
        self._header = (repr(ttl_s), str(event_history), _POLICIES[type(policy)], str(half_life))
        self._set_up()

    def begin(self, key: EntryKey) -> ValueName:
        """A name for a value that is about to be written."""
        name = ValueName(*key, secrets.token_hex(8))
        self._call("begin", str(name), repr(_PENDING_S))
        return name

    def put(self, step_index: int, value: StoredValue, lease_s: float) -> None:
        """Makes a value that was written the snapshot of a step; evicts what has to go.

        Raises:
            QuotaExceeded: even removing all that may be removed makes no room.
            Unavailable: the write took so long that its bytes count as left behind.
        """
        name = value.name
        outcome, *told = self._call(
            "put",
            *(name.namespace, name.entry_id, str(step_index), name.value_id),
            *(str(value.size_bytes), f"{value.xxh3_64:016x}", repr(lease_s)),
            *(str(self._quotas.namespace_bytes), str(self._quotas.total_bytes)),
            *(repr(self._quotas.high_water), repr(self._quotas.low_water)),
        )
        if outcome == b"late":
            self._discard([name])
            raise Unavailable(f"the write took more than {_PENDING_S:g} s, or Redis was emptied")
        if outcome == b"full":
            scope, used = told[0].decode(), int(told[1])
            where = f"namespace {scope!r}" if scope else "the store"
            quota = self._quotas.namespace_bytes if scope else self._quotas.total_bytes
            raise QuotaExceeded(
                f"{value.size_bytes} bytes do not fit into {where}: quota {quota}, {used} in use, "
                "and no more can be evicted"
            )

    def use(self, key: EntryKey, step_index: int, xxh3_64: int) -> StoredValue | None:
        """The value of a snapshot; counts a read unless the checksum is set and another one's."""
        wanted = f"{xxh3_64:016x}" if xxh3_64 else ""
        found = self._call("use", *key, str(step_index), wanted)
        return parse_value(key, *found) if found else None

    def get(self, key: EntryKey) -> CatalogRow | None:
        """An entry."""
        return parse_row(key[0], self._call("get", *key))

    def commit(self, key: EntryKey) -> CatalogRow | None:
        """Commits an entry and tells it as it is then."""
        return parse_row(key[0], self._call("commit", *key))

    def renew(self, key: EntryKey, lease_s: float) -> tuple[bool, float | None]:
        """Sets a lease: whether there is such an entry, and the end, None when it is committed."""
        found = self._call("renew", *key, repr(lease_s))
        return bool(found), float(found[0]) if found and found[0] else None

    def pin(self, namespace: str, entry_ids: Sequence[str], pinned: bool) -> list[bool]:
        """Pins or unpins; whether each entry is there."""
        return [bool(n) for n in self._call("pin", namespace, "1" if pinned else "", *entry_ids)]

    def adopt(self, namespace: str, entries: Sequence[StoredEntry]) -> list[bool]:
        """Commits entries with the history they had elsewhere; whether each is there."""
        told: list[str] = []
        for entry in entries:
            told += [entry.entry_id, repr(entry.create_time), repr(entry.access_time)]
            told += [str(entry.read_count), "1" if entry.pinned else ""]
            told += map(str, map(use_elsewhere, (entry.create_time, entry.access_time)))
        return [bool(n) for n in self._call("adopt", namespace, *told)]

    def delete(self, namespace: str, entry_ids: Sequence[str]) -> list[bool]:
        """Removes entries; whether each was there."""
        return [bool(n) for n in self._call("delete", namespace, *entry_ids)]

    def clear(self, namespace: str) -> int:
        """Removes all entries of a namespace, some at a time; how many there were."""
        count, after = 0, b""
        while True:
            removed, after = self._call("clear", namespace, after)
            count += int(removed)
            if not after:
                return count

    def page(
        self, namespace: str, after: str, size: int, include_uncommitted: bool
    ) -> tuple[list[CatalogRow], str]:
        """Entries after an id, maybe fewer than wanted; and the id to go on after, if any."""
        more, *rows = self._call(
            "list", namespace, after, str(size), "1" if include_uncommitted else ""
        )
        found = (parse_row(namespace, row) for row in rows)
        return [row for row in found if row is not None], more.decode()

    def namespaces(self) -> list[str]:
        """Namespaces that have entries, in order."""
        return sorted(
            n.decode() for n in self._servers.execute("SMEMBERS", self._key("namespaces"))
        )

    def stats(self, namespace: str) -> StoreStats:
        """Counts of a namespace; ``disk_bytes`` are those of all values."""
        committed, leases, snapshots, size = map(int, self._call("stats", namespace))
        _, total, removals = self.totals()
        return StoreStats(
            entry_count=committed,
            uncommitted_count=leases,
            snapshot_count=snapshots,
            size_bytes=size,
            quota_bytes=self._quotas.namespace_bytes,
            disk_bytes=total,
            evicted_count=sum(removals.values()) - removals[EvictionKind.DELETED],
        )

    def totals(self) -> tuple[int, int, dict[EvictionKind, int]]:
        """Entries, bytes, and removals by why: of all namespaces and processes."""
        kinds = [kind for kind in EvictionKind if kind is not EvictionKind.GAP]
        entries, size, *removals = map(int, self._call("totals", *(kind.value for kind in kinds)))
        return entries, size, dict(zip(kinds, removals, strict=True))

    def sweep(self) -> int:
        """Removes what ended and what was left behind; how many entries."""
        ended, more = 0, 1
        while more:
            removed, more = self._call("sweep")
            ended += removed
        return ended

    def forget(self, names: Iterable[ValueName]) -> None:
        """The values have been deleted."""
        self._call("forget", *map(str, names))

    def lost(self, step_index: int, name: ValueName) -> bool:
        """Removes the entry of a value that is lost, unless the step has another one by now."""
        removed = self._call("lost", name.namespace, name.entry_id, str(step_index), name.value_id)
        return bool(removed[0])

    def unknown(self, names: Sequence[ValueName]) -> list[ValueName]:
        """Those that nothing refers to."""
        return [ValueName.parse(n.decode()) for n in self._call("unknown", *map(str, names))]

    def repair(self) -> bool:
        """Makes the catalog anew from its rows where a key of it was lost; whether it was.

        Redis serves nobody else meanwhile: about 2 seconds for 100,000 entries.
        """
        if self._call("sound")[0]:
            return False
        rows = self._key("rows:")
        found: set[str] = set()
        for client in self._servers.masters().values():
            with redis_trouble():
                keys = client.scan_iter(match=f"{rows}*", count=1000)
                found.update(key.decode().removeprefix(rows) for key in keys)
        self._call("rebuild", *sorted(found))
        return True

    def events(self, after: int, most: int) -> tuple[int, list[EvictionEvent]]:
        """The number of the last event, and the first ones after a number."""
        last, *events = self._call("events", str(after), str(most))
        return int(last), [
            EvictionEvent(
                int(sequence.partition(b"-")[0]),
                EvictionKind(kind.decode()),
                namespace.decode(),
                entry_id.decode(),
            )
            for sequence, kind, namespace, entry_id in events
        ]

    def _key(self, name: str) -> str:
        return self._base + name

    def _call(self, operation: str, *arguments: Any) -> Any:
        now = repr(self._clock()) if self._clock else ""
        answer, garbage = self._script(self._keys, operation, now, *self._header, *arguments)
        if garbage:
            self._discard([ValueName.parse(name.decode()) for name in garbage])
        return answer

    def _set_up(self) -> None:
        _, _, policy, half_life = self._header
        found, reordering = self._call("setup", _FORMAT, policy, half_life)
        if found.decode() != _FORMAT:
            raise FailedPrecondition(
                f"keys with redis_prefix are of format {found.decode()}, this program knows "
                f"{_FORMAT}: choose another redis_prefix"
            )
        if reordering:
            self._reorder()

    def _reorder(self) -> None:
        """Gives all entries the place that the policy says, some at a time."""
        cursor = b"0"
        while True:
            cursor, page = self._servers.execute(
                "ZSCAN", self._key("created"), cursor, "COUNT", "500"
            )
            # redis-py pairs members with their scores.
            self._call("reorder", *(member for member, _ in page))
            if int(cursor) == 0:
                break
        self._call("reordered")
