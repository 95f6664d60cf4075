"""Eviction order, quotas and rollback of the entry table, against a model that sorts a list."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skipstone_latent_kv.entry_table import EntryKey, EntryState, EntryTable
from skipstone_latent_kv.eviction import EvictionQueue, Quotas, make_room
from skipstone_shared.errors import QuotaExceeded


def entry(namespace: str, entry_id: str, size_bytes: int = 10, **fields: object) -> EntryState:
    values: dict[str, object] = {"committed": True, "snapshot_count": 1} | fields
    return EntryState(namespace, entry_id, 0.0, 0.0, size_bytes, **values)  # type: ignore[arg-type]


def table_of(*states: EntryState) -> EntryTable:
    table = EntryTable()
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


def test_entries_that_went_without_an_eviction_leave_nothing_behind() -> None:
    """A store below its quota never takes from its queues; they must not grow for ever."""
    queue = EvictionQueue()
    for number in range(10_000):
        queue.offer(("n", str(number)), number)
        queue.discard(("n", str(number)))
    assert len(queue) < 100


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["write", "touch", "pin", "unpin", "remove", "make_room"]),
        st.sampled_from(["n", "m"]),
        st.sampled_from("abcdef"),
        st.integers(1, 30),
    ),
    max_size=60,
)


class Model:
    """The same rules, written as plainly as possible: a list in order of use."""

    def __init__(self, quotas: Quotas) -> None:
        self.quotas = quotas
        self.by_use: list[tuple[EntryKey, int, bool]] = []

    def find(self, key: EntryKey) -> tuple[EntryKey, int, bool] | None:
        return next((e for e in self.by_use if e[0] == key), None)

    def used(self, namespace: str | None) -> int:
        return sum(size for key, size, _ in self.by_use if namespace in (None, key[0]))

    def room(self, key: EntryKey, growth: int) -> list[EntryKey] | None:
        victims: list[EntryKey] = []
        for scope, quota in (
            (key[0], self.quotas.namespace_bytes),
            (None, self.quotas.total_bytes),
        ):
            candidates = [
                e for e in self.by_use if not e[2] and e[0] != key and scope in (None, e[0][0])
            ]
            while (
                self.used(scope)
                + growth
                - sum(e[1] for e in self.by_use if e[0] in victims and scope in (None, e[0][0]))
                > quota
            ):
                rest = [e for e in candidates if e[0] not in victims]
                if not rest:
                    return None
                victims.append(rest[0][0])
        return victims


@settings(max_examples=80, deadline=None)
@given(OPERATIONS)
def test_the_queues_choose_as_a_sorted_list_would(
    operations: list[tuple[str, str, str, int]],
) -> None:
    quotas = Quotas(total_bytes=60, namespace_bytes=40)
    table, model = EntryTable(), Model(quotas)
    for operation, namespace, entry_id, size in operations:
        key = (namespace, entry_id)
        state, known = table.get(key), model.find(key)
        assert (state is None) == (known is None)
        if operation in ("write", "make_room"):
            growth = size - (state.size_bytes if state else 0)
            expected = model.room(key, growth)
            if expected is None:
                with pytest.raises(QuotaExceeded):
                    make_room(table, quotas, key, growth)
                continue
            victims = [v.key for v in make_room(table, quotas, key, growth)]
            assert victims == expected
            for victim in victims:
                table.remove(victim)
            pinned = known[2] if known else False
            table.put(entry(namespace, entry_id, size, pinned=pinned), used=True)
            model.by_use = [e for e in model.by_use if e[0] not in [*expected, key]]
            model.by_use.append((key, size, pinned))
        elif state is None or known is None:
            continue
        elif operation == "touch":
            table.touch(key, 1.0)
            model.by_use.remove(known)
            model.by_use.append(known)
        elif operation == "remove":
            table.remove(key)
            model.by_use.remove(known)
        else:
            pinned = operation == "pin"
            table.put(dataclasses.replace(state, pinned=pinned))
            model.by_use[model.by_use.index(known)] = (key, known[1], pinned)
        assert table.size_bytes() == model.used(None)
        assert table.size_bytes(namespace) == model.used(namespace)
