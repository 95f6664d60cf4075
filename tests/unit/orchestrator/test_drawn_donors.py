"""A donor drawn at random: only of those the policy takes, near the best, each at its own depth."""

from __future__ import annotations

import pytest
from tests.unit.orchestrator.site import Site, in_loop, running_site

from skipstone_shared.errors import InvalidArgument
from skipstone_shared.orchestration import CacheMode, CacheOptions, HitTier, Provenance

PROMPT = "a b c d e f g h i j k l m n o p q r s t"
NEAR = PROMPT.replace("t", "u")
"""0.95: one word of twenty is another."""
NEARER = PROMPT.replace("s t", "t s")
"""1.0: all words are the same."""
FAR = PROMPT.replace("r s t", "x y z")
"""0.85."""
READS = CacheOptions(mode=CacheMode.READ_ONLY)


async def filled(site: Site) -> dict[str, str]:
    """Entry id per donor's prompt."""
    alone = CacheOptions(mode=CacheMode.WRITE_ONLY)
    return {
        prompt: (await site.generate(prompt, seed=n, cache=alone)).provenance.saved_entry_id
        for n, prompt in enumerate((NEARER, NEAR, FAR))
    }


async def ask(site: Site, choices: int | None, margin: float | None) -> Provenance:
    cache = CacheOptions(mode=CacheMode.READ_ONLY, donor_choices=choices, donor_margin=margin)
    return (await site.generate(PROMPT, seed=9, cache=cache)).provenance


@in_loop
async def test_by_default_the_best_is_taken_and_nothing_drawn() -> None:
    async with running_site() as site:
        ids = await filled(site)
        told = await ask(site, None, None)
        assert (told.donor_entry_id, told.donor_choices) == (ids[NEARER], 1)
        assert site.draws == []


@in_loop
async def test_the_donor_is_drawn_among_the_best_and_the_provenance_says_so() -> None:
    async with running_site() as site:
        ids = await filled(site)
        best = await ask(site, None, None)
        told = await ask(site, 2, 0.06)
        assert (told.donor_entry_id, told.donor_choices) == (ids[NEAR], 2)
        assert told.skip_steps < best.skip_steps, "at the depth of its own score"
        assert site.draws == [2]


@pytest.mark.parametrize(
    ("choices", "margin", "drawn"), [(8, 0.2, 3), (8, 0.06, 2), (2, 0.2, 2), (8, 0.01, 0)]
)
@in_loop
async def test_number_and_margin_both_bound_what_may_be_drawn(
    choices: int, margin: float, drawn: int
) -> None:
    async with running_site() as site:
        await filled(site)
        told = await ask(site, choices, margin)
        assert told.donor_choices == (drawn or 1)
        assert site.draws == ([drawn] if drawn else [])


@in_loop
async def test_what_the_policy_refuses_is_never_drawn() -> None:
    async with running_site(min_similarity=0.9) as site:
        ids = await filled(site)
        told = await ask(site, 8, 1.0)
        assert told.donor_choices == 2
        assert told.donor_entry_id != ids[FAR]


@in_loop
async def test_a_drawn_donor_that_is_gone_makes_way_for_the_best() -> None:
    async with running_site() as site:
        ids = await filled(site)
        await site.store.delete_entries("default", [ids[NEAR]])
        told = await ask(site, 2, 0.06)
        assert (told.tier, told.donor_entry_id) == (HitTier.APPROXIMATE, ids[NEARER])


@in_loop
async def test_the_setting_holds_for_requests_that_do_not_say() -> None:
    async with running_site(donor_choices=2, donor_margin=0.06) as site:
        ids = await filled(site)
        assert (await ask(site, None, None)).donor_entry_id == ids[NEAR]
        assert (await ask(site, 1, None)).donor_entry_id == ids[NEARER]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (CacheOptions(donor_choices=0), "cache.donor_choices"),
        (CacheOptions(donor_choices=101), "cache.donor_choices"),
        (CacheOptions(donor_margin=-0.1), "cache.donor_margin"),
        (CacheOptions(donor_margin=float("nan")), "cache.donor_margin"),
    ],
)
@in_loop
async def test_options_out_of_range_are_refused_by_name(options: CacheOptions, field: str) -> None:
    async with running_site() as site:
        with pytest.raises(InvalidArgument) as caught:
            await site.generate(PROMPT, cache=options)
        assert caught.value.field == field
