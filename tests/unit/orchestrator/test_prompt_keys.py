"""Prompts that are saved only as keyed hashes: what the stores then hold, and what still works."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
from tests.unit.orchestrator.site import Site, in_loop, running_site

from skipstone_orchestrator.compatibility import exact_entry_id, prompt_hash
from skipstone_orchestrator.prompt_keys import PromptKeys, read_prompt_keys
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.orchestration import HitTier

PROMPT = "a red circle on a blue background"
NEAR = "a red circle on a green background"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "prompt.key"
    path.write_text(secrets.token_hex(32) + "\n")
    return path


def everything_saved(site: Site) -> str:
    """All that both stores hold, as text."""
    return repr(site.index.partitions) + repr(
        {key: [s for s, _ in steps.values()] for key, steps in site.store.entries.items()}
    )


@in_loop
async def test_no_prompt_and_no_hash_that_can_be_guessed_is_saved(key_file: Path) -> None:
    async with running_site(prompt_key_file=key_file) as site:
        saved_as = (await site.generate(PROMPT, seed=1)).provenance
        saved = everything_saved(site)
    assert "circle" not in saved
    assert prompt_hash(PROMPT) not in saved
    assert saved_as.saved_entry_id in saved
    guess = exact_entry_id(saved_as.compatibility_key, PROMPT, 1)
    assert guess not in saved, "the id of an entry is a hash of its prompt too"


def test_without_a_key_all_of_these_can_be_told() -> None:
    """The test above looks for what is really there when no key is given."""

    @in_loop
    async def run() -> None:
        async with running_site() as site:
            told = (await site.generate(PROMPT, seed=1)).provenance
            saved = everything_saved(site)
        assert "circle" in saved
        assert prompt_hash(PROMPT) in saved
        assert exact_entry_id(told.compatibility_key, PROMPT, 1) in saved

    run()


@in_loop
async def test_the_same_request_is_answered_and_another_seed_finds_its_donor(
    key_file: Path,
) -> None:
    async with running_site(prompt_key_file=key_file) as site:
        first = await site.generate(PROMPT, seed=1)
        again = await site.generate(PROMPT, seed=1)
        assert (again.provenance.tier, again.artifact) == (HitTier.EXACT, first.artifact)
        other = (await site.generate(PROMPT.upper(), seed=2)).provenance
        assert (other.tier, other.donor_prompt) == (HitTier.APPROXIMATE, "")


@in_loop
async def test_a_prompt_is_deleted_and_proved_gone_by_its_keyed_hash(key_file: Path) -> None:
    async with running_site(prompt_key_file=key_file) as site:
        await site.generate(PROMPT, seed=1)
        await site.generate(NEAR, seed=1)
        deleted = await site.orchestrator.deletions.delete_prompt("", PROMPT, "")
        assert deleted.count == 1
        assert deleted.prompt_hash != prompt_hash(PROMPT)
        assert (await site.orchestrator.deletions.verify("", (), PROMPT, "")).is_proof
        assert len(site.index.ids()) == 1


@in_loop
async def test_entries_from_before_the_key_can_be_deleted(key_file: Path) -> None:
    async with running_site() as before:
        await before.generate(PROMPT, seed=1)
        async with running_site(prompt_key_file=key_file) as site:
            deletions = site.orchestrator.deletions
            deletions._index = before.index
            deletions._store = before.store
            assert (await deletions.delete_prompt("", PROMPT, "")).count == 1


def test_two_keys_give_two_hashes_and_one_key_the_same_anywhere() -> None:
    keys = [PromptKeys(bytes([n]) * 32) for n in (1, 2, 1)]
    for told in ([key.hash(PROMPT) for key in keys], [key.exact(PROMPT) for key in keys]):
        assert told[0] == told[2] != told[1]
        assert len(told[0]) == 32
    assert keys[0].hash(PROMPT) != keys[0].exact(PROMPT)


def test_case_and_white_space_count_in_ids_alone() -> None:
    key = PromptKeys(b"k" * 32)
    assert key.hash("A  b") == key.hash("a b")
    assert key.exact("A  b") != key.exact("a b")


@pytest.mark.parametrize("content", [b"", b"short\n", b" " * 64])
def test_a_file_without_a_key_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(InvalidArgument, match=r"prompt_key_file: .* holds . bytes"):
        read_prompt_keys(path)


def test_a_missing_file_is_told_with_its_setting(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="prompt_key_file: cannot read"):
        read_prompt_keys(tmp_path / "nothing")
