"""A real server of Milvus Lite, on a free loopback port with its own data folder."""

from __future__ import annotations

import atexit
import os
from functools import cache

import pytest

from backends.milvus_lite_process import INSTALL, MilvusLite, is_installed

__all__ = ["INSTALL", "MilvusLite", "is_installed", "milvus_url", "shared_milvus_lite"]


def milvus_url() -> str:
    """Returns where Milvus is: `SKIPSTONE_TEST_MILVUS_URL`, or the shared server of Milvus Lite."""
    return os.environ.get("SKIPSTONE_TEST_MILVUS_URL") or shared_milvus_lite().url


@cache
def shared_milvus_lite() -> MilvusLite:
    """Returns the server of this test run, which ends with it.

    Skips the test where Milvus Lite is not installed.
    """
    if not is_installed():
        pytest.skip(INSTALL)
    server = MilvusLite()
    atexit.register(server.remove)
    return server
