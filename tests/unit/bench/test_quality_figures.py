"""What the figures of reuse are computed with: distances, the knee, steps of equal quality."""

import numpy as np
import pytest

from quality.decisions import Decision
from quality.equal_quality import falling, knee, steps_of_equal_loss
from quality.measures import Pictures, energy_distance, energy_kernel, mean_pair_distance
from quality.methods import Method, Reuse, executed_steps, plain, run_of
from quality.pictures import Picture
from quality.trace import CaptionRequest

STEPS = (5, 10, 20, 40)
LOSSES = np.array([16.0, 4.0, 1.0, 0.25])


def pictures(shift: float, seed: int, count: int = 120) -> Pictures:
    rng = np.random.default_rng(seed)
    record = Picture("", 1, 1.0, (True,), 0.0)
    pixels = rng.normal(shift, 1.0, size=(count, 48)).astype(np.float32)
    return Pictures((record,) * count, pixels)


def test_energy_distance_is_near_zero_for_equal_distributions_and_grows_with_the_shift() -> None:
    ones = np.ones((1, 120))
    reference = pictures(0.0, 1)
    near, small, large = (
        energy_distance(energy_kernel(pictures(shift, 2), reference), ones)[0]
        for shift in (0.0, 0.3, 1.0)
    )
    assert abs(near) < 0.01
    assert near < small < large


def test_a_request_drawn_twice_is_no_pair_with_itself() -> None:
    kernel = energy_kernel(pictures(0.5, 2, 3), pictures(0.0, 1, 3))
    once = energy_distance(kernel[:2, :2], np.ones((1, 2)))
    twice = energy_distance(kernel, np.array([[2.0, 2.0, 0.0]]))
    assert twice == pytest.approx(once)


def test_equal_pictures_have_no_spread() -> None:
    same = [np.full((64, 64, 3), 7.0, dtype=np.float32)] * 4
    assert mean_pair_distance(same) == pytest.approx(0.0, abs=1e-3)
    other = [*same[:1], np.full((64, 64, 3), 10.0, dtype=np.float32)]
    assert mean_pair_distance(other) == pytest.approx(3.0, abs=1e-3)


def test_the_quality_of_a_plain_run_is_worth_its_steps() -> None:
    for steps, loss in zip(STEPS, LOSSES, strict=True):
        assert steps_of_equal_loss(STEPS, LOSSES, loss) == steps


def test_a_quality_between_two_plain_runs_lies_between_their_steps() -> None:
    assert steps_of_equal_loss(STEPS, LOSSES, 2.5) == pytest.approx(15.0)


def test_no_quality_is_worth_more_than_the_most_or_less_than_the_fewest_steps() -> None:
    assert steps_of_equal_loss(STEPS, LOSSES, 0.0) == 40
    assert steps_of_equal_loss(STEPS, LOSSES, 99.0) == 5


def test_pictures_of_the_full_run_are_worth_all_its_steps_also_at_a_noisy_end_of_the_curve() -> (
    None
):
    assert steps_of_equal_loss(STEPS, np.array([16.0, 4.0, 0.9, 1.0]), 1.0) == 40


def test_a_noisy_curve_never_rises_with_the_steps() -> None:
    assert np.all(np.diff(falling(np.array([3.0, 1.0, 2.0, 0.5]))) <= 0)


def test_the_knee_of_a_hyperbola_lies_where_it_turns() -> None:
    steps = list(range(1, 51))
    found = knee(steps, np.array([1.0 / n for n in steps]))
    # Of 1/n from 1 to 50 the point furthest below the line between the ends is n = sqrt(50).
    assert found == 7


def _request(index: int, seed: int) -> CaptionRequest:
    return CaptionRequest(index, f"caption {index}", seed, "new", 0, None)


REQUESTS = [_request(0, 10), _request(1, 11), _request(2, 11)]
DECISIONS = [
    Decision("miss", "NO_CANDIDATE"),
    Decision("approximate", "DONOR_RESUMED", 4, "renoise", donor=0),
    Decision("exact", "EXACT_HIT", 20, donor=1),
]


def test_an_exact_hit_shows_the_picture_of_the_run_that_it_repeats_also_if_that_was_resumed() -> (
    None
):
    method = Method("latent cache", 20, Reuse.LATENT)
    resumed = run_of(method, 1, REQUESTS, DECISIONS)
    assert (resumed.skip_steps, resumed.seed) == (4, 11)
    assert resumed.donor == run_of(method, 0, REQUESTS, DECISIONS)
    assert run_of(method, 2, REQUESTS, DECISIONS) == resumed


def test_without_latent_reuse_every_picture_is_that_of_a_full_run() -> None:
    for method in (plain(20), Method("exact cache", 20, Reuse.EXACT)):
        assert run_of(method, 1, REQUESTS, DECISIONS).donor is None


@pytest.mark.parametrize(
    ("reuse", "steps"),
    [(Reuse.NONE, [20, 20, 20]), (Reuse.EXACT, [20, 20, 0]), (Reuse.LATENT, [20, 16, 0])],
)
def test_a_request_costs_the_steps_that_its_method_does_not_save(
    reuse: Reuse, steps: list[int]
) -> None:
    method = Method("any", 20, reuse)
    assert [executed_steps(method, decision) for decision in DECISIONS] == steps
