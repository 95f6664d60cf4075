"""What the C library keeps of freed memory: few heaps, given back after a storm of streams.

glibc keeps freed blocks of up to 32 MiB for the heap of the thread that had them, with eight heaps
per core. Within one heap that is wanted: a read of 10 MB takes 1 ms, not 6, when its buffer is
there already. But when hundreds of streams come and go in as many threads, the heaps together keep
several times what is ever in use. Other C libraries have neither call, and nothing happens.
"""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8
_HEAPS = 2
"""Few threads allocate at the same moment, since Python runs one at a time."""


def use_few_heaps() -> None:
    """Bounds the number of heaps of this process; to be called before there are threads."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _HEAPS)


def give_back_freed() -> None:
    """Returns freed memory to the system."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
