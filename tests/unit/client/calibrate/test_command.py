"""What `skipstone calibrate` refuses before it connects to anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from skipstone_client.cli_commands import build_app


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--levels", "0.9,1.5"], "--levels: 1.5 is no noise level"),
        (["--levels", "0"], "--levels: 0 is no noise level"),
        (["--levels", ","], "--levels: give at least one"),
        (["--levels", "deep"], "--levels: 'deep' is not a list of numbers"),
        (["--plain-steps", "4,2.5"], "--plain-steps: 2.5 is no whole number"),
        (["--plain-steps", "0"], "--plain-steps: 0 is no whole number"),
        ([], "prompts: missing.csv cannot be read"),
    ],
)
def test_bad_input_is_refused_by_name_before_anything_is_asked(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # Nobody listens there: had it connected, it would have told that.
    nowhere = ["--embedding", "127.0.0.1:1"]
    result = CliRunner().invoke(build_app(), ["calibrate", "missing.csv", *nowhere, *words])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert told in result.stderr
    assert list(tmp_path.iterdir()) == []
