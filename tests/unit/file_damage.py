"""Ways to damage an LMDB file behind its meta pages."""

from __future__ import annotations

import random
from collections.abc import Callable

PAGE = 4096
META_PAGES = 2

Damage = Callable[[bytearray, random.Random], None]


def flip(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(META_PAGES * PAGE, len(data))] ^= 1 << rng.randrange(8)


def flip_in_a_page_header(data: bytearray, rng: random.Random) -> None:
    page = rng.randrange(META_PAGES, len(data) // PAGE)
    data[page * PAGE + rng.randrange(24)] ^= 1 << rng.randrange(8)


def garble_a_page(data: bytearray, rng: random.Random) -> None:
    start = PAGE * rng.randrange(META_PAGES, len(data) // PAGE)
    data[start : start + PAGE] = rng.randbytes(PAGE)


def cut_off(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(1, len(data)) :]
