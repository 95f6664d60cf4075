"""The file that `make score-pairs` reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.score_pairs import BadPairs, read_pairs


def write(folder: Path, text: str) -> Path:
    path = folder / "pairs.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_pairs_are_read_in_order_whatever_else_is_in_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, '\ufeffid,b,a\n1,"two, three",one\n2,x,y\n')
    assert read_pairs(path) == [("one", "two, three"), ("y", "x")]


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadPairs, match="no column b; columns are: a, c"):
        read_pairs(write(tmp_path, "a,c\n1,2\n"))


def test_an_empty_file_has_no_columns(tmp_path: Path) -> None:
    with pytest.raises(BadPairs, match="no column a and b; columns are: none"):
        read_pairs(write(tmp_path, ""))


def test_an_empty_prompt_is_told_with_its_row(tmp_path: Path) -> None:
    with pytest.raises(BadPairs, match="row 2 has nothing in column b"):
        read_pairs(write(tmp_path, "a,b\nx,y\nx, \n"))


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadPairs, match="nowhere"):
        read_pairs(tmp_path / "nowhere.csv")
