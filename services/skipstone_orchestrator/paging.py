"""Listings that come a page at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeVar


class Page(Protocol):
    """A page that names the next one; the last one names none."""

    @property
    def next_page_token(self) -> str:
        """What to ask for the next page with; empty on the last one."""
        ...


PageT = TypeVar("PageT", bound=Page)


async def all_pages(ask: Callable[[str], Awaitable[PageT]]) -> AsyncIterator[PageT]:
    """All pages of a listing, each asked for by the token of the one before."""
    page = await ask("")
    yield page
    while page.next_page_token:
        page = await ask(page.next_page_token)
        yield page
