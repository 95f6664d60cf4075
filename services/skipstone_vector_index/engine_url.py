"""The URL of an engine, taken apart so that its password goes where it belongs."""

from __future__ import annotations

import dataclasses
from urllib.parse import unquote, urlsplit, urlunsplit

from skipstone_shared.errors import FailedPrecondition


@dataclasses.dataclass(frozen=True, slots=True)
class EngineUrl:
    """The parts of a URL.

    Attributes:
        address: ``http://host:port``, without user, password and path.
        user: User; empty when there is none.
        password: Password; never shown.
        path: What follows the first slash.
    """

    address: str
    user: str
    password: str = dataclasses.field(repr=False)
    path: str

    @property
    def is_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.address.startswith("https:")


def parse_engine_url(url: str, allowed: str) -> EngineUrl:
    """Takes a URL apart.

    Args:
        url: The URL.
        allowed: An example, for the error.

    Raises:
        FailedPrecondition: It is not of the kind http or https, or has no host; the text does not
            show it.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise FailedPrecondition("url is not one of this engine", field="url", allowed=allowed)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = host if port is None else f"{host}:{port}"
    return EngineUrl(
        urlunsplit((parts.scheme, place, "", "", "")),
        unquote(parts.username or ""),
        unquote(parts.password or ""),
        parts.path.strip("/"),
    )
