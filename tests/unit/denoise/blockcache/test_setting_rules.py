"""What the rules say beforehand is what DBCache then does."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from skipstone_denoise.blockcache.dbcache import DBCacheState, Reason, StepRecord
from skipstone_denoise.blockcache.patterns import Streams
from skipstone_denoise.blockcache.setting_rules import fewest_computed, why_never_reused
from skipstone_denoise.blockcache.settings import DBCacheSettings

STEPS = 12

_masks = st.lists(st.booleans(), min_size=STEPS, max_size=STEPS).map(tuple)
_settings = st.builds(
    DBCacheSettings,
    max_warmup_steps=st.integers(min_value=0, max_value=STEPS + 1),
    warmup_interval=st.integers(min_value=1, max_value=4),
    max_cached_steps=st.integers(min_value=-1, max_value=5),
    max_continuous_cached_steps=st.integers(min_value=-1, max_value=4),
    residual_diff_threshold=st.sampled_from([0.0, 0.24, 1.0]),
    steps_mask=st.none() | _masks,
    static_mask=st.booleans(),
)


@given(_settings)
def test_the_fewest_computed_steps_are_those_of_a_run_in_which_nothing_changes(
    settings: DBCacheSettings,
) -> None:
    hidden = Streams(torch.zeros(1, 2), None)
    state = DBCacheState(settings)
    computed = 0
    for step in range(STEPS):
        reason = state.rule(step, hidden.hidden) or Reason.BELOW_THRESHOLD
        state.record(step, StepRecord(step, reason))
        if not reason.reuses:
            computed += 1
            state.store(step, hidden.hidden, hidden, hidden)
    assert fewest_computed(settings, STEPS) == computed
    assert (why_never_reused(settings, STEPS) is not None) == (computed == STEPS)
