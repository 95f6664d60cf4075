"""Step masks (SCM, step computation masking): which steps of a schedule must be computed.

A mask has one value per step, True where the step is computed and False where it may be reused.
That errors made early weigh more than late ones, so that the early steps are computed most densely,
is the finding of LeMiCa (Gao et al. 2025, arXiv 2511.00090). The four named masks are those of
cache-dit (Apache-2.0), whose bins at 28 steps are the measure of both rules here: `own_mask` holds
for every number of steps, `compat_mask` makes the masks cache-dit makes, where it makes one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import ScmMaskPolicy

BASE_STEPS = 28
"""Number of steps for which the named masks are defined."""

_Bins = tuple[tuple[int, ...], tuple[int, ...]]

_BINS: Mapping[ScmMaskPolicy, _Bins] = {
    ScmMaskPolicy.SLOW: ((8, 3, 3, 2, 1, 1), (1, 2, 2, 2, 3)),
    ScmMaskPolicy.MEDIUM: ((6, 2, 2, 2, 2, 1), (1, 3, 3, 3, 3)),
    ScmMaskPolicy.FAST: ((6, 1, 1, 1, 1, 1), (1, 3, 4, 5, 4)),
    ScmMaskPolicy.ULTRA: ((4, 1, 1, 1, 1), (2, 5, 6, 7)),
}
"""Runs of computed steps and the runs of reusable steps between them, at `BASE_STEPS`."""

# What cache-dit has for distilled models of few steps. 4 and 6 are the same for all policies.
_BINS_4: _Bins = ((2, 1), (1,))
_BINS_6: _Bins = ((3, 1), (2,))
_BINS_8: Mapping[ScmMaskPolicy, _Bins] = {
    ScmMaskPolicy.SLOW: ((5, 1, 1), (1,)),
    ScmMaskPolicy.MEDIUM: ((4, 1, 1), (1, 1)),
    ScmMaskPolicy.FAST: ((3, 1, 1), (1, 2)),
    ScmMaskPolicy.ULTRA: ((2, 1, 1), (2, 2)),
}
_BINS_9: Mapping[ScmMaskPolicy, _Bins] = {
    ScmMaskPolicy.SLOW: ((5, 2, 1), (1,)),
    ScmMaskPolicy.MEDIUM: ((5, 1, 1), (1, 1)),
    ScmMaskPolicy.FAST: ((4, 1, 1), (1, 2)),
    ScmMaskPolicy.ULTRA: ((3, 1, 1), (2, 2)),
}
_BINS_15: Mapping[ScmMaskPolicy, _Bins] = {
    ScmMaskPolicy.SLOW: ((4, 2, 2, 2, 1), (1, 1, 1, 1)),
    ScmMaskPolicy.MEDIUM: ((4, 2, 1, 1, 1), (1, 1, 2, 2)),
    ScmMaskPolicy.FAST: ((3, 1, 1, 1, 1), (1, 2, 2, 3)),
    ScmMaskPolicy.ULTRA: ((2, 1, 1, 1, 1), (1, 2, 3, 3)),
}

COMPAT_MISSING = (1, 2, 3, 5, 7)
"""Numbers of steps for which cache-dit makes no mask."""


def own_mask(policy: ScmMaskPolicy, total: int) -> tuple[bool, ...]:
    """The mask of a policy for any number of steps, by Skipstone's rule.

    The bins at 28 steps are read as a density over the schedule: the leading run is all computed,
    then each reusable run and the computed run behind it are one stretch of even density. A
    step is computed where the integral of the density passes a whole number, with the phase that
    puts the last one on the last step. So for every total the share of computed steps is the
    policy's, rounded up; the same share of the first steps is computed in full; and no more steps
    are reused in a row than at 28 steps (slow and medium 3, fast 5, ultra 7), because the lowest
    density is one computed step in that many and one. At 28 steps fast and ultra are cache-dit's
    masks, while slow and medium spread the same number of computed steps more evenly.

    First and last step are always computed, which is more than the share for 2 and 3 steps.

    Args:
        policy: slow, medium, fast or ultra.
        total: Number of steps, at least 1.

    Returns:
        One value per step, True where it is computed.

    Raises:
        InvalidArgument: the policy names no mask, or total is below 1.
    """
    _check_total(total)
    integral, one_step = _density_integral(_base_bins(policy), total)
    phase = -integral[-1] % one_step
    counts = [(value + phase) // one_step for value in integral]
    return (True, *(before < after for before, after in itertools.pairwise(counts)))


def _density_integral(bins: _Bins, total: int) -> tuple[list[int], int]:
    """Integral of the density behind each of `total` steps, and what one computed step is in it.

    In whole numbers, so that rounding cannot move a step: positions are counted in parts of one
    `total`-th of a step at 28, densities in parts of a common multiple of the stretches' lengths.
    """
    compute_bins, cache_bins = bins
    stretches = [(compute_bins[0], compute_bins[0])]
    for cached, run in zip(cache_bins, compute_bins[1:], strict=True):
        stretches.append((cached + run, run))
    common = math.lcm(*(length for length, _ in stretches))
    integral = [0] * total
    start = 0
    for length, computed in stretches:
        for step in range(total):
            inside = min(max(BASE_STEPS * (step + 1) - start, 0), length * total)
            integral[step] += inside * computed * (common // length)
        start += length * total
    return integral, BASE_STEPS * common


def compat_mask(
    policy: ScmMaskPolicy, total: int, *, field: str = "params.block_cache."
) -> tuple[bool, ...]:
    """The mask that cache-dit 1.5 makes of a policy for a number of steps.

    Tables for 4, 6, 8, 9 and 15 steps and the one for 28, shortened from behind in between and
    lengthened bin by bin above. At 16 to 24 steps some of them reuse 11 to 15 steps in a row.

    Args:
        policy: slow, medium, fast or ultra.
        total: Number of steps: 4, 6 or at least 8.
        field: Where the mask was asked for, for errors.

    Returns:
        One value per step, True where it is computed; the last is always True.

    Raises:
        InvalidArgument: the policy names no mask, or cache-dit makes none for this total.
    """
    _check_total(total)
    base = _base_bins(policy)
    if total in COMPAT_MISSING:
        missing = ", ".join(str(number) for number in COMPAT_MISSING)
        raise InvalidArgument(
            f"{field}scm_mask_source: cache-dit makes no step masks for {missing} steps, and this "
            f"transformer takes {total} steps; take Skipstone's own masks (scm_mask_source own), "
            "which exist for every number of steps",
            field=f"{field}scm_mask_source",
            allowed="own, or compat with 4, 6 or at least 8 steps",
        )
    if total > BASE_STEPS:
        compute_bins, cache_bins = _lengthened(base, total)
    else:
        table = {4: _BINS_4, 6: _BINS_6, 8: _BINS_8.get(policy), 9: _BINS_9.get(policy)}
        compute_bins, cache_bins = table.get(total) or (_BINS_15[policy] if total < 16 else base)
    mask = _interleaved(*_shortened(compute_bins, cache_bins, total))
    return (*mask[:-1], True)


def _lengthened(bins: _Bins, total: int) -> _Bins:
    """Bins grown in turn until they cover `total`: c0, k0, c1, k1, ..., and the last c by one."""
    compute_bins, cache_bins = bins
    runs = [run for pair in zip(compute_bins, cache_bins, strict=False) for run in pair]
    growth = [max(int(run * (total / (2 * BASE_STEPS))), 1) for run in runs] + [1]
    runs.append(compute_bins[-1])
    missing = total - sum(runs)
    for index in itertools.cycle(range(len(runs))):
        if missing <= 0:
            break
        runs[index] += growth[index]
        missing -= growth[index]
    return tuple(runs[::2]), tuple(runs[1::2])


def _shortened(compute_bins: Sequence[int], cache_bins: Sequence[int], total: int) -> _Bins:
    """Bins cut to `total` steps, alternately by the last reusable and the last computed step."""
    left, right = list(compute_bins), list(cache_bins)
    excess = sum(left) + sum(right) - total
    for bins in itertools.islice(itertools.cycle((right, left)), max(excess, 0)):
        bins[-1] -= 1
        if not bins[-1]:
            bins.pop()
    return tuple(left), tuple(right)


def mask_from_bins(
    compute_bins: Sequence[int], cache_bins: Sequence[int], total: int, *, field: str = ""
) -> tuple[bool, ...]:
    """The mask of custom bins: runs of computed steps with runs of reusable ones between them.

    Bins without a partner follow at the end, as in cache-dit.

    Args:
        compute_bins: Lengths of the runs of computed steps, each at least 1; the first starts.
        cache_bins: Lengths of the runs of reusable steps, each at least 1.
        total: Number of steps that both must sum to.
        field: Where the bins come from, `params.block_cache.` or the like, for errors.

    Returns:
        One value per step, True where it is computed.

    Raises:
        InvalidArgument: one of the two is empty, a bin is below 1, or the sum is not `total`.
    """
    for name, bins, other in (
        ("compute_bins", compute_bins, "cache_bins"),
        ("cache_bins", cache_bins, "compute_bins"),
    ):
        if not bins:
            raise InvalidArgument(
                f"{field}{name} is empty; {other} needs it, as the two are interleaved",
                field=field + name,
                allowed=f"lengths of at least 1 that sum with {other} to {total}",
            )
        if any(run < 1 for run in bins):
            raise InvalidArgument(
                f"{field}{name} holds {min(bins)}; leave out runs that are empty",
                field=field + name,
                allowed="lengths of at least 1",
            )
    covered = sum(compute_bins) + sum(cache_bins)
    if covered != total:
        wrong = f"{total - covered} missing" if covered < total else f"{covered - total} too many"
        raise InvalidArgument(
            f"{field}compute_bins and cache_bins cover {sum(compute_bins)} + {sum(cache_bins)} = "
            f"{covered} steps, but there are {total}: {wrong}",
            field=f"{field}compute_bins",
            allowed=f"bins that sum to {total}",
        )
    return _interleaved(compute_bins, cache_bins)


def _interleaved(compute_bins: Sequence[int], cache_bins: Sequence[int]) -> tuple[bool, ...]:
    mask: list[bool] = []
    for computed, cached in itertools.zip_longest(compute_bins, cache_bins, fillvalue=0):
        mask += [True] * computed + [False] * cached
    return tuple(mask)


def split_mask(
    mask: Sequence[bool], first_step_of_second: int
) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
    """The parts of a schedule's mask that the two transformers of a dual model run.

    The second transformer's first step is computed whatever the mask says: it has computed nothing
    before that it could reuse.

    Args:
        mask: One value per step of the whole schedule.
        first_step_of_second: Step at which the second transformer takes over, 0 to `len(mask)`.
    """
    first, second = tuple(mask[:first_step_of_second]), tuple(mask[first_step_of_second:])
    return first, (True, *second[1:]) if second else ()


def _base_bins(policy: ScmMaskPolicy) -> _Bins:
    if policy not in _BINS:
        raise InvalidArgument(
            f"step mask policy {policy.value!r} names no mask",
            field="params.block_cache.scm_steps_mask_policy",
            allowed=", ".join(named.value for named in _BINS),
        )
    return _BINS[policy]


def _check_total(total: int) -> None:
    if total < 1:
        raise InvalidArgument(
            f"a step mask of {total} steps",
            field="params.num_inference_steps",
            allowed="at least 1",
        )
