"""What a request may ask of the cache, refused with words that can be followed."""

from __future__ import annotations

import pytest

from skipstone_orchestrator.cache_options import check_key_steps
from skipstone_shared.errors import InvalidArgument


@pytest.mark.parametrize("key_steps", [(), (1,), (1, 2, 9)])
def test_ascending_steps_inside_the_run_are_taken(key_steps: tuple[int, ...]) -> None:
    check_key_steps(key_steps, num_inference_steps=10)


@pytest.mark.parametrize("key_steps", [(0,), (10,), (2, 1), (3, 3)])
def test_other_steps_are_refused_with_the_range(key_steps: tuple[int, ...]) -> None:
    with pytest.raises(InvalidArgument, match="each 1 to 9") as caught:
        check_key_steps(key_steps, num_inference_steps=10)
    assert caught.value.field == "cache.key_steps"


def test_a_run_of_one_step_has_none_to_store() -> None:
    with pytest.raises(InvalidArgument, match="empty, since the run has one step"):
        check_key_steps((1,), num_inference_steps=1)
