"""Many requests at once are the same requests one after another."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.e2e.generations import (
    OFF,
    PROMPT,
    REWORDED,
    UNRELATED,
    entry_count,
    generate,
    generate_saved,
    picture,
    wait_saved,
)
from tests.e2e.processes import Cluster, wait_until

from skipstone_shared.errors import QueueFull
from skipstone_shared.orchestration import CacheMode, CacheOptions, HitTier

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

REQUESTS = [
    (prompt, seed, steps)
    for prompt, seed in [(PROMPT, 1), (REWORDED, 2), (UNRELATED, 3), (PROMPT + "!", 4)]
    for steps in (12, 20)
]


@pytest.mark.parametrize("mode", [CacheMode.OFF, CacheMode.WRITE_ONLY])
def test_eight_different_requests_at_once_equal_the_same_eight_one_after_another(
    cluster: Cluster, namespace: str, mode: CacheMode
) -> None:
    options = CacheOptions(mode=mode)

    def ask(request: tuple[str, int, int]) -> str:
        prompt, seed, steps = request
        result = generate(cluster.client, namespace, prompt, seed=seed, steps=steps, cache=options)
        assert result.provenance.executed_steps == steps
        return picture(result)

    one_by_one = [ask(request) for request in REQUESTS]
    assert len(set(one_by_one)) == len(REQUESTS)
    with ThreadPoolExecutor(len(REQUESTS)) as callers:
        assert list(callers.map(ask, REQUESTS)) == one_by_one


def test_eight_hits_at_once_equal_the_same_eight_one_after_another(
    cluster: Cluster, namespace: str
) -> None:
    for prompt in (PROMPT, UNRELATED):
        generate_saved(cluster, namespace, prompt)
    reads = CacheOptions(mode=CacheMode.READ_ONLY)

    def ask(seed: int) -> tuple[HitTier, str]:
        prompt = (REWORDED, UNRELATED)[seed % 2]
        result = generate(cluster.client, namespace, prompt, seed=seed, cache=reads)
        return result.provenance.tier, picture(result)

    one_by_one = [ask(seed) for seed in range(8)]
    assert Counter(tier for tier, _ in one_by_one) == {HitTier.APPROXIMATE: 7, HitTier.EXACT: 1}
    with ThreadPoolExecutor(8) as callers:
        assert list(callers.map(ask, range(8))) == one_by_one


def test_the_same_request_many_times_at_once_is_saved_once(
    cluster: Cluster, namespace: str
) -> None:
    with ThreadPoolExecutor(6) as callers:
        results = list(callers.map(lambda _: generate(cluster.client, namespace), range(6)))
    assert len({picture(result) for result in results}) == 1
    saved = [result for result in results if result.provenance.saved_entry_id]
    wait_saved(cluster, namespace, saved[0])
    assert entry_count(cluster, namespace) == 1
    again = generate(cluster.client, namespace)
    assert again.provenance.tier is HitTier.EXACT
    assert picture(again) == picture(results[0])


def test_twenty_clients_at_once_get_their_picture_or_are_told_to_come_later(
    cluster: Cluster, namespace: str
) -> None:
    expected = picture(generate(cluster.client, namespace, cache=OFF))

    def ask(number: int) -> str:
        try:
            result = generate(cluster.client, f"{namespace}-{number}", steps=20)
        except QueueFull:
            return "full"
        return picture(result)

    with ThreadPoolExecutor(20) as callers:
        answers = Counter(callers.map(ask, range(20)))
    assert set(answers) <= {expected, "full"}
    assert answers[expected] >= 18, "two run and sixteen wait"
    stats = cluster.denoise.get_stats
    wait_until(lambda: stats().running_count + stats().queued_count == 0, "the executor is idle")
