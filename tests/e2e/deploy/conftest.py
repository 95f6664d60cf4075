"""What the tests of the chart share."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.tiny_model import write_tiny_model


@pytest.fixture(scope="package")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a pipeline whose steps take milliseconds."""
    return write_tiny_model(tmp_path_factory.mktemp("model"))
