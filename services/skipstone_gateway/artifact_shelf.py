"""Pictures and clips that were made lately, for links and for the page's gallery."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from skipstone_shared.generation import Artifact

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class _Kept:
    artifact: Artifact
    until: float
    entry: tuple[str, str] | None


class ArtifactShelf:
    """A bounded memory of artifacts: the oldest go first. For one event loop.

    Whoever knows an id may fetch it: ids are 128 random bits, as in a signed link.
    """

    def __init__(self, max_bytes: int, ttl_s: float, clock: Clock) -> None:
        """Creates an empty one.

        Args:
            max_bytes: Bytes of all together.
            ttl_s: Seconds that each is kept.
            clock: Seconds.
        """
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._clock = clock
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._by_entry: dict[tuple[str, str], str] = {}
        self.size_bytes = 0

    def put(self, artifact: Artifact, namespace: str = "", entry_id: str = "") -> str:
        """Keeps an artifact and returns its id.

        Args:
            artifact: What to keep; one larger than all the memory is not.
            namespace: Of the entry that it shows.
            entry_id: That entry; empty for none.
        """
        artifact_id = secrets.token_hex(16)
        entry = (namespace, entry_id) if entry_id else None
        self._kept[artifact_id] = _Kept(artifact, self._clock() + self._ttl_s, entry)
        self.size_bytes += len(artifact.data)
        if entry is not None:
            self._by_entry[entry] = artifact_id
        self._make_room()
        return artifact_id

    def get(self, artifact_id: str) -> Artifact | None:
        """An artifact; None when it is not kept any more."""
        self._make_room()
        kept = self._kept.get(artifact_id)
        return kept.artifact if kept else None

    def of_entry(self, namespace: str, entry_id: str) -> Artifact | None:
        """The artifact that shows an entry, if it was made here lately."""
        return self.get(self._by_entry.get((namespace, entry_id), ""))

    def _make_room(self) -> None:
        now = self._clock()
        while self._kept:
            artifact_id, kept = next(iter(self._kept.items()))
            if self.size_bytes <= self._max_bytes and kept.until > now:
                return
            del self._kept[artifact_id]
            self.size_bytes -= len(kept.artifact.data)
            if kept.entry is not None and self._by_entry.get(kept.entry) == artifact_id:
                del self._by_entry[kept.entry]
