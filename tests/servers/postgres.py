"""A real PostgreSQL with pgvector, on a free loopback port with its own data folder."""

from __future__ import annotations

import atexit
from functools import cache

import pytest

from backends.postgres_process import INSTALL, PASSWORD, Postgres, is_installed

__all__ = ["INSTALL", "PASSWORD", "Postgres", "is_installed", "shared_postgres"]


@cache
def shared_postgres() -> Postgres:
    """Returns the server of this test run, which ends with it.

    Skips the test where PostgreSQL or pgvector is not installed.
    """
    if not is_installed():
        pytest.skip(INSTALL)
    server = Postgres()
    atexit.register(server.remove)
    return server
