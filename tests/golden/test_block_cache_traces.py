"""Block caching agrees with what the reference was recorded to do."""

from __future__ import annotations

import json
import re

import pytest
from tests.golden.check_traces import GOLDEN_FILES, checks_of, verdict_on

BEYOND_THE_REQUIRED_SET = re.compile(r"FoCa|DMD|/prune_")
"""Options of the reference that Skipstone does not have."""

CHECKS = {
    f"{path.stem}/{name}": check
    for path in GOLDEN_FILES
    for name, check in checks_of(json.loads(path.read_text()))
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_recorded_run_is_repeated(name: str) -> None:
    line = verdict_on(name, CHECKS[name])
    expected = "unsupported" if BEYOND_THE_REQUIRED_SET.search(name) else "ok"
    assert line["verdict"] == expected, line["first_difference"]
