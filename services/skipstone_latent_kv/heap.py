"""What the C library keeps of freed memory: few heaps, given back after a storm of streams.

glibc keeps freed blocks for the heap of the thread that had them, with eight heaps per core. Within
one heap that is wanted: a read of 10 MB takes 1 ms, not 6, when its buffer is there already. What
is free at the end of a heap goes back at once, though, beyond a bound that glibc derives from the
blocks it has seen: a read of 1 MB then cost 4.3 ms of CPU, not 2.0, most of it for pages that had
just been given back. So that bound is set. But when hundreds of streams come and go in as many
threads, many heaps together keep several times what is ever in use. Other C libraries have none of
these calls, and nothing happens.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_HEAPS = 2
"""Few threads allocate at the same moment, since Python runs one at a time."""
_KEPT_BYTES = 32 << 20
"""At the end of each heap, and the largest block that comes from one; glibc allows no larger."""


def use_few_heaps() -> None:
    """Bounds number and size of what heaps keep; to be called before there are threads."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _HEAPS)
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def give_back_freed() -> None:
    """Returns freed memory to the system."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
