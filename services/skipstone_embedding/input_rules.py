"""Which inputs can be embedded, whatever the model."""

from __future__ import annotations

from skipstone_shared.embeddings import EmbeddingInput
from skipstone_shared.errors import InvalidArgument

MAX_TEXT_BYTES = 20_000


def checked_text(item: EmbeddingInput) -> str:
    """Returns the text of an input.

    Raises:
        InvalidArgument: It is a picture or clip, empty, only white space, or too long.
    """
    if item.kind != "text":
        raise InvalidArgument(
            f"the model cannot embed an input of kind {item.kind}", field="content", allowed="text"
        )
    allowed = f"1 to {MAX_TEXT_BYTES} bytes of UTF-8, not all white space"
    try:
        size = len(item.text.encode())
    except UnicodeEncodeError:
        raise InvalidArgument(
            "the text has lone surrogates", field="text", allowed=allowed
        ) from None
    if size > MAX_TEXT_BYTES:
        raise InvalidArgument(f"the text has {size} bytes", field="text", allowed=allowed)
    if not item.text.strip():
        raise InvalidArgument("the text is empty", field="text", allowed=allowed)
    return item.text
