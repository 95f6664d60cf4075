"""Quality of the pictures of a sample, under any weights of its requests.

Weights are how often each request was drawn: all 1 for the sample itself, other numbers in a
bootstrap. Rows of weights are one draw each, so that all draws are one product of matrices.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from quality.pictures import Picture, Pixels

Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True)
class Pictures:
    """The pictures of one method, in the order of the sample.

    Attributes:
        records: What is known of each.
        pixels: `(requests, 64 * 64 * 3)`, 0 to 255.
    """

    records: tuple[Picture, ...]
    pixels: Pixels

    @classmethod
    def of(cls, records: Sequence[Picture], pixels: Sequence[Pixels]) -> Pictures:
        """Puts single pictures together."""
        return cls(tuple(records), np.stack(pixels).reshape(len(pixels), -1))

    def first(self, count: int) -> Pictures:
        """The pictures of the first requests of the sample."""
        return Pictures(self.records[:count], self.pixels[:count])


def attribute_accuracy(pictures: Pictures) -> Floats:
    """Share of the attributes asked for that each picture has, `(requests,)`."""
    return np.array([np.mean(record.attributes) for record in pictures.records])


def everything_right(pictures: Pictures) -> Floats:
    """1 where a picture has all attributes, `(requests,)`."""
    return np.array([float(all(record.attributes)) for record in pictures.records])


def distances(pictures: Pictures, others: Pictures) -> Floats:
    """Root mean square difference of each pair of pictures in grey levels, `(requests,)`."""
    gaps = pictures.pixels.astype(np.float64) - others.pixels
    root: Floats = np.sqrt(np.square(gaps).mean(axis=1))
    return root


def energy_kernel(pictures: Pictures, reference: Pictures) -> Floats:
    """Pairwise terms of the energy distance between two sets of pictures.

    The energy distance 2 E|X - Y| - E|X - X'| - E|Y - Y'| (Székely and Rizzo, 2013, J. Statistical
    Planning and Inference 143(8), equation 1) of samples that go in pairs, here by their caption,
    is the mean over i != j of h(i, j) = |x_i - y_j| + |x_j - y_i| - |x_i - x_j| - |y_i - y_j|: an
    estimate without bias, in which what captions add to the spread cancels. Norms are root mean
    squares over the pixels.

    Returns:
        h, `(requests, requests)`, in grey levels, 0 on the diagonal.
    """
    cross = _norms(pictures.pixels, reference.pixels)
    kernel = (
        cross
        + cross.T
        - _norms(pictures.pixels, pictures.pixels)
        - _norms(reference.pixels, reference.pixels)
    )
    np.fill_diagonal(kernel, 0.0)
    return kernel


def weighted_mean(values: Floats, weights: Floats) -> Floats:
    """Mean of values `(requests,)` under each row of weights `(draws, requests)`."""
    mean: Floats = weights @ values / weights.sum(axis=1)
    return mean


def energy_distance(kernel: Floats, weights: Floats) -> Floats:
    """Mean of a kernel over pairs of different requests under each row of weights."""
    total = np.einsum("di,ij,dj->d", weights, kernel, weights, optimize=True)
    pairs = np.square(weights.sum(axis=1)) - np.square(weights).sum(axis=1)
    distance: Floats = total / pairs
    return distance


def mean_pair_distance(pixels: Sequence[Pixels]) -> float:
    """Mean root mean square difference over all pairs of pictures, in grey levels."""
    flat = np.stack(pixels).reshape(len(pixels), -1)
    upper = np.triu_indices(len(pixels), 1)
    return float(_norms(flat, flat)[upper].mean())


def _norms(left: Pixels, right: Pixels) -> Floats:
    a, b = left.astype(np.float64), right.astype(np.float64)
    squares = np.square(a).sum(1)[:, None] + np.square(b).sum(1)[None, :] - 2.0 * a @ b.T
    norms: Floats = np.sqrt(np.maximum(squares, 0.0) / a.shape[1])
    return norms
