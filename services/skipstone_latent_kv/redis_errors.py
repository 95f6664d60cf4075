"""Errors of Redis as ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import redis
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    ClusterDownError,
    ClusterError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    ResponseError,
    TryAgainError,
)

from skipstone_shared.errors import FailedPrecondition, ResourceExhausted, Unavailable

_SOON = ("LOADING", "BUSY", "NOREPLICAS")
"""Beginnings of the answers of a server that will serve soon, which redis-py has no class for."""

_ELSEWHERE = (
    AskError,
    ClusterDownError,
    ClusterError,
    ReadOnlyError,
    RedisClusterException,
    TryAgainError,
    redis.ConnectionError,
    redis.TimeoutError,
)
"""No answer, or one from a server that is not ready or no longer the right one."""


class ScriptMissing(Unavailable):
    """A server does not have a script: it was restarted, or is new."""


@contextmanager
def redis_trouble() -> Iterator[None]:
    """Raises errors of Redis as ours.

    Raises:
        Unavailable: no answer, or from a server that is not ready or no longer the right one.
        ResourceExhausted: Redis is full or cannot write to its disk.
        FailedPrecondition: it refuses the user, the password or the command.
    """
    try:
        yield
    except AuthenticationError as error:
        raise FailedPrecondition(
            f"Redis refuses the user or password ({error}): set redis_password, and the user in "
            "redis_urls"
        ) from error
    except (NoPermissionError, AuthorizationError) as error:
        raise FailedPrecondition(
            f"Redis does not let this user do it ({error}): its ACL must allow all commands on "
            "keys that begin with redis_prefix"
        ) from error
    except NoScriptError as error:
        raise ScriptMissing("Redis does not have the script") from error
    except OutOfMemoryError as error:
        raise ResourceExhausted(
            "Redis is full: its maxmemory is reached before quota_bytes; raise maxmemory or lower "
            "quota_bytes"
        ) from error
    except _ELSEWHERE as error:
        raise Unavailable(f"Redis does not answer: {error}") from error
    except ResponseError as error:
        text = str(error)
        if text.startswith("MISCONF"):
            raise ResourceExhausted(f"Redis cannot write to its disk: {text}") from error
        if text.startswith(_SOON):
            raise Unavailable(f"Redis is not ready: {text}") from error
        raise
