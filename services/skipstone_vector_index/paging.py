"""Page tokens of listings."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Self

from skipstone_shared.errors import InvalidArgument
from skipstone_shared.index_entries import NamespacePage
from skipstone_shared.latents import NAMESPACE_PATTERN

MAX_PAGE_BYTES = 1 << 20
"""A page ends before this many bytes of entries, so that it fits in one 4 MiB message."""

_TOKEN = re.compile(r"1-([0-9a-f]{1,16})-([0-9a-f]{1,16})")


@dataclasses.dataclass(frozen=True, slots=True)
class PageCursor:
    """Where a listing goes on.

    Labels number entries in the order in which they were first stored. The upper bound is fixed by
    the first page: an entry that is deleted and stored again while somebody pages gets a label
    above it, and so is not listed twice.

    Attributes:
        after: Label of the last entry listed.
        until: Largest label of the whole listing.
    """

    after: int
    until: int

    @classmethod
    def parse(cls, token: str, last_label: int) -> Self:
        """Returns the cursor of a token, or of a first page when the token is empty.

        Raises:
            InvalidArgument: No listing gave this token.
        """
        if not token:
            return cls(after=0, until=last_label)
        match = _TOKEN.fullmatch(token)
        cursor = match and cls(int(match[1], 16), int(match[2], 16))
        if not cursor or not cursor.after <= cursor.until <= last_label:
            raise _bad_token(token)
        return cursor

    def token_after(self, label: int) -> str:
        """Returns the token of the page that starts after ``label``."""
        return f"1-{label:x}-{self.until:x}"


def namespace_page(namespaces: Iterable[str], page_size: int, page_token: str) -> NamespacePage:
    """Returns the page of namespaces after a token, which is the last namespace of the page before.

    Raises:
        InvalidArgument: The token is no namespace.
    """
    if page_token and not NAMESPACE_PATTERN.fullmatch(page_token):
        raise _bad_token(page_token)
    found = sorted(name for name in namespaces if name > page_token)
    page = tuple(found[:page_size])
    return NamespacePage(page, page[-1] if len(found) > len(page) else "")


def _bad_token(token: str) -> InvalidArgument:
    return InvalidArgument(
        f"page_token {token[:40]!r} is not of this index",
        field="page_token",
        allowed="next_page_token of the page before, or empty",
    )
