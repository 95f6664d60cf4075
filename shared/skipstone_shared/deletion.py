"""What was deleted, and what is left of it."""

from __future__ import annotations

import dataclasses

MAX_SHOWN = 1000
"""Ids of what is left that are told, of each store."""


@dataclasses.dataclass(frozen=True, slots=True)
class DeletedPrompt:
    """What was deleted of a prompt.

    Attributes:
        count: Entries that were there.
        prompt_hash: Hash that its entries are saved with, to ask for it without the prompt.
    """

    count: int
    prompt_hash: str


@dataclasses.dataclass(frozen=True, slots=True)
class DeletedNamespace:
    """What was deleted of a namespace: entries of vector_index, and of latent_kv."""

    vectors: int
    latents: int


@dataclasses.dataclass(frozen=True, slots=True)
class Leftovers:
    """What the stores still have of what was to be deleted.

    Attributes:
        vector_entry_ids: Ids that vector_index has, up to MAX_SHOWN.
        latent_entry_ids: Ids that latent_kv has, committed or not, up to MAX_SHOWN.
        checked_count: Entries that were looked at in both stores.
        unattributed_count: Of a prompt: entries of latent_kv without a vector. latent_kv knows no
            prompts, so each of them may be of this one.
    """

    vector_entry_ids: tuple[str, ...] = ()
    latent_entry_ids: tuple[str, ...] = ()
    checked_count: int = 0
    unattributed_count: int = 0

    @property
    def is_proof(self) -> bool:
        """Whether nothing can be left."""
        return not (self.vector_entry_ids or self.latent_entry_ids or self.unattributed_count)
