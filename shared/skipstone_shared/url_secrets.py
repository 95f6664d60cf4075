"""URLs that hold a password, which must not be printed, logged or given as a flag."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit

_NO_URL = "a value"
_USERS = ("user", "username")


def holds_password(url: str) -> bool:
    """Whether a URL has a password, before its host or among its parameters.

    What is no URL has one if it might be meant as one.
    """
    try:
        parts = urlsplit(url)
        parameters = {name.casefold() for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
        return bool(parts.password) or any(map(_is_password, parameters))
    except ValueError:
        return "@" in url or "password" in url.casefold()


def without_secrets(url: str) -> str:
    """A URL without user, password and parameters, for people; `a value` for what is no URL."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return _NO_URL
    if not parts.scheme or not (parts.netloc or parts.path.startswith("/")):
        return _NO_URL
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def without_login(url: str) -> str:
    """A URL without user and password, which tells places apart; as `without_secrets` otherwise.

    Unlike there, the other parameters stay, in order: one of them may be the database.
    """
    place = without_secrets(url)
    if place == _NO_URL:
        return place
    parameters = sorted(
        (name, value)
        for name, value in parse_qsl(urlsplit(url).query, keep_blank_values=True)
        if name.casefold() not in _USERS and not _is_password(name)
    )
    return f"{place}?{urlencode(parameters)}" if parameters else place


def _is_password(parameter: str) -> bool:
    return "password" in parameter.casefold()
