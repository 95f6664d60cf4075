"""A short run of the fuzzer; `make fuzz` runs it for as long as one likes."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]


@pytest.mark.skipif(
    find_spec("atheris") is None,
    reason="NOT TESTED: no fuzzer on this machine (pip install atheris, x86-64 Linux only)",
)
def test_a_few_seconds_of_fuzzing_find_nothing(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--seconds=5", "--seed=1", f"--findings={tmp_path}"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert "stat::number_of_executed_units" in ended.stderr
    assert not list(tmp_path.iterdir())
