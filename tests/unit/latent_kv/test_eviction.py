"""Eviction order, quotas and rollback of the entry table, against a model that sorts a list."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skipstone_latent_kv.entry_table import EntryKey, EntryState, EntryTable
from skipstone_latent_kv.eviction import EvictionQueue, Quotas, make_room
from skipstone_latent_kv.eviction_policies import (
    EvictionPolicy,
    FirstInFirstOut,
    LeastRecentlyUsed,
    PolicyName,
    policy_named,
)
from skipstone_shared.errors import QuotaExceeded


def entry(namespace: str, entry_id: str, size_bytes: int = 10, **fields: object) -> EntryState:
    values: dict[str, object] = {
        "create_time": 0.0,
        "access_time": 0.0,
        "committed": True,
        "snapshot_count": 1,
    }
    values |= fields
    return EntryState(namespace, entry_id, size_bytes=size_bytes, **values)  # type: ignore[arg-type]


def table_of(*states: EntryState) -> EntryTable:
    table = EntryTable(LeastRecentlyUsed())
    for state in states:
        table.put(state, used=True)
    return table


def test_pinning_and_unpinning_is_no_use() -> None:
    table = table_of(entry("n", "a"), entry("n", "b"))
    for pinned in (True, False):
        state = table.get(("n", "a"))
        assert state is not None
        table.put(dataclasses.replace(state, pinned=pinned))
    victims = make_room(table, Quotas(20), ("n", "c"), 10)
    assert [v.entry_id for v in victims] == ["a"]


def test_nothing_is_planned_when_the_plan_fails_and_the_same_entries_go_later() -> None:
    table = table_of(entry("n", "a"), entry("n", "b"), entry("n", "c", pinned=True))
    for _ in range(2):
        with pytest.raises(QuotaExceeded):
            make_room(table, Quotas(30), ("n", "d"), 21)
    assert [v.entry_id for v in make_room(table, Quotas(30), ("n", "d"), 20)] == ["a", "b"]


def test_one_victim_serves_both_quotas() -> None:
    table = table_of(entry("n", "a"), entry("other", "x"), entry("n", "b"))
    victims = make_room(table, Quotas(30, 20), ("n", "c"), 10)
    assert [v.entry_id for v in victims] == ["a"]


def test_a_rolled_back_transaction_leaves_the_table_as_it_was() -> None:
    table = table_of(entry("n", "a"), entry("n", "b"))

    def write_and_fail() -> None:
        with table.transaction():
            for victim in make_room(table, Quotas(20), ("n", "c"), 20):
                table.remove(victim.key)
            table.put(entry("n", "c", 20, committed=False), used=True)
            table.put(entry("m", "d"), used=True)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_and_fail()
    assert table.size_bytes() == table.size_bytes("n") == 20
    assert table.size_bytes("m") == 0
    assert (table.stats("n", 0.0).entry_count, table.stats("n", 0.0).uncommitted_count) == (2, 0)
    victims = make_room(table, Quotas(20), ("n", "c"), 20)
    assert [v.entry_id for v in victims] == ["a", "b"]


def test_a_touch_of_an_entry_that_has_gone_is_ignored() -> None:
    table = table_of(entry("n", "a"))
    table.touch(("n", "a"), 5.0)
    table.remove(("n", "a"))
    table.touch(("n", "a"), 6.0)
    assert table.take_touched() == []
    assert table.get(("n", "a")) is None


def test_one_write_evicts_only_so_many_more_than_it_needs() -> None:
    """All other writes wait while it does; the next one goes on."""
    table = table_of(*(entry("n", str(number), 1) for number in range(2000)))
    quotas = Quotas(2000, low_water=0.5)
    victims = make_room(table, quotas, ("n", "new"), 10)
    assert [v.entry_id for v in victims] == [str(number) for number in range(10 + 256)]


def test_the_order_of_creation_and_of_use_survive_a_restart() -> None:
    states = [
        entry("n", "a", create_time=3.0, access_time=30.0),
        entry("n", "b", create_time=1.0, access_time=20.0),
        entry("n", "c", create_time=2.0, access_time=10.0),
    ]
    for policy, expected in ((FirstInFirstOut(), "bca"), (LeastRecentlyUsed(), "cba")):
        table = EntryTable(policy)
        table.load(states)
        victims = make_room(table, Quotas(30), ("n", "new"), 30)
        assert "".join(v.entry_id for v in victims) == expected


def test_entries_that_went_without_an_eviction_leave_nothing_behind() -> None:
    """A store below its quota never takes from its queues; they must not grow for ever."""
    queue = EvictionQueue(LeastRecentlyUsed())
    for number in range(10_000):
        state = entry("n", str(number), last_use=number)
        queue.offer(state)
        queue.discard(state.key)
    assert len(queue) < 100


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "touch", "pin", "unpin", "remove"]),
        st.sampled_from(["n", "m"]),
        st.sampled_from("abcdef"),
        st.integers(1, 30),
    ),
    max_size=60,
)


class Model:
    """The same rules, written as plainly as possible: a list that is sorted for every question."""

    def __init__(self, policy: EvictionPolicy, quotas: Quotas) -> None:
        self.policy = policy
        self.quotas = quotas
        self.entries: dict[EntryKey, EntryState] = {}
        self.uses = 0

    def use(self, state: EntryState) -> None:
        self.uses += 1
        self.entries[state.key] = dataclasses.replace(
            state, first_use=state.first_use or self.uses, last_use=self.uses
        )

    def used(self, namespace: str | None, without: Sequence[EntryKey] = ()) -> int:
        return sum(
            state.size_bytes
            for key, state in self.entries.items()
            if namespace in (None, key[0]) and key not in without
        )

    def room(self, key: EntryKey, growth: int) -> list[EntryKey] | None:
        victims: list[EntryKey] = []
        for scope, quota in (
            (key[0], self.quotas.namespace_bytes),
            (None, self.quotas.total_bytes),
        ):
            if self.used(scope, victims) + growth > quota * self.quotas.high_water:
                candidates = sorted(
                    (s for s in self.entries.values() if s.is_evictable and s.key != key),
                    key=self.policy.rank,
                )
                for state in candidates:
                    if self.used(scope, victims) + growth <= quota * self.quotas.low_water:
                        break
                    if scope in (None, state.namespace) and state.key not in victims:
                        victims.append(state.key)
            if self.used(scope, victims) + growth > quota:
                return None
        return victims


@settings(max_examples=80, deadline=None)
@given(OPERATIONS, st.sampled_from(get_args(PolicyName)), st.sampled_from([(1, 1), (0.75, 0.5)]))
def test_the_queues_choose_as_a_sorted_list_would(
    operations: list[tuple[str, str, str, int]], name: PolicyName, marks: tuple[float, float]
) -> None:
    policy, quotas = policy_named(name, half_life=3), Quotas(60, 40, *marks)
    table, model = EntryTable(policy), Model(policy, quotas)
    for operation, namespace, entry_id, size in operations:
        key = (namespace, entry_id)
        state = table.get(key)
        assert state == model.entries.get(key)
        if operation == "write":
            growth = size - (state.size_bytes if state else 0)
            expected = model.room(key, growth)
            if expected is None:
                with pytest.raises(QuotaExceeded):
                    make_room(table, quotas, key, growth)
                continue
            assert [v.key for v in make_room(table, quotas, key, growth)] == expected
            for victim in expected:
                table.remove(victim)
                del model.entries[victim]
            written = (state or entry(*key, 0, snapshot_count=0)).with_snapshot(
                size, growth, True, 9
            )
            table.put(written, used=True)
            model.use(written)
        elif state is None:
            continue
        elif operation == "touch":
            table.touch(key, 1.0)
            read = dataclasses.replace(state, access_time=1.0, read_count=state.read_count + 1)
            model.use(read)
        elif operation == "remove":
            table.remove(key)
            del model.entries[key]
        else:
            model.entries[key] = dataclasses.replace(state, pinned=operation == "pin")
            table.put(model.entries[key])
        assert table.size_bytes() == model.used(None)
        assert table.size_bytes(namespace) == model.used(namespace)
