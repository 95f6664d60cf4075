"""Step masks: cache-dit's where it makes one, and Skipstone's rule for every number of steps."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone_denoise.blockcache.step_mask import (
    BASE_STEPS,
    COMPAT_MISSING,
    compat_mask,
    mask_from_bins,
    own_mask,
    split_mask,
)
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import ScmMaskPolicy

NAMED = [policy for policy in ScmMaskPolicy if policy is not ScmMaskPolicy.NONE]
RECORDED = json.loads(Path(__file__).with_name("cache_dit_masks.json").read_text())["masks"]

COMPUTED_AT_28 = {"slow": 18, "medium": 15, "fast": 11, "ultra": 8}
LONGEST_REUSED = {"slow": 3, "medium": 3, "fast": 5, "ultra": 7}

policies = st.sampled_from(NAMED)
totals = st.integers(min_value=1, max_value=500)


def as_text(mask: tuple[bool, ...]) -> str:
    return "".join("1" if computed else "0" for computed in mask)


def reused_runs(mask: tuple[bool, ...]) -> list[int]:
    return [len(list(run)) for computed, run in itertools.groupby(mask) if not computed]


@pytest.mark.parametrize("policy", NAMED)
@pytest.mark.parametrize("total", [int(total) for total in RECORDED])
def test_compatible_masks_are_the_recorded_ones(policy: ScmMaskPolicy, total: int) -> None:
    assert as_text(compat_mask(policy, total)) == RECORDED[str(total)][policy.value]


@pytest.mark.parametrize(
    ("policy", "at_28", "at_50"),
    [
        (
            ScmMaskPolicy.MEDIUM,
            "1111110110001100011000110001",
            "11111111111111110011100000111000001110000011100001",
        ),
        (
            ScmMaskPolicy.FAST,
            "1111110100010000100000100001",
            "11111111111001100000110000000110000000001100000001",
        ),
    ],
)
def test_compatible_masks_are_those_of_the_recorded_runs(
    policy: ScmMaskPolicy, at_28: str, at_50: str
) -> None:
    assert as_text(compat_mask(policy, 28)) == at_28
    assert as_text(compat_mask(policy, 50)) == at_50


@pytest.mark.long
@pytest.mark.timeout(600)
def test_compatible_masks_are_those_of_an_installed_cache_dit() -> None:
    """Importing cache-dit takes many seconds on a busy machine; the recorded masks do not."""
    cache_dit = pytest.importorskip("cache_dit")
    for policy in NAMED:
        for total in set(range(4, 301)) - set(COMPAT_MISSING):
            theirs = cache_dit.steps_mask(total_steps=total, mask_policy=policy.value)
            assert as_text(compat_mask(policy, total)) == "".join(map(str, theirs)), total


@pytest.mark.parametrize("total", COMPAT_MISSING)
def test_a_compatible_mask_that_does_not_exist_says_what_to_take(total: int) -> None:
    with pytest.raises(InvalidArgument, match=r"no step masks for 1, 2, 3, 5, 7 steps") as caught:
        compat_mask(ScmMaskPolicy.FAST, total)
    assert caught.value.field == "params.block_cache.scm_mask_source"
    assert "scm_mask_source own" in str(caught.value)


@given(policies, totals)
def test_own_masks_compute_the_policys_share_within_one_step(
    policy: ScmMaskPolicy, total: int
) -> None:
    mask = own_mask(policy, total)
    assert len(mask) == total
    # With 2 or 3 steps the first and the last alone may be more than the share.
    assert abs(sum(mask) - COMPUTED_AT_28[policy.value] * total / BASE_STEPS) <= (
        1 if total > 3 else 1.5
    )


@given(policies, totals)
def test_own_masks_compute_the_first_and_the_last_step(policy: ScmMaskPolicy, total: int) -> None:
    mask = own_mask(policy, total)
    assert mask[0]
    assert mask[-1]


@given(policies, totals)
def test_own_masks_cap_the_longest_reused_run(policy: ScmMaskPolicy, total: int) -> None:
    longest = max(reused_runs(own_mask(policy, total)), default=0)
    assert longest <= LONGEST_REUSED[policy.value]


@given(policies, totals)
def test_own_masks_compute_the_same_share_at_the_start_as_the_policy(
    policy: ScmMaskPolicy, total: int
) -> None:
    lead = compat_mask(policy, BASE_STEPS).index(False)
    assert all(own_mask(policy, total)[: lead * total // BASE_STEPS])


@given(policies, st.integers(min_value=12, max_value=500))
def test_own_masks_are_denser_in_the_first_half(policy: ScmMaskPolicy, total: int) -> None:
    mask = own_mask(policy, total)
    assert sum(mask[: total // 2]) > sum(mask[-(total // 2) :])


@pytest.mark.parametrize("policy", NAMED)
def test_own_masks_keep_the_policys_counts_at_28_steps(policy: ScmMaskPolicy) -> None:
    own, compat = own_mask(policy, BASE_STEPS), compat_mask(policy, BASE_STEPS)
    assert sum(own) == sum(compat) == COMPUTED_AT_28[policy.value]
    assert max(reused_runs(compat)) == LONGEST_REUSED[policy.value]
    if policy in (ScmMaskPolicy.FAST, ScmMaskPolicy.ULTRA):
        assert own == compat


@pytest.mark.parametrize(
    ("policy", "total", "mask"),
    [
        (ScmMaskPolicy.ULTRA, 1, "1"),
        (ScmMaskPolicy.ULTRA, 2, "11"),
        (ScmMaskPolicy.ULTRA, 3, "101"),
        (ScmMaskPolicy.FAST, 4, "1001"),
        (ScmMaskPolicy.SLOW, 8, "11110101"),
        (ScmMaskPolicy.FAST, 20, "11110100010000100001"),
    ],
)
def test_own_masks_of_short_schedules(policy: ScmMaskPolicy, total: int, mask: str) -> None:
    assert as_text(own_mask(policy, total)) == mask


def test_a_policy_that_names_no_mask_is_refused() -> None:
    for make in (own_mask, compat_mask):
        with pytest.raises(InvalidArgument, match="slow, medium, fast, ultra"):
            make(ScmMaskPolicy.NONE, 28)
        with pytest.raises(InvalidArgument, match="at least 1"):
            make(ScmMaskPolicy.SLOW, 0)


def test_bins_are_interleaved_from_a_computed_run() -> None:
    assert as_text(mask_from_bins((3, 1, 1), (2, 1), 8)) == "11100101"
    assert as_text(mask_from_bins((3, 1), (2, 1), 7)) == "1110010"
    assert as_text(mask_from_bins((2, 1, 1), (3,), 7)) == "1100011"


bins = st.lists(st.integers(min_value=1, max_value=9), min_size=1, max_size=8)


@given(bins, bins)
def test_bins_keep_their_sums(compute_bins: list[int], cache_bins: list[int]) -> None:
    mask = mask_from_bins(compute_bins, cache_bins, sum(compute_bins) + sum(cache_bins))
    assert sum(mask) == sum(compute_bins)
    assert mask.count(False) == sum(cache_bins)


@pytest.mark.parametrize(
    ("compute_bins", "cache_bins", "field", "says"),
    [
        ((8, 3), (1, 2), "compute_bins", r"11 \+ 3 = 14 steps, but there are 20: 6 missing"),
        ((8, 9), (1, 4), "compute_bins", r"17 \+ 5 = 22 steps, but there are 20: 2 too many"),
        ((10**9,), (10**9,), "compute_bins", "1999999980 too many"),
        ((), (1, 2), "compute_bins", "compute_bins is empty; cache_bins needs it"),
        ((8, 3), (), "cache_bins", "cache_bins is empty; compute_bins needs it"),
        ((19, 0), (1,), "compute_bins", "compute_bins holds 0"),
        ((20,), (-1, 1), "cache_bins", "cache_bins holds -1"),
    ],
)
def test_impossible_bins_say_what_is_wrong(
    compute_bins: tuple[int, ...], cache_bins: tuple[int, ...], field: str, says: str
) -> None:
    with pytest.raises(InvalidArgument, match=says) as caught:
        mask_from_bins(compute_bins, cache_bins, 20, field="params.block_cache.")
    assert caught.value.field == f"params.block_cache.{field}"


def test_a_dual_models_second_transformer_starts_with_a_computed_step() -> None:
    first, second = split_mask((True, True, False, False, False, True), 3)
    assert as_text(first) == "110"
    assert as_text(second) == "101"


@given(policies, totals, st.data())
def test_a_split_mask_covers_the_schedule(
    policy: ScmMaskPolicy, total: int, data: st.DataObject
) -> None:
    boundary = data.draw(st.integers(min_value=0, max_value=total))
    mask = own_mask(policy, total)
    first, second = split_mask(mask, boundary)
    assert first == mask[:boundary]
    assert second[1:] == mask[boundary + 1 :]
    assert all(second[:1])
