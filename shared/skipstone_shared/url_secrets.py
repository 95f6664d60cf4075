"""URLs that hold a password, which must not be printed, logged or given as a flag."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit


def holds_password(url: str) -> bool:
    """Whether a URL has a password, before its host or among its parameters.

    What is no URL has one if it might be meant as one.
    """
    try:
        parts = urlsplit(url)
        parameters = {name.casefold() for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
        return bool(parts.password) or any("password" in name for name in parameters)
    except ValueError:
        return "@" in url or "password" in url.casefold()


def without_secrets(url: str) -> str:
    """A URL without user, password and parameters, for people; `a value` for what is no URL."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "a value"
    if not parts.scheme or not (parts.netloc or parts.path.startswith("/")):
        return "a value"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
