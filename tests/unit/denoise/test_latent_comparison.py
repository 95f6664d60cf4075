"""The distance of latents: 0 for the same, about 1 for unrelated ones, whatever their scale."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from skipstone_denoise.latent_comparison import latent_distance

RANDOM = np.random.default_rng(5)
ONE, OTHER = (RANDOM.standard_normal((1, 4, 32, 32)).astype(np.float32) for _ in range(2))


def test_equal_latents_are_0_apart_and_unrelated_ones_about_1() -> None:
    assert latent_distance(ONE, ONE) == 0.0
    assert latent_distance(ONE, OTHER) == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_neither_scale_nor_offset_of_a_model_counts(scale: float) -> None:
    moved = latent_distance(ONE * scale + 5 * scale, OTHER * scale + 5 * scale)
    assert moved == pytest.approx(latent_distance(ONE, OTHER), rel=1e-3)


def test_the_further_apart_the_larger() -> None:
    mixes = [latent_distance(ONE, ONE + share * OTHER) for share in (0.1, 0.3, 0.9)]
    assert mixes == sorted(mixes)
    assert mixes[0] == pytest.approx(0.1 / math.sqrt(2), rel=0.1)


def test_half_precision_is_compared_in_full() -> None:
    half = ONE.astype(ml_dtypes.bfloat16)
    assert 0.0 < latent_distance(half, ONE) < 0.01
    big = (OTHER * 1e4).astype(np.float16)
    assert latent_distance(big, big) == 0.0
    assert math.isfinite(latent_distance(big, -big))


def test_constant_latents_are_the_same_or_infinitely_far() -> None:
    flat = np.ones((1, 4, 2, 2), np.float32)
    assert latent_distance(flat, flat) == 0.0
    assert latent_distance(flat, 2 * flat) == math.inf


def test_what_is_not_finite_has_no_distance() -> None:
    broken = ONE.copy()
    broken[0, 0, 0, 0] = np.nan
    assert math.isnan(latent_distance(broken, ONE))
