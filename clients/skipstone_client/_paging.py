"""Pages of listings: what the clients of all services check alike."""

from __future__ import annotations

from skipstone_shared.errors import InvalidArgument

MAX_PAGE_SIZE = 1000


def checked_page_size(page_size: int) -> int:
    """The page size. On the wire 0 would mean the service's default instead of an error.

    Raises:
        InvalidArgument: it is out of range.
    """
    if not 1 <= page_size <= MAX_PAGE_SIZE:
        raise InvalidArgument(
            f"page_size {page_size} is out of range",
            field="page_size",
            allowed=f"1 to {MAX_PAGE_SIZE}",
        )
    return page_size
