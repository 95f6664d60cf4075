"""Keys of the exact tier: when two requests are the same, and where their result is stored.

The compatibility key (the hash of the executor's fingerprint) covers everything but prompt and
seed, so the three together are the canonical request. The prompt counts as given, byte for byte:
two prompts that differ only after a text encoder's last token are two requests.

What a full run gave is right under every reuse policy. What a resumed run gave is right only under
the policy that allowed it, with the encoder and reranker whose scores it went by: one that was
tightened since, also by an audit that closed a tier, must not go on answering with it. So the two
are stored under two ids, and only the second names the policy.
"""

from __future__ import annotations

import re
import uuid

from skipstone_shared.latents import canonical_hash

_VERSION = 1
_EXACT_ID = re.compile(r"x[0-9a-f]{32}(-[0-9a-f]{16})?")
_RESUMED_SUFFIX = ".resumed"
PROMPT_HASH_LABEL = "prompt_hash"
PROMPT_WORDS_LABEL = "prompt_words_hash"


def exact_entry_id(compatibility_key: str, prompt: str, seed: int) -> str:
    """Entry id of a canonical request's full run: `x` and 32 hexadecimal digits.

    The prompt is what stands for it: `PromptKeys.exact`.
    The namespace is not hashed: it is a partition of every store.
    """
    return "x" + canonical_hash([_VERSION, compatibility_key, prompt, seed])


def resumed_entry_id(compatibility_key: str, prompt: str, seed: int, policy_version: str) -> str:
    """Entry id of a canonical request's resumed run: that of its full run, and the policy's."""
    full_run = exact_entry_id(compatibility_key, prompt, seed)
    return f"{full_run}-{canonical_hash(policy_version)[:16]}"


def full_run_of(entry_id: str) -> str:
    """Entry id of the full run of the request that an exact id belongs to."""
    return entry_id.partition("-")[0]


def is_exact_entry_id(entry_id: str) -> bool:
    """Whether an entry id is one that the exact tier may look for."""
    return _EXACT_ID.fullmatch(entry_id) is not None


def fresh_entry_id() -> str:
    """Entry id for a request whose seed is not known yet; the exact tier never finds it."""
    return "r" + uuid.uuid4().hex


def donor_partition(compatibility_key: str, depth: int, max_donor_depth: int) -> str:
    """Partition of the index in which an entry is kept.

    Entries that may not donate are listed and deleted like others, but must not take the places of
    donors among the first hits, so they have a partition that no request searches.
    """
    return compatibility_key if depth <= max_donor_depth else compatibility_key + _RESUMED_SUFFIX


def prompt_hash(prompt: str) -> str:
    """Hash of a prompt without what rarely changes its meaning: case and runs of white space.

    Kept with an entry even when its prompt is not, since the same prompt with another seed must not
    be given the donor's picture again. It only ever forbids a trajectory; it never makes a hit.
    """
    return canonical_hash(without_form(prompt))


def without_form(prompt: str) -> str:
    """A prompt without what rarely changes its meaning: case and runs of white space."""
    return " ".join(prompt.casefold().split())
