"""How prompts stand in what is saved: as themselves, or as hashes that need a key.

A plain hash of a prompt is no secret: whoever reads a store can hash what they guess. With a key of
the operator's own (HMAC-SHA256, RFC 2104) they need the key too. Every replica needs the same one;
a new key leaves what was saved before to be evicted, since nothing finds it any more.
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

from skipstone_orchestrator.compatibility import (
    PROMPT_HASH_LABEL,
    PROMPT_WORDS_LABEL,
    prompt_hash,
    without_form,
)
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.index_entries import IndexEntry
from skipstone_shared.latents import canonical_hash

MIN_KEY_BYTES = 32
SETTING = "prompt_key_file"
_HASH_DIGITS = 32


class PromptKeys:
    """Turns prompts into what is saved of them. Shared by all requests; keeps nothing of any."""

    def __init__(self, key: bytes | None = None) -> None:
        """Takes the key.

        Args:
            key: At least MIN_KEY_BYTES; None: hashes need none.
        """
        self._key = key

    @property
    def is_keyed(self) -> bool:
        """Whether what is saved of a prompt can be told only with the key."""
        return self._key is not None

    def hash(self, prompt: str) -> str:
        """Hash of a prompt without case and runs of white space: 32 hexadecimal digits."""
        if self._key is None:
            return prompt_hash(prompt)
        return self._digest("like", without_form(prompt))

    def exact(self, prompt: str) -> str:
        """What stands for a prompt, byte for byte, in the id of an entry."""
        return prompt if self._key is None else self._digest("exact", prompt)

    def is_of(self, entry: IndexEntry, prompt: str) -> bool:
        """Whether an entry was generated from this prompt, but for case and white space."""
        told = entry.labels.get(PROMPT_HASH_LABEL)
        return entry.prompt == prompt if told is None else told == self.hash(prompt)

    def words(self, prompt: str) -> str:
        """Hash of a prompt without runs of white space only: 32 hexadecimal digits."""
        text = " ".join(prompt.split())
        return canonical_hash(text) if self._key is None else self._digest("words", text)

    def says(self, entry: IndexEntry, prompt: str) -> bool:
        """Whether an entry whose prompt is not kept was made from these words, case and all."""
        return entry.labels.get(PROMPT_WORDS_LABEL) == self.words(prompt)

    def labels(self, prompt: str, *, kept: bool) -> dict[str, str]:
        """What an entry says of its prompt.

        Args:
            prompt: The prompt.
            kept: Whether the entry holds it too, which tells its words.
        """
        labels = {PROMPT_HASH_LABEL: self.hash(prompt)}
        return labels if kept else {**labels, PROMPT_WORDS_LABEL: self.words(prompt)}

    def _digest(self, purpose: str, text: str) -> str:
        assert self._key is not None
        data = f"{purpose}:{text}".encode("utf-8", "surrogatepass")
        return hmac.new(self._key, data, hashlib.sha256).hexdigest()[:_HASH_DIGITS]


def read_prompt_keys(path: Path | None) -> PromptKeys:
    """The keys with what a file holds; white space around it is left out. None: without a key.

    Raises:
        InvalidArgument: The file cannot be read or is too short for a key.
    """
    if path is None:
        return PromptKeys()
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        reason = (error.strerror or "").lower()
        raise InvalidArgument(f"cannot read {path}: {reason}", field=SETTING) from None
    if len(key) < MIN_KEY_BYTES:
        raise InvalidArgument(
            f"{path} holds {len(key)} bytes", field=SETTING, allowed=f"{MIN_KEY_BYTES} and up"
        )
    return PromptKeys(key)
