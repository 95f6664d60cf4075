"""Random sequences of calls, and what they come to: for stores that must equal each other."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

from tests.contract.latent_store_cases import LATENT_BYTES, Write, latents, save

from skipstone_latent_kv.eviction_policies import (
    AgedLeastBenefit,
    EvictionPolicy,
    FirstInFirstOut,
    LeastBenefit,
    LeastRecentlyUsed,
)
from skipstone_latent_kv.store import LatentStore
from skipstone_shared.errors import SkipstoneError
from skipstone_shared.latents import LatentRef
from skipstone_shared.stored_entries import EvictionKind

POLICIES: list[EvictionPolicy] = [
    LeastRecentlyUsed(),
    FirstInFirstOut(),
    LeastBenefit(),
    AgedLeastBenefit(half_life=7),
]

Call = Callable[[LatentStore], object]


def a_call(rng: random.Random) -> Call:
    """A random call, mostly writes, commits and reads of a few entries in two namespaces."""
    namespace = rng.choice("xy")
    entry_id = f"e{rng.randrange(8)}"
    step = rng.choice([2, 5, 9])
    ids = [f"e{rng.randrange(8)}" for _ in range(3)]
    size = rng.choice([1, 1, 2, 3]) * LATENT_BYTES
    write = Write.of(
        entry_id,
        latents(rng.randrange(100), size),
        step_index=step,
        namespace=namespace,
        lease_s=rng.choice([10.0, 30.0]),
    )
    ref = LatentRef(namespace="", entry_id=entry_id, step_index=step)
    pinned = rng.random() < 0.4
    calls: list[tuple[int, Call]] = [
        (8, write.to),
        (6, lambda s: s.commit_entry(namespace, entry_id)),
        (5, lambda s: s.read_latent(namespace, ref).ref),
        (2, lambda s: s.touch_latent(namespace, ref)),
        (2, lambda s: s.get_entry(namespace, entry_id)),
        (1, lambda s: s.renew_lease(namespace, entry_id, 30.0)),
        (1, lambda s: s.pin_entries(namespace, ids, pinned)),
        (1, lambda s: s.delete_entries(namespace, ids)),
        (1, lambda s: s.list_entries(namespace, 2, "", pinned)),
        (1, lambda s: s.get_stats(namespace).size_bytes),
    ]
    weights = [weight for weight, _ in calls]
    return rng.choices([call for _, call in calls], weights)[0]


def outcome(call: Call, store: LatentStore) -> object:
    """What a call returns, or which error it raises."""
    try:
        return call(store)
    except SkipstoneError as error:
        return type(error)


def events_of(store: LatentStore) -> list[list[tuple[str, str, str]]]:
    """All events so far in runs; what ended at the same time is in no order."""
    save(store, "the-end", namespace="z")
    store.delete_entries("z", ["the-end"])
    watch = store.watch_evictions("", 1)
    found: list[tuple[str, str, str]] = []
    while not found or found[-1][2] != "the-end":
        event = next(watch)
        assert event.sequence == len(found) + 2
        found.append((event.kind.value, event.namespace, event.entry_id))
    watch.close()
    ended = {EvictionKind.LEASE_ENDED.value, EvictionKind.EXPIRED.value}
    runs = itertools.groupby(found, key=lambda event: event[0] in ended)
    return [sorted(run) if over else list(run) for over, run in runs]
