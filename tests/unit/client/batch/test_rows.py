"""Files of prompts: what is read from them, and what is refused before anything runs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from skipstone_client.batch.rows import Row, read_rows
from skipstone_client.reference_files import ReferenceFiles
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import (
    MAX_REFERENCE_BYTES,
    AdapterSelection,
    BlockCachePreset,
    GenerationParams,
    ReferenceInput,
    ReferenceRole,
)
from skipstone_shared.orchestration import CacheMode, CacheOptions, ReuseKind

PNG = b"\x89PNG\r\n\x1a\n"
JPEG = b"\xff\xd8\xff\xe0"

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


def test_a_row_says_all_that_a_request_may_say(tmp_path):
    (row,) = rows_of(
        tmp_path,
        "prompts.jsonl",
        json.dumps(
            {
                "prompt": "a",
                "negative_prompt": "b",
                "guidance_scale_2": 4,
                "shift": 3,
                "adapters": {"style": 0.5, "line": 1},
                "exact": False,
                "approximate": True,
                "min_similarity": 0.5,
                "max_skip_steps": 4,
                "key_steps": [2, 4],
                "top_k": 3,
                "reuse_kind": "renoise",
                "reproducible": False,
                "donor_choices": 2,
                "donor_margin": 0.1,
            }
        ),
    )
    adapters = (AdapterSelection("style", 0.5), AdapterSelection("line", 1.0))
    wanted = dataclasses.replace(
        OPTIONS, prompt="a", negative_prompt="b", guidance_scale_2=4.0, shift=3.0, adapters=adapters
    )
    assert row.params == wanted
    assert row.cache == CacheOptions(
        None, False, True, 0.5, 4, (2, 4), 3, False, ReuseKind.RENOISE, 2, 0.1
    )
    text = 'prompt,adapters,key_steps,exact\na,style=0.5,"2,4",false\n'
    (row,) = rows_of(tmp_path, "prompts.csv", text)
    assert row.params.adapters == adapters[:1]
    assert (row.cache.key_steps, row.cache.allow_exact) == ((2, 4), False)


def test_pictures_of_rows_are_relative_to_their_file_and_told_apart_by_content(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    (folder / "a.png").write_bytes(PNG + b"a")
    (folder / "b.jpg").write_bytes(JPEG)
    (folder / "same.png").write_bytes(PNG + b"a")
    (tmp_path / "other.png").write_bytes(PNG + b"b")
    file = tmp_path / "prompts.csv"
    names = ["pictures/a.png", "pictures/same.png", "other.png", ""]
    file.write_text("prompt,image\n" + "".join(f"a,{name}\n" for name in names))
    of_all = ReferenceFiles().look_at(ReferenceRole.MASK, folder / "b.jpg", "--mask")
    rows = read_rows(file, OPTIONS, CacheOptions(), "", [of_all])
    first, same, other, without = (row.whole_params().reference_inputs for row in rows)
    assert first == same
    assert first == (
        ReferenceInput(ReferenceRole.IMAGE, "image/png", PNG + b"a"),
        ReferenceInput(ReferenceRole.MASK, "image/jpeg", JPEG),
    )
    assert other[0].data == PNG + b"b"
    assert [reference.role for reference in without] == [ReferenceRole.MASK]
    assert len({row.key for row in rows}) == 4
    assert rows[0].asked == rows[1].asked != rows[2].asked

    (folder / "a.png").write_bytes(PNG + b"c")
    with pytest.raises(InvalidArgument, match="was changed"):
        rows[0].whole_params()


def test_files_that_do_not_fit_into_one_request_are_refused(tmp_path):
    (tmp_path / "large.png").write_bytes(PNG + bytes(MAX_REFERENCE_BYTES - len(PNG)))
    (tmp_path / "larger.png").write_bytes(PNG + bytes(MAX_REFERENCE_BYTES))
    row = '{"prompt": "a", "image": "large.png"}'
    assert rows_of(tmp_path, "prompts.jsonl", row)[0].references
    with pytest.raises(InvalidArgument, match="together"):
        rows_of(tmp_path, "prompts.jsonl", row[:-1] + ', "last_frame": "large.png"}')
    with pytest.raises(InvalidArgument, match=f"1 to {MAX_REFERENCE_BYTES} bytes"):
        rows_of(tmp_path, "prompts.jsonl", row.replace("large", "larger"))


def test_an_empty_cell_of_csv_takes_the_option(tmp_path):
    text = 'prompt,seed,height\n"a circle, red",1,64\nb,,\n'
    first, second = rows_of(tmp_path, "prompts.csv", text)
    assert (first.params.prompt, first.params.seed, first.params.height) == ("a circle, red", 1, 64)
    assert (second.params.seed, second.params.height) == (5, None)
    (third,) = rows_of(tmp_path, "prompts.tsv", "prompt\tseed\na, b\t3\n")
    assert (third.params.prompt, third.params.seed) == ("a, b", 3)


def test_options_change_what_a_row_asks_for_and_not_its_key(tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("a\n")
    (row,) = read_rows(file, OPTIONS, CacheOptions())
    faster = dataclasses.replace(OPTIONS, num_inference_steps=8)
    for params, cache, namespace in (
        (faster, CacheOptions(), ""),
        (OPTIONS, CacheOptions(mode=CacheMode.OFF), ""),
        (OPTIONS, CacheOptions(), "mine"),
    ):
        (other,) = read_rows(file, params, cache, namespace)
        assert other.key == row.key
        assert other.asked != row.asked


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
        ("prompts.jsonl", '{"prompt": "a", "name": "%s"}' % ("語" * 82), "name: has 246 bytes"),
        ("prompts.jsonl", '{"prompt": "\\ud800"}', "prompt"),
        ("prompts.jsonl", '{"prompt": "a", "image": "no.png"}', "row 1 of"),
        ("prompts.jsonl", '{"prompt": "a", "mask": "no.png"}', "mask: cannot read"),
        ("prompts.jsonl", '{"prompt": "a", "mask": "/dev/zero"}', "/dev/zero is no file"),
        ("prompts.jsonl", '{"prompt": "a", "mask": "a\\u0000"}', "mask: cannot read"),
        ("prompts.jsonl", '{"prompt": "a", "image": "prompts.jsonl"}', "PNG, JPEG or MP4"),
        ("prompts.jsonl", '{"prompt": "a", "adapters": {"style": "much"}}', "NAME=SCALE"),
        ("prompts.csv", "prompt,key_steps\na,5;7\n", "key_steps: '5;7' are no steps"),
        ("prompts.csv", "prompt,reuse_kind\na,some\n", "trajectory"),
        ("prompts.csv", "prompt,exact\na,perhaps\n", "exact"),
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
