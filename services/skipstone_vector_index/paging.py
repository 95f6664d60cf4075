"""Page tokens of listings."""

from __future__ import annotations

import dataclasses
import re
from typing import Self

from skipstone_shared.errors import InvalidArgument

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
            raise InvalidArgument(
                f"page_token {token[:40]!r} is not of this index",
                field="page_token",
                allowed="next_page_token of the page before, or empty",
            )
        return cursor

    def token_after(self, label: int) -> str:
        """Returns the token of the page that starts after ``label``."""
        return f"1-{label:x}-{self.until:x}"
