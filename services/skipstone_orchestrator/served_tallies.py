"""What was served and saved, as plain numbers: of a whole replica, and of each namespace."""

from __future__ import annotations

from collections import Counter as Tally
from collections import OrderedDict
from collections.abc import Iterable, Iterator

from skipstone_shared.generation import BlockCacheReport
from skipstone_shared.orchestration import (
    BlockCacheCounts,
    Fallback,
    HitTier,
    OrchestratorStats,
    Provenance,
)

MAX_NAMESPACES = 10_000
"""Namespaces with numbers of their own. They come with requests: without a bound, callers could
fill the memory. Of more, those not served longest start again at nought."""


class Tallies:
    """Numbers that only grow."""

    def __init__(self) -> None:
        """Starts at nought."""
        self.saved = 0
        self.dropped = 0
        self._tiers: Tally[HitTier] = Tally()
        self._fallbacks: Tally[str] = Tally()
        self._executed = 0
        self._skipped = 0
        self._joined = 0
        self._block_cache: BlockCacheCounts | None = None

    def add_request(self, provenance: Provenance) -> None:
        """Counts a finished generation."""
        self._tiers[provenance.tier] += 1
        self._executed += provenance.executed_steps
        self._skipped += provenance.skip_steps
        self._joined += bool(provenance.joined_request_id)
        if provenance.block_cache is not None:
            self._add_block_cache(provenance.block_cache)

    def add_fallbacks(self, fallbacks: Iterable[Fallback]) -> None:
        """Counts what went wrong."""
        self._fallbacks.update(f"{f.stage}/{f.reason}" for f in fallbacks)

    def _add_block_cache(self, report: BlockCacheReport) -> None:
        before = self._block_cache or BlockCacheCounts()
        self._block_cache = BlockCacheCounts(
            before.computed_steps + sum(len(branch.computed_steps) for branch in report.branches),
            before.reused_steps + sum(len(branch.reused_steps) for branch in report.branches),
            before.block_calls + report.block_calls,
            before.block_calls_full + report.block_calls_full,
        )

    def stats(self) -> OrchestratorStats:
        """The numbers so far."""
        return OrchestratorStats(
            tiers={tier: self._tiers[tier] for tier in HitTier},
            executed_steps=self._executed,
            skipped_steps=self._skipped,
            saved_count=self.saved,
            dropped_saves=self.dropped,
            fallbacks=dict(self._fallbacks),
            joined_requests=self._joined,
            block_cache=self._block_cache,
        )


class TalliesByNamespace:
    """Numbers of the replica and of the namespaces served last."""

    def __init__(self) -> None:
        """Starts at nought."""
        self._all = Tallies()
        self._of: OrderedDict[str, Tallies] = OrderedDict()

    def both(self, namespace: str) -> Iterator[Tallies]:
        """Where something of a namespace is counted."""
        yield self._all
        found = self._of.setdefault(namespace, Tallies())
        self._of.move_to_end(namespace)
        if len(self._of) > MAX_NAMESPACES:
            self._of.popitem(last=False)
        yield found

    def stats(self, namespace: str | None) -> OrchestratorStats:
        """The numbers of a namespace; of the replica for None."""
        found = self._all if namespace is None else self._of.get(namespace)
        return (found or Tallies()).stats()
