"""The trace has the log's structure, in captions whose truth is known."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from quality.trace import (
    ADDED,
    NEW,
    REMOVED,
    REPEAT,
    REWORDING,
    TWO,
    CaptionRequest,
    caption_trace,
    change_between,
    same_scene,
    with_new_seeds,
)
from search.vectors import Matrix
from skipstone_bundled.captions import read_caption

ROWS = [
    # seq, thread, parent_seq, prompt
    (0, 0, "", "a cat on a chair"),
    (1, 1, "", "a ship at sea"),
    (2, 0, 0, "a dog on a chair"),
    (3, 0, 2, "a dog on a chair"),
    (5, 0, 2, "on a chair a dog"),
    (6, 2, 4, "a fish in a bowl"),
    (7, 0, 0, "a cat on a chair"),
]


def unlike(prompts: Sequence[str]) -> Matrix:
    return np.eye(len(prompts), dtype=np.float32)


def trace_of(tmp_path: Path, count: int = len(ROWS)) -> list[CaptionRequest]:
    log = tmp_path / "log.csv"
    with log.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("seq", "thread", "parent_seq", "prompt"))
        writer.writerows(ROWS)
    return caption_trace(count, log, unlike)


def test_a_row_becomes_what_it_is_in_the_log(tmp_path: Path) -> None:
    kinds = [request.kind for request in trace_of(tmp_path)]
    assert kinds[:2] == [NEW, NEW]
    assert kinds[3:] == [REPEAT, REWORDING, NEW, REPEAT]


def test_a_repeat_asks_for_the_very_same_picture(tmp_path: Path) -> None:
    requests = trace_of(tmp_path)
    for repeat, first in ((3, 2), (6, 0)):
        assert requests[repeat].caption == requests[first].caption
        assert requests[repeat].seed == requests[first].seed
        assert requests[repeat].parent == first


def test_an_edit_of_few_words_changes_one_attribute_of_the_parent(tmp_path: Path) -> None:
    requests = trace_of(tmp_path)
    before, after = (read_caption(requests[index].caption) for index in (0, 2))
    changed = [before.background != after.background]
    for old, new in zip(before.objects, after.objects, strict=True):
        changed += [
            getattr(old, name) != getattr(new, name)
            for name in ("size", "colour", "shape", "place")
        ]
    assert sum(changed) == 1
    assert requests[2].seed != requests[0].seed


def test_a_rewording_keeps_the_scene(tmp_path: Path) -> None:
    requests = trace_of(tmp_path)
    before, after = (read_caption(requests[index].caption) for index in (2, 4))
    assert requests[4].caption != requests[2].caption
    assert before.background == after.background
    assert set(before.objects) == set(after.objects)


def test_the_trace_is_the_same_every_time_and_a_shorter_one_is_its_beginning(
    tmp_path: Path,
) -> None:
    assert trace_of(tmp_path) == trace_of(tmp_path)
    assert trace_of(tmp_path, 4) == trace_of(tmp_path)[:4]


def test_changes_of_words_are_told_apart() -> None:
    assert change_between("a red cat", "a red cat, sharp", 0.9) == ADDED
    assert change_between("a red cat, sharp", "a red cat", 0.9) == REMOVED
    assert change_between("a red cat", "a blue cat", 0.9) == ""
    many = ("one two three four five", "six seven eight nine five")
    assert change_between(*many, 0.9) == TWO
    assert change_between(*many, 0.97) == REWORDING


def test_with_new_seeds_only_repeats_change_and_only_in_their_seed(tmp_path: Path) -> None:
    requests = trace_of(tmp_path)
    for before, after in zip(requests, with_new_seeds(requests), strict=True):
        assert (before.caption, before.kind) == (after.caption, after.kind)
        assert (before.seed == after.seed) == (before.kind != REPEAT)


def test_a_scene_is_the_same_in_other_words_and_order_and_another_with_swapped_colours() -> None:
    told = "a small red circle on the left and a large blue ring at the top on a gray background"
    reworded = "on a grey background, a big blue hoop at the top, a tiny scarlet disc on the left"
    swapped = "a small blue circle on the left and a large red ring at the top on a gray background"
    assert same_scene(told, reworded)
    assert not same_scene(told, swapped)
