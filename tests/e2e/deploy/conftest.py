"""What the tests of the chart share."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.tiny_model import write_tiny_model


@pytest.fixture(scope="package")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a pipeline whose steps take milliseconds."""
    folder = write_tiny_model(tmp_path_factory.mktemp("model"))
    # For the user of the containers, as whoever fills a claim with models must do too.
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o644))
    return folder
