"""Which inputs go through the model together: those of like length, since the rest is padding."""

from __future__ import annotations

from collections.abc import Sequence

_SLACK_TOKENS = 16
"""Up to this much padding per input costs less than another pass through the model."""


def length_buckets(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Groups inputs by length.

    Args:
        lengths: Tokens of each input, at least 1.
        max_tokens: Tokens of a group with its padding; an input longer than that is alone.

    Returns:
        Groups of indices into ``lengths``. Inside a group nothing is padded to more than twice its
        length and a little.
    """
    groups: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        length = lengths[index]
        fits = (
            groups
            and length <= 2 * lengths[groups[-1][0]] + _SLACK_TOKENS
            and length * (len(groups[-1]) + 1) <= max_tokens
        )
        if fits:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups
