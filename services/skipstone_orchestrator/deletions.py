"""Deleting a prompt or a namespace for good, and proving that nothing is left.

Always from the index first: none may be found whose latents are gone.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from skipstone_orchestrator.backends import EntryIndex, LatentEntries
from skipstone_orchestrator.compatibility import PROMPT_HASH_LABEL
from skipstone_orchestrator.deadlines import Guards
from skipstone_orchestrator.paging import all_pages
from skipstone_orchestrator.plans import check_prompt
from skipstone_orchestrator.prompt_keys import PromptKeys
from skipstone_shared.deletion import MAX_SHOWN, DeletedNamespace, DeletedPrompt, Leftovers
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.index_entries import IndexEntry, IndexPage
from skipstone_shared.latents import checked_entry_id, checked_namespace
from skipstone_shared.stored_entries import StoredEntryPage

_PAGE_SIZE = 1000
_HASH = re.compile(r"[0-9a-f]{32}")


class Deletions:
    """Deletes and verifies over vector_index and latent_kv."""

    def __init__(
        self,
        *,
        index: EntryIndex,
        store: LatentEntries,
        guards: Guards,
        prompts: PromptKeys,
        settle: Callable[[], Awaitable[None]],
        timeout_s: float,
    ) -> None:
        """Creates the view.

        Args:
            index: Has payload and vector of every entry.
            store: Has the snapshots.
            guards: Guards of both.
            prompts: Tells the hash of a prompt.
            settle: Waits until everything that now waits to be saved is.
            timeout_s: Seconds each call may take.
        """
        self._index = index
        self._store = store
        self._guards = guards
        self._prompts = prompts
        self._settle = settle
        self._timeout_s = timeout_s

    async def delete_prompt(self, namespace: str, prompt: str, prompt_hash: str) -> DeletedPrompt:
        """Removes every entry of a prompt, given itself or by its hash.

        Raises:
            InvalidArgument: A bad namespace, prompt or hash.
            Unavailable: A store cannot be reached; the call may be repeated.
        """
        namespace = checked_namespace(namespace)
        wanted = self._hash(prompt, prompt_hash)
        await self._settle()
        # Gathered first: pages of a listing shift when entries go meanwhile.
        ids = [e.entry_id async for e in self._vectors(namespace) if self._is_of(e, wanted)]
        deleted = 0
        for start in range(0, len(ids), _PAGE_SIZE):
            deleted += await self._delete(namespace, ids[start : start + _PAGE_SIZE])
        return DeletedPrompt(deleted, wanted)

    async def delete_namespace(self, namespace: str) -> DeletedNamespace:
        """Removes everything of a namespace.

        Raises:
            InvalidArgument: A bad namespace.
            Unavailable: A store cannot be reached; the call may be repeated.
        """
        namespace = checked_namespace(namespace)
        await self._settle()
        vectors = await self._guards.index.call(
            lambda: self._index.delete_partition(namespace), self._timeout_s
        )
        latents = await self._guards.store.call(
            lambda: self._store.delete_namespace(namespace), self._timeout_s
        )
        return DeletedNamespace(vectors, latents)

    async def verify(
        self, namespace: str, entry_ids: Sequence[str], prompt: str, prompt_hash: str
    ) -> Leftovers:
        """What is left of entries, of a prompt, or of a namespace where neither is given.

        Raises:
            InvalidArgument: A bad namespace, id, prompt or hash, or more than one of them.
            Unavailable: A store cannot be reached; nothing is proved.
        """
        namespace = checked_namespace(namespace)
        if bool(entry_ids) + bool(prompt) + bool(prompt_hash) > 1:
            raise InvalidArgument("only one of entry_ids, prompt and prompt_hash can be verified")
        if entry_ids:
            return await self._verify_entries(namespace, entry_ids)
        if prompt or prompt_hash:
            return await self._verify_prompt(namespace, self._hash(prompt, prompt_hash))
        return await self._verify_namespace(namespace)

    async def _verify_entries(self, namespace: str, entry_ids: Sequence[str]) -> Leftovers:
        if len(entry_ids) > MAX_SHOWN:
            raise InvalidArgument(
                f"{len(entry_ids)} entry_ids", field="entry_ids", allowed=f"1 to {MAX_SHOWN}"
            )
        ids = [checked_entry_id(entry_id) for entry_id in entry_ids]
        vectors = [entry_id for entry_id in ids if await self._has_vector(namespace, entry_id)]
        latents = [entry_id for entry_id in ids if await self._has_latents(namespace, entry_id)]
        return Leftovers(tuple(vectors), tuple(latents), len(ids))

    async def _verify_prompt(self, namespace: str, wanted: str) -> Leftovers:
        known: set[str] = set()
        vectors: list[str] = []
        async for entry in self._vectors(namespace):
            known.add(entry.entry_id)
            if self._is_of(entry, wanted):
                vectors.append(entry.entry_id)
        stored = [entry_id async for entry_id in self._latents(namespace)]
        left = set(vectors)
        return Leftovers(
            tuple(vectors[:MAX_SHOWN]),
            tuple(entry_id for entry_id in stored if entry_id in left)[:MAX_SHOWN],
            len(known) + len(stored),
            sum(entry_id not in known for entry_id in stored),
        )

    async def _verify_namespace(self, namespace: str) -> Leftovers:
        vectors = [entry.entry_id async for entry in self._vectors(namespace)]
        stored = [entry_id async for entry_id in self._latents(namespace)]
        return Leftovers(
            tuple(vectors[:MAX_SHOWN]), tuple(stored[:MAX_SHOWN]), len(vectors) + len(stored)
        )

    def _hash(self, prompt: str, prompt_hash: str) -> str:
        if bool(prompt) == bool(prompt_hash):
            raise InvalidArgument("exactly one of prompt and prompt_hash is needed", field="prompt")
        if prompt:
            check_prompt(prompt, "prompt")
            return self._prompts.hash(prompt)
        if not _HASH.fullmatch(prompt_hash):
            raise InvalidArgument(
                "prompt_hash is none", field="prompt_hash", allowed="32 hexadecimal digits"
            )
        return prompt_hash

    def _is_of(self, entry: IndexEntry, wanted: str) -> bool:
        told = entry.labels.get(PROMPT_HASH_LABEL)
        if told == wanted:
            return True
        # Saved before there was a key, or by somebody who saves no hash.
        return bool(entry.prompt) and self._prompts.hash(entry.prompt) == wanted

    async def _delete(self, namespace: str, ids: Sequence[str]) -> int:
        found = await self._guards.index.call(
            lambda: self._index.delete_entries(namespace, ids), self._timeout_s
        )
        stored = await self._guards.store.call(
            lambda: self._store.delete_entries(namespace, ids), self._timeout_s
        )
        return sum(bool(a or b) for a, b in zip(found, stored, strict=True))

    async def _has_vector(self, namespace: str, entry_id: str) -> bool:
        return await self._guards.index.finds(
            lambda: self._index.get_entry(namespace, entry_id), self._timeout_s
        )

    async def _has_latents(self, namespace: str, entry_id: str) -> bool:
        return await self._guards.store.finds(
            lambda: self._store.get_entry(namespace, entry_id), self._timeout_s
        )

    async def _vectors(self, namespace: str) -> AsyncIterator[IndexEntry]:
        """Every entry of the index."""

        async def ask(token: str) -> IndexPage:
            return await self._guards.index.call(
                lambda: self._index.list_entries(namespace, page_size=_PAGE_SIZE, page_token=token),
                self._timeout_s,
            )

        async for page in all_pages(ask):
            for entry in page.entries:
                yield entry

    async def _latents(self, namespace: str) -> AsyncIterator[str]:
        """The id of every entry of the store, committed or not."""

        async def ask(token: str) -> StoredEntryPage:
            return await self._guards.store.call(
                lambda: self._store.list_entries(
                    namespace, page_size=_PAGE_SIZE, page_token=token, include_uncommitted=True
                ),
                self._timeout_s,
            )

        async for page in all_pages(ask):
            for stored in page.entries:
                yield stored.entry_id
