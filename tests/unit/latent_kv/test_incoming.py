"""What a write costs before its bytes are there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.latent_store_cases import metadata

from skipstone_latent_kv import incoming
from skipstone_shared.errors import InvalidArgument


def resident_bytes() -> int:
    """Memory of this process that is really in use."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def test_a_caller_that_declares_much_and_sends_nothing_takes_no_memory() -> None:
    """A header of a few bytes must not cost the largest snapshot, times the number of threads."""
    before = resident_bytes()
    grown: list[int] = []

    def stalled() -> Iterator[bytes]:
        grown.append(resident_bytes() - before)
        yield b""

    with pytest.raises(InvalidArgument, match="0 of the declared"):
        incoming.receive(metadata("entry", {}), stalled(), 256 << 20, 1)
    assert grown[0] < 64 << 20
