"""Deleting by prompt and by namespace, and what counts as a proof that nothing is left."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.orchestrator.site import Site, in_loop, running_site

from skipstone_orchestrator import deletions
from skipstone_shared.errors import InvalidArgument, Unavailable
from skipstone_shared.orchestration import HitTier

PROMPT = "a red circle on a blue background"
SAME = "A  red circle\non a BLUE background"
OTHER = "a red circle on a green background"


async def fill(site: Site) -> None:
    """Two entries of one prompt, one of another, and all of it in a second namespace too."""
    for namespace in ("mine", "theirs"):
        for seed, prompt in ((1, PROMPT), (2, SAME), (3, OTHER)):
            await site.generate(prompt, seed=seed, namespace=namespace)
    assert len(site.store.entries) == 6


@pytest.mark.parametrize("by_hash", [False, True])
@in_loop
async def test_a_prompt_is_deleted_in_its_form_and_others_and_elsewhere_it_stays(
    by_hash: bool,
) -> None:
    async with running_site() as site:
        await fill(site)
        found = site.orchestrator.deletions
        wanted = (await found.delete_prompt("nobody", PROMPT, "")).prompt_hash
        before = site.index.ids("theirs"), len(site.store.entries)
        asked = ("", wanted) if by_hash else (PROMPT, "")
        deleted = await found.delete_prompt("mine", *asked)
        assert (deleted.count, deleted.prompt_hash) == (2, wanted)
        assert len(site.index.ids("mine")) == 1
        assert (site.index.ids("theirs"), len(site.store.entries) + 2) == before
        assert (await found.verify("mine", (), *asked)).is_proof
        assert len((await found.verify("theirs", (), *asked)).vector_entry_ids) == 2
        assert (await found.delete_prompt("mine", *asked)).count == 0
        told = (await site.generate(PROMPT, seed=1, namespace="mine")).provenance
        assert told.tier is not HitTier.EXACT


@in_loop
async def test_a_namespace_is_deleted_whole_and_alone() -> None:
    async with running_site() as site:
        await fill(site)
        site.store.write("mine", "unfinished", 1, 10, "x", compatibility_key="k")
        found = site.orchestrator.deletions
        deleted = await found.delete_namespace("mine")
        assert (deleted.vectors, deleted.latents) == (3, 4)
        assert (await found.verify("mine", (), "", "")).is_proof
        left = await found.verify("theirs", (), "", "")
        assert (len(left.vector_entry_ids), len(left.latent_entry_ids)) == (3, 3)
        assert left.checked_count == 6


@in_loop
async def test_more_than_one_page_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletions, "_PAGE_SIZE", 2)
    async with running_site() as site:
        for seed in range(7):
            await site.generate(PROMPT, seed=seed)
        found = site.orchestrator.deletions
        assert len((await found.verify("", (), PROMPT, "")).latent_entry_ids) == 7
        assert (await found.delete_prompt("", PROMPT, "")).count == 7
        assert (await found.verify("", (), "", "")).is_proof


@in_loop
async def test_what_waits_to_be_saved_is_deleted_too() -> None:
    """Otherwise a picture that was finished before the call would come back behind it."""
    async with running_site() as site:
        held = asyncio.Event()
        commit = site.store.commit_entry

        async def late(namespace: str, entry_id: str) -> object:
            await held.wait()
            return await commit(namespace, entry_id)

        site.store.commit_entry = late  # type: ignore[method-assign,assignment]
        await site.events(PROMPT, seed=1)
        deleting = asyncio.create_task(site.orchestrator.deletions.delete_prompt("", PROMPT, ""))
        await asyncio.sleep(0)
        held.set()
        assert (await deleting).count == 1
        assert (await site.orchestrator.deletions.verify("", (), "", "")).is_proof


@in_loop
async def test_entries_are_verified_in_both_stores() -> None:
    async with running_site() as site:
        ids = [(await site.generate(PROMPT, seed=n)).provenance.saved_entry_id for n in range(3)]
        await site.index.delete_entries("default", ids[:1])
        await site.store.delete_entries("default", ids[1:2])
        left = await site.orchestrator.deletions.verify("", [*ids, "nothing"], "", "")
        assert left.vector_entry_ids == (ids[1], ids[2])
        assert left.latent_entry_ids == (ids[0], ids[2])
        assert not left.is_proof


@in_loop
async def test_latents_without_a_vector_keep_a_prompt_from_being_proved_gone() -> None:
    """latent_kv knows no prompts: an unfinished run may have been of this one."""
    async with running_site() as site:
        site.store.write("default", "unfinished", 1, 10, "x", compatibility_key="k")
        left = await site.orchestrator.deletions.verify("", (), PROMPT, "")
        assert (left.unattributed_count, left.is_proof) == (1, False)


@pytest.mark.parametrize("store", ["index", "store"])
@in_loop
async def test_a_store_that_does_not_answer_proves_nothing(store: str) -> None:
    async with running_site() as site:
        await fill(site)
        getattr(site, store).break_all(Unavailable("gone"), "list_entries", "get_entry")
        for ids, prompt in (((), ""), ((), PROMPT), (("e",), "")):
            with pytest.raises(Unavailable):
                await site.orchestrator.deletions.verify("mine", ids, prompt, "")


@pytest.mark.parametrize(
    ("ids", "prompt", "prompt_hash"),
    [
        (["e"], PROMPT, ""),
        ([], PROMPT, "0" * 32),
        ([], "", "0" * 31),
        ([], "", "G" * 32),
        ([], " ", ""),
        (["a/b"], "", ""),
        (["e"] * 1001, "", ""),
    ],
)
@in_loop
async def test_what_cannot_be_verified_is_refused(
    ids: list[str], prompt: str, prompt_hash: str
) -> None:
    async with running_site() as site:
        with pytest.raises(InvalidArgument):
            await site.orchestrator.deletions.verify("", ids, prompt, prompt_hash)


@in_loop
async def test_without_a_prompt_nothing_is_deleted() -> None:
    async with running_site() as site:
        await fill(site)
        with pytest.raises(InvalidArgument, match="exactly one"):
            await site.orchestrator.deletions.delete_prompt("mine", "", "")
        assert len(site.store.entries) == 6
