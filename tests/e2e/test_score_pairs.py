"""`make score-pairs` as it is called."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_every_pair_gets_one_line_with_the_products_own_verdict(tmp_path: Path) -> None:
    """Loads the real models, so it takes seconds."""
    path = tmp_path / "pairs.csv"
    path.write_text(
        "a,b\n"
        "a dog chasing a cat,a cat chasing a dog\n"
        "a big dog on a couch,a large dog on a sofa\n"
        "a small cat,seven sailors in a boat\n"
        "a small cat,a small cat\n"
        "A small  Cat,a small cat\n"
    )
    paths = os.pathsep.join([str(ROOT / "bench"), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "bench/score_pairs.py", str(path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
        timeout=110,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["pair"], line["verdict"]) for line in lines[:3]] == [
        (1, "miss"),
        (2, "hit"),
        (3, "miss"),
    ]
    assert all(
        set(line) == {"pair", "verdict", "skip_steps", "similarity", "score"} for line in lines
    )
    assert lines[0]["similarity"] > 0.9
    assert lines[0]["score"] == lines[0]["skip_steps"] == 0
    assert lines[1]["skip_steps"] > 0
    same, nearly = ({k: line[k] for k in ("verdict", "skip_steps", "score")} for line in lines[3:])
    assert same == nearly  # case and white space make no other prompt, here as in the product
