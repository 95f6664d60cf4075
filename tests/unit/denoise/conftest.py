"""Fixtures of all tests of the denoise executor."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def quiet_log() -> Iterator[None]:
    """Keeps log lines out of the output: rendering a traceback takes longer than a run."""
    with structlog.testing.capture_logs():
        yield
