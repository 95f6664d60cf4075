"""Who may do what: callers with tokens, their namespaces and their rights, from a file.

    [gallery]
    tokens = ["sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"]
    namespaces = ["gallery", "shared"]        # or ["*"] for all
    rights = ["generate", "read"]             # of generate, read, write, admin

The file holds hashes, so that reading it lets nobody in. A plain SHA-256 is enough for tokens that
are drawn at random (`skipstone token create` draws 256 bits): slow hashes protect what people think
up, and would cost every call milliseconds.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from enum import Enum
from pathlib import Path
from typing import Any

from skipstone_shared.credentials import AUTHORIZATION_KEY, BEARER
from skipstone_shared.errors import InvalidArgument, PermissionDenied, Unauthenticated
from skipstone_shared.latents import DEFAULT_NAMESPACE, NAMESPACE_PATTERN
from skipstone_shared.reloaded import Reloaded

ALL_NAMESPACES = "*"
SETTING = "access_file"
_HASH = re.compile(r"sha256:([0-9a-f]{64})")
_KEYS = ("tokens", "namespaces", "rights")


class Right(Enum):
    """What a caller may do in their namespaces."""

    GENERATE = "generate"
    """Generate pictures and clips; the cache is used on the way, also to save."""

    READ = "read"
    """Look up, list and show what is stored, and counts."""

    WRITE = "write"
    """Save entries and delete single ones."""

    ADMIN = "admin"
    """Delete whole namespaces and partitions; with all namespaces, look into the servers."""


@dataclasses.dataclass(frozen=True, slots=True)
class Caller:
    """Somebody with a token.

    Attributes:
        name: For the log.
        namespaces: Namespaces they may use; ALL_NAMESPACES among them means every one.
        rights: What they may do there.
    """

    name: str
    namespaces: frozenset[str]
    rights: frozenset[Right]

    @property
    def has_all_namespaces(self) -> bool:
        """Whether every namespace is theirs."""
        return ALL_NAMESPACES in self.namespaces

    def check(self, right: Right, namespace: str | None) -> None:
        """Lets them do something, or not.

        What is said is the same whether or not anything is stored in the namespace.

        Args:
            right: Needed for it.
            namespace: Where; empty for the default one, None for all at once.

        Raises:
            PermissionDenied: They lack the right or the namespace.
        """
        if right not in self.rights:
            raise PermissionDenied(f"this needs the right {right.value}, which the token lacks")
        if self.has_all_namespaces:
            return
        if namespace is None:
            raise PermissionDenied("this needs all namespaces, and the token has only some")
        if (namespace or DEFAULT_NAMESPACE) not in self.namespaces:
            shown = (namespace or DEFAULT_NAMESPACE)[:80]
            raise PermissionDenied(
                f"the token does not have the namespace {shown!r}", field="namespace"
            )


_caller: ContextVar[Caller | None] = ContextVar("skipstone_caller", default=None)


def bind_caller(caller: Caller | None) -> None:
    """Makes this the caller of the current rpc until the context ends. For server interceptors."""
    _caller.set(caller)


def sees_all_namespaces() -> bool:
    """Whether the current caller may know what others do: nobody asked, or all are theirs."""
    caller = _caller.get()
    return caller is None or caller.has_all_namespaces


class AccessList:
    """The callers of a file, read again when it changes. Threads may share it.

    A changed file that cannot be used leaves the callers as they were, with an error in the log. An
    empty one lets nobody in.
    """

    def __init__(self, path: Path) -> None:
        """Reads the file.

        Raises:
            InvalidArgument: It cannot be read or used.
        """
        self._callers = Reloaded(SETTING, (path,), lambda: read_callers(path))

    def caller(self, metadata: Sequence[tuple[str, str | bytes]]) -> Caller:
        """Who calls, by the token in an rpc's metadata.

        Raises:
            Unauthenticated: There is no token, or nobody has it.
        """
        token = _token_of(metadata)
        presented = hashlib.sha256(token.encode("ascii", "replace")).digest()
        found: Caller | None = None
        # All are compared, each in constant time: how long it takes tells nothing.
        for digest, caller in self._callers.get():
            if hmac.compare_digest(digest, presented):
                found = caller
        if found is None:
            raise Unauthenticated("the token is not known here")
        return found


def read_callers(path: Path) -> tuple[tuple[bytes, Caller], ...]:
    """The callers of a file, each with the digest of a token; one with several comes several times.

    Raises:
        InvalidArgument: The file cannot be read, or says something that is not allowed.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = (error.strerror or "").lower()
        raise InvalidArgument(f"cannot read {path}: {reason}", field=SETTING) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path} is not valid TOML: {error}", field=SETTING) from None
    found: dict[bytes, Caller] = {}
    for name, table in document.items():
        caller, digests = _read_caller(path, name, table)
        for digest in digests:
            if digest in found:
                raise _refused(path, name, "tokens", f"one is also of {found[digest].name}")
            found[digest] = caller
    return tuple(found.items())


