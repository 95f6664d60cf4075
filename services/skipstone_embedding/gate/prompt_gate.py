"""The bundled gate as a reranker."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import xxhash
from cachetools import LRUCache, cached

from skipstone_embedding.gate.comparison import compare
from skipstone_embedding.gate.findings import Comparison
from skipstone_embedding.gate.lexicon import Lexicon
from skipstone_embedding.gate.readings import Reading, read_prompt
from skipstone_embedding.gate.scorer import Scorer
from skipstone_embedding.input_rules import checked_text
from skipstone_shared.embeddings import EmbeddingInput

GATE_NAME = "skipstone-gate"
LEXICON_FILE = "lexicon.txt.gz"
SCORER_FILE = "scorer.json"

MAX_CANDIDATES = 128

_KEPT_SIZE = 1_000_000
"""Characters of the prompts that are kept as read, with `_SIZE_OF_ANY` for each; some 50 MB, 250
where all words are letters. Candidates of one request are those of the next one of its thread."""

_SIZE_OF_ANY = 100

_MAX_LENGTH = 4000
"""Characters of a prompt that are read. Two that differ only behind that are never the same."""


class PromptGate:
    """A `Reranker` of texts by rules: see the package.

    A score does not depend on the order of the two prompts, nor on anything but them. 0 means that
    a rule forbids the pair.
    """

    def __init__(self, folder: Path) -> None:
        """Reads lexicon and scorer from a folder."""
        self._lexicon = Lexicon(folder / LEXICON_FILE)
        self._scorer = Scorer.load(folder / SCORER_FILE)
        kept: LRUCache[object, Reading] = LRUCache(_KEPT_SIZE, getsizeof=_size)
        self._read = cached(kept, lock=threading.Lock())(self._read_prompt)
        self.reranker_id = f"{GATE_NAME}/{_digest(folder)}"
        self.max_candidates = MAX_CANDIDATES

    def rerank(
        self, query: EmbeddingInput, candidates: Sequence[EmbeddingInput], instruction: str = ""
    ) -> list[float]:
        """Scores candidates; instructions are passed over. See `Reranker`."""
        prompt = checked_text(query)
        return [self.score(prompt, checked_text(candidate)) for candidate in candidates]

    def score(self, left: str, right: str) -> float:
        """The score of two prompts."""
        if left == right:
            return 1.0
        if max(len(left), len(right)) > _MAX_LENGTH:
            return 0.0
        readings = self._read(left), self._read(right)
        return self._scorer.score(compare(*readings, self._lexicon, until_forbidden=True))

    def compare(self, left: str, right: str) -> Comparison:
        """Every difference that was found between two prompts: why a score is what it is."""
        return compare(self._read(left), self._read(right), self._lexicon)

    def _read_prompt(self, prompt: str) -> Reading:
        return read_prompt(prompt, self._lexicon)


def _size(reading: Reading) -> int:
    return _SIZE_OF_ANY + reading.length


def _digest(folder: Path) -> str:
    """8 hexadecimal digits that change with the rules, the lexicon or the weights.

    The rules are the source of this package: a score may change with any line of it, and a
    calibration holds for one id only.
    """
    hasher = xxhash.xxh3_64()
    rules = sorted(Path(__file__).parent.glob("*.py"))
    for path in (*rules, folder / LEXICON_FILE, folder / SCORER_FILE):
        hasher.update(path.name.encode() + b"\0" + path.read_bytes().replace(b"\r\n", b"\n"))
    return hasher.hexdigest()[:8]
