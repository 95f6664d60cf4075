"""In which order entries go when there is no room: pure functions of how an entry was used."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, Protocol

PolicyName = Literal["lru", "fifo", "lcbfu", "aged_lcbfu"]

Rank = tuple[float, int]
"""The lowest rank goes first."""

DEFAULT_HALF_LIFE = 500


class UsedEntry(Protocol):
    """What a policy knows of an entry; ``EntryState`` has it.

    Uses of a store (reads and writes of snapshots) are numbered; the numbers stand for times,
    since clocks jump back.
    """

    @property
    def read_count(self) -> int:
        """How often a snapshot of it was read."""
        ...

    @property
    def skip_steps(self) -> int:
        """The most steps that one reuse of it can skip."""
        ...

    @property
    def first_use(self) -> int:
        """Number of the write that created it."""
        ...

    @property
    def last_use(self) -> int:
        """Number of its last read or write."""
        ...


class EvictionPolicy(Protocol):
    """Ranks entries; the lowest rank goes first.

    Contract: a use of an entry never lowers its rank, and nothing but a use of it changes it. So
    the order of two entries changes only when one of them is used, and a queue needs to look again
    only at the one it is about to give away.
    """

    def rank(self, entry: UsedEntry) -> Rank:
        """The place of an entry in the order of eviction."""
        ...


class LeastRecentlyUsed:
    """What was unused longest goes first."""

    def rank(self, entry: UsedEntry) -> Rank:
        """See ``EvictionPolicy``."""
        return float(entry.last_use), entry.last_use


class FirstInFirstOut:
    """What was created first goes first, however much it is used."""

    def rank(self, entry: UsedEntry) -> Rank:
        """See ``EvictionPolicy``."""
        return float(entry.first_use), entry.first_use


class LeastBenefit:
    """LCBFU, least computationally beneficial and frequently used: uses x skipped steps.

    Source: S. Agarwal et al., "Approximate Caching for Efficiently Serving Diffusion Models"
    (2023), arXiv 2312.04429, where each snapshot has a score of its own. Entries live and die
    whole here, so the score is that of the entry: its uses (reads, and the write that created it)
    times the most steps that one reuse of it can skip. Of equal scores the one unused longest goes.
    """

    def rank(self, entry: UsedEntry) -> Rank:
        """See ``EvictionPolicy``."""
        return float(_benefit(entry)), entry.last_use


class AgedLeastBenefit:
    """LCBFU whose score halves with every ``half_life`` uses of the store without one of it.

    Plain LCBFU never forgets: what was popular once stays. The score at a later time T is
    ``benefit * 2 ** -((T - last_use) / half_life)``. Its logarithm is ``log2(benefit) + last_use /
    half_life`` less a term in T that all entries share, so that the order needs no T and stays as
    it is while time passes.
    """

    def __init__(self, half_life: int = DEFAULT_HALF_LIFE) -> None:
        """Creates the policy.

        Args:
            half_life: Uses of the store, 1 and up. Short ones come close to LRU, long ones to
                LCBFU.
        """
        self.half_life = half_life

    def rank(self, entry: UsedEntry) -> Rank:
        """See ``EvictionPolicy``."""
        benefit = _benefit(entry)
        if not benefit:
            return -math.inf, entry.last_use
        return math.log2(benefit) + entry.last_use / self.half_life, entry.last_use


def policy_named(name: PolicyName, half_life: int = DEFAULT_HALF_LIFE) -> EvictionPolicy:
    """The policy with a name of the settings.

    Args:
        name: Which one.
        half_life: Of ``aged_lcbfu``, in uses of the store.
    """
    policies: Mapping[PolicyName, EvictionPolicy] = {
        "lru": LeastRecentlyUsed(),
        "fifo": FirstInFirstOut(),
        "lcbfu": LeastBenefit(),
        "aged_lcbfu": AgedLeastBenefit(half_life),
    }
    return policies[name]


def _benefit(entry: UsedEntry) -> int:
    """Steps that its uses skipped, were each as deep as it allows; its write counts as one."""
    return (entry.read_count + 1) * entry.skip_steps