def token_hash(token: str) -> str:
    """What stands in the file for a token."""
    return "sha256:" + hashlib.sha256(token.encode("ascii")).hexdigest()


def caller_table(
    name: str, hashes: Sequence[str], namespaces: Sequence[str], rights: Sequence[Right]
) -> str:
    """A caller as the file names them."""
    # JSON's strings and lists of strings are TOML's too.
    return "\n".join(
        [
            f"[{json.dumps(name, ensure_ascii=False)}]",
            f"tokens = {json.dumps(list(hashes))}",
            f"namespaces = {json.dumps(list(namespaces))}",
            f"rights = {json.dumps([right.value for right in rights])}",
        ]
    )


def _token_of(metadata: Sequence[tuple[str, str | bytes]]) -> str:
    values = [value for key, value in metadata if key == AUTHORIZATION_KEY]
    if not values:
        raise Unauthenticated("a token is needed")
    value = values[0]
    if len(values) > 1 or not isinstance(value, str) or not value.startswith(BEARER):
        raise Unauthenticated(f"the token must come once, as {BEARER}TOKEN")
    return value.removeprefix(BEARER)


def _read_caller(path: Path, name: str, table: Any) -> tuple[Caller, list[bytes]]:
    if not isinstance(table, Mapping):
        raise InvalidArgument(f"{path}: {name} must be a table, write [{name}]", field=SETTING)
    for key in table:
        if key not in _KEYS:
            raise _refused(path, name, key, f"there is no such key, only {', '.join(_KEYS)}")
    tokens, namespaces, rights = (_strings(path, name, key, table) for key in _KEYS)
    digests = []
    for token in tokens:
        match = _HASH.fullmatch(token)
        if match is None:
            # Not shown: it may be a token that was pasted here by mistake.
            raise _refused(path, name, "tokens", "each is sha256: and 64 hexadecimal digits")
        digests.append(bytes.fromhex(match[1]))
    for namespace in namespaces:
        if not (namespace == ALL_NAMESPACES or NAMESPACE_PATTERN.fullmatch(namespace)):
            raise _refused(path, name, "namespaces", f"{namespace[:80]!r} is not a name")
    try:
        allowed = frozenset(Right(right) for right in rights)
    except ValueError as error:
        known = ", ".join(right.value for right in Right)
        raise _refused(path, name, "rights", f"{error}, only {known}") from None
    return Caller(name, frozenset(namespaces), allowed), digests


def _strings(path: Path, name: str, key: str, table: Mapping[str, Any]) -> list[str]:
    value = table.get(key)
    if not (isinstance(value, list) and value and all(isinstance(item, str) for item in value)):
        raise _refused(path, name, key, "it must be a list of strings with at least one")
    return value


def _refused(path: Path, name: str, key: str, problem: str) -> InvalidArgument:
    return InvalidArgument(f"{path} [{name}] {key}: {problem}", field=SETTING)
