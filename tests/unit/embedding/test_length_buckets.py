"""Every input is in one group, and no group is mostly padding."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skipstone_embedding.length_buckets import length_buckets

LENGTHS = st.lists(st.integers(1, 600), max_size=70)


@given(LENGTHS)
def test_groups_hold_each_input_once_and_stay_within_their_bounds(lengths: list[int]) -> None:
    groups = length_buckets(lengths, 2048)
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    for group in groups:
        longest = max(lengths[index] for index in group)
        assert longest * len(group) <= 2048 or len(group) == 1
        assert longest <= 2 * min(lengths[index] for index in group) + 16


def test_inputs_of_one_length_are_one_group() -> None:
    assert length_buckets([8] * 64, 2048) == [list(range(64))]


def test_an_input_longer_than_a_group_may_be_is_alone() -> None:
    assert length_buckets([3000, 2000], 2048) == [[1], [0]]
