"""The order of each policy, and what every policy promises to the queues."""

from __future__ import annotations

import dataclasses
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone_latent_kv.eviction_policies import (
    AgedLeastBenefit,
    EvictionPolicy,
    FirstInFirstOut,
    LeastBenefit,
    LeastRecentlyUsed,
    PolicyName,
    policy_named,
)


@dataclasses.dataclass(frozen=True)
class Used:
    """An entry as a policy sees it."""

    name: str = ""
    read_count: int = 0
    skip_steps: int = 10
    first_use: int = 1
    last_use: int = 1


def order(policy: EvictionPolicy, *entries: Used) -> str:
    return "".join(entry.name for entry in sorted(entries, key=policy.rank))


A = Used("a", read_count=9, skip_steps=5, first_use=2, last_use=20)
B = Used("b", read_count=1, skip_steps=20, first_use=1, last_use=40)
C = Used("c", read_count=0, skip_steps=30, first_use=3, last_use=3)


def test_each_policy_has_its_own_order() -> None:
    assert order(LeastRecentlyUsed(), A, B, C) == "cab"
    assert order(FirstInFirstOut(), A, B, C) == "bac"
    assert order(LeastBenefit(), A, B, C) == "cba"  # 30, 40, 50


def test_benefit_halves_with_every_half_life_without_a_use() -> None:
    """50 at use 20 and 40 at use 40: by use 40 the former is worth 25 at a half-life of 20."""
    assert order(AgedLeastBenefit(half_life=20), A, B) == "ab"
    assert order(AgedLeastBenefit(half_life=1000), A, B) == "ba"
    twice_as_good = Used("x", skip_steps=20, last_use=1)
    a_half_life_later = Used("y", skip_steps=10, last_use=101)
    policy = AgedLeastBenefit(half_life=100)
    assert policy.rank(twice_as_good)[0] == pytest.approx(policy.rank(a_half_life_later)[0])


@pytest.mark.parametrize("policy", [LeastBenefit(), AgedLeastBenefit(half_life=1)])
def test_what_skips_nothing_goes_before_all_that_skips_something(policy: EvictionPolicy) -> None:
    useless = Used("u", read_count=1000, skip_steps=0, last_use=1000)
    assert order(policy, A, useless, C)[0] == "u"


def test_of_equal_benefit_the_one_unused_longest_goes_first() -> None:
    early, late = Used("e", last_use=5), Used("l", last_use=6)
    assert order(LeastBenefit(), late, early) == "el"


@given(
    name=st.sampled_from(get_args(PolicyName)),
    entry=st.builds(
        Used,
        read_count=st.integers(0, 10**9),
        skip_steps=st.integers(0, 1000),
        first_use=st.integers(1, 10),
        last_use=st.integers(10, 10**9),
    ),
    later=st.integers(1, 10**6),
    is_read=st.booleans(),
)
def test_a_use_never_lowers_the_rank(
    name: PolicyName, entry: Used, later: int, is_read: bool
) -> None:
    """The queues look again only at the entry they are about to give away."""
    used = dataclasses.replace(
        entry,
        read_count=entry.read_count + is_read,
        skip_steps=entry.skip_steps + (not is_read),
        last_use=entry.last_use + later,
    )
    policy = policy_named(name, half_life=7)
    assert policy.rank(used) >= policy.rank(entry)
