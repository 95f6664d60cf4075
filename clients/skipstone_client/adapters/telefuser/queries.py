"""What passes between the host, the adapter and the service during one request."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from skipstone_client.reuse_request import ReuseRequest


@dataclasses.dataclass(slots=True)
class CacheQuery:
    """One request of the host.

    Attributes:
        prompt: Its prompt.
        seed: Its seed; None when it has none.
        task_id: The host's id of it.
        task: Kind of generation, such as ``t2v``.
        reuse: Its request to the cache; None until its size is known, and without a cache.
    """

    prompt: str
    seed: int | None
    task_id: str = ""
    task: str = ""
    reuse: ReuseRequest | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class LookupTicket:
    """What ``lookup`` gives: no hit yet, since the host has not told the size of the request.

    Attributes:
        query: The request.
        hit: False.
    """

    query: CacheQuery | None
    hit: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class LatentOutputs:
    """Latents that the host hands over after a request.

    Attributes:
        latents: Tensors by the step that they enter.
        final_step: Last step of the run, as the host counts; None when it does not say.
        frames: Frames of the video, as Pillow has them; up to 16.
    """

    latents: Mapping[int, Any] = dataclasses.field(default_factory=dict)
    final_step: int | None = None
    frames: tuple[Any, ...] = ()
