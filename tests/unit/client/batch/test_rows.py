"""Files of prompts: what is read from them, and what is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from skipstone_client.batch.rows import Row, read_rows
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import BlockCachePreset, GenerationParams
from skipstone_shared.orchestration import CacheMode, CacheOptions

OPTIONS = GenerationParams("", num_inference_steps=30, seed=5)


def rows_of(tmp_path: Path, name: str, text: str) -> list[Row]:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return read_rows(file, OPTIONS, CacheOptions())


def test_a_text_file_is_a_prompt_a_line_without_the_empty_ones(tmp_path):
    rows = rows_of(tmp_path, "prompts.txt", "\ufeffa red circle\r\n\n  a blue square \n# 1\n")
    assert [row.params.prompt for row in rows] == ["a red circle", "a blue square", "# 1"]
    assert [row.number for row in rows] == [1, 2, 3]
    assert {row.params.num_inference_steps for row in rows} == {30}


def test_a_row_of_json_says_what_differs_from_the_options(tmp_path):
    text = (
        '{"prompt": "a", "steps": 8, "seed": 1, "cache_mode": "off", "name": "first"}\n'
        '{"prompt": "b\u2028c", "num_inference_steps": 9, "cache_config": "balanced"}\n'
        '{"prompt": "d", "guidance": 3.5, "cache_config": {"Fn_compute_blocks": 2}, "seed": null}\n'
    )
    first, second, third = rows_of(tmp_path, "prompts.jsonl", text)
    assert first.name == "first"
    assert (first.params.num_inference_steps, first.params.seed) == (8, 1)
    assert first.cache.mode is CacheMode.OFF
    assert second.params.prompt == "b\u2028c"
    assert second.params.block_cache is not None
    assert second.params.block_cache.preset is BlockCachePreset.BALANCED
    assert (second.params.num_inference_steps, second.params.seed) == (9, 5)
    assert third.params.block_cache is not None
    assert third.params.block_cache.fn_compute_blocks == 2
    assert (third.params.guidance_scale, third.params.seed) == (3.5, 5)


def test_an_empty_cell_of_csv_takes_the_option(tmp_path):
    text = 'prompt,seed,height\n"a circle, red",1,64\nb,,\n'
    first, second = rows_of(tmp_path, "prompts.csv", text)
    assert (first.params.prompt, first.params.seed, first.params.height) == ("a circle, red", 1, 64)
    assert (second.params.seed, second.params.height) == (5, None)
    (third,) = rows_of(tmp_path, "prompts.tsv", "prompt\tseed\na, b\t3\n")
    assert (third.params.prompt, third.params.seed) == ("a, b", 3)


def test_keys_stay_when_rows_are_put_before_and_differ_for_equal_rows(tmp_path):
    before = rows_of(tmp_path, "prompts.txt", "a\nb\na\n")
    after = rows_of(tmp_path, "prompts.txt", "c\na\nb\na\n")
    assert [row.key for row in before] == [row.key for row in after[1:]]
    assert len({row.key for row in after}) == 4


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("prompts.txt", "\n\n", "has no row"),
        ("prompts.jsonl", '{"prompt": "a"}\n{"prompt": "b", "stepps": 3}', "did you mean steps"),
        ("prompts.jsonl", '{"prompt": "a", "zzz": 3}', "zzz is no column; there are prompt, name"),
        ("prompts.jsonl", '{"steps": 3}', "row 1 of"),
        ("prompts.jsonl", '{"prompt": "a", "steps": true}', "steps"),
        ("prompts.jsonl", '{"prompt": "a", "steps": 1.5}', "steps"),
        ("prompts.jsonl", '{"prompt": "a", "seed": -1}', "seed"),
        ("prompts.jsonl", '{"prompt": "a", "cache_mode": "sometimes"}', "read_only"),
        ("prompts.jsonl", '{"prompt": "a", "cache_config": {"Fn": 1}}', "cache_config"),
        ("prompts.jsonl", '{"prompt": "a", "name": "../a"}', "name"),
        ("prompts.jsonl", '{"prompt": "\\ud800"}', "prompt"),
        ("prompts.jsonl", "[1]", "row 1 of"),
        ("prompts.jsonl", "{", "no JSON"),
        ("prompts.csv", "prompt,seed\na,1,2\n", "more cells"),
        ("prompts.csv", 'prompt\n"a', "prompts.csv"),
        ("prompts.csv", "name,prompt\nx,a\nx,b\n", "several rows have the name 'x'"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_row(tmp_path, name, text, said):
    with pytest.raises(InvalidArgument, match="--file") as refused:
        rows_of(tmp_path, name, text)
    assert said in str(refused.value)


def test_a_file_that_is_not_there_or_not_utf_8_is_refused(tmp_path):
    with pytest.raises(InvalidArgument, match="cannot read"):
        read_rows(tmp_path / "none.txt", OPTIONS, CacheOptions())
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(InvalidArgument, match="not UTF-8"):
        read_rows(tmp_path / "latin.txt", OPTIONS, CacheOptions())
