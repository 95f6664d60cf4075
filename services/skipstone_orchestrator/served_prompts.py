"""Which prompts were answered from another request's latent lately, so that a new seed differs.

From one donor many seeds give pictures that are alike: fine for the first of them, which nobody has
seen before, and not for the second, whose caller changed the seed to see another picture.
"""

from __future__ import annotations

from collections import OrderedDict

from skipstone_orchestrator.decision import Query

_MAX_PROMPTS = 10_000
"""About 2 MB."""

_Key = tuple[str, str, str]


class ServedPrompts:
    """The first seed that each prompt was answered with from a donor. For one event loop.

    Every replica knows its own answers only. What full runs gave needs no memory: they are donors
    of the same prompt themselves.
    """

    def __init__(self, max_prompts: int = _MAX_PROMPTS) -> None:
        """Starts with none; of very many the ones not asked for longest are forgotten."""
        self._max_prompts = max_prompts
        self._seeds: OrderedDict[_Key, int | None] = OrderedDict()

    def note(self, query: Query) -> None:
        """Notes that a request is answered from another request's latent."""
        self._seeds.setdefault(_key(query), query.seed)
        if len(self._seeds) > self._max_prompts:
            self._seeds.popitem(last=False)

    def had_another_seed(self, query: Query) -> bool:
        """Whether the prompt of a request was answered with another seed before."""
        key = _key(query)
        if key not in self._seeds:
            return False
        self._seeds.move_to_end(key)
        first = self._seeds[key]
        return first is None or query.seed != first


def _key(query: Query) -> _Key:
    return query.namespace, query.compatibility_key, query.prompts.hash(query.prompt)
