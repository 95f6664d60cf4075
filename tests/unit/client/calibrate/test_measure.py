"""What is run for a pair and for diversity, on an executor that paints seeds and donors."""

from __future__ import annotations

import io
import random
from collections.abc import Generator, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from skipstone_client.calibrate.measure import NAMESPACE, Runner, mean_distance, steps_at
from skipstone_client.calibrate.pairs import (
    REWORDED,
    UNKNOWN,
    Pair,
    Vectors,
    nearest_earlier,
    pairs_of,
    random_pairs,
    read_rows,
)
from skipstone_client.calibrate.pictures import distance
from skipstone_client.calibrate.records import Resumed, Setup
from skipstone_shared.denoise_runs import (
    DenoiseEvent,
    DenoiseFinished,
    DenoiseRequest,
    DenoiseStarted,
    ResumeKind,
    SnapshotFailure,
)
from skipstone_shared.errors import InvalidArgument, Unavailable
from skipstone_shared.generation import Artifact, GenerationParams
from skipstone_shared.latents import LatentRef
from skipstone_shared.orchestration import ReuseKind

SIGMAS = [1 - k / 10 for k in range(11)]
SETUP = Setup("m", "hash", 10, 30, 3.0, (0.9, 0.5), (4, 8), "pairs.csv", 1)
PAIR = Pair("a red circle", "a circle in red", REWORDED)


class Painter:
    """An executor and its store: a picture is grey by its seed, or by its donor's as far as used.

    A trajectory shows the donor's grey whatever the seed; renoise mixes by the steps skipped.
    """

    def __init__(self) -> None:
        self.requests: list[DenoiseRequest] = []
        self.greys: dict[str, float] = {}
        self.deleted: list[str] = []
        self.refusal = ""
        self.refusals = 10**6
        self.failures: tuple[SnapshotFailure, ...] = ()

    def run(self, request: DenoiseRequest) -> Generator[DenoiseEvent, None, None]:
        self.requests.append(request)
        params, resume = request.params, request.resume
        grey = float((params.seed or 0) * 37 % 200)
        if resume is not None:
            share = resume.skip_steps / 10 if resume.kind is ResumeKind.RENOISE else 1.0
            grey = (1 - share) * grey + share * self.greys[resume.donor.entry_id]
        refused = resume is not None and self.refusal and self.refusals > 0
        self.refusals -= bool(refused)
        reason = self.refusal if refused else ""
        yield DenoiseStarted(resume.skip_steps if resume else 0, reason, "no such latent")
        buffer = io.BytesIO()
        Image.new("RGB", (8, 8), (round(grey),) * 3).save(buffer, "PNG")
        yield Artifact("image/png", buffer.getvalue(), 8, 8)
        refs: tuple[LatentRef, ...] = ()
        if request.snapshots is not None:
            entry = request.snapshots.entry_id
            self.greys[entry] = grey
            steps = (*request.snapshots.key_steps, params.num_inference_steps or 0)
            refs = tuple(LatentRef(NAMESPACE, entry, step) for step in steps)
        yield DenoiseFinished(1, 0, "key", snapshots=refs, snapshot_failures=self.failures)

    def delete_entries(self, namespace: str, entry_ids: Sequence[str]) -> list[bool]:
        assert namespace == NAMESPACE
        self.deleted += entry_ids
        return [True for _ in entry_ids]


def runner(painter: Painter, kinds: Sequence[ReuseKind] = tuple(ReuseKind)) -> Runner:
    params = GenerationParams("unused", guidance_scale=3.0)
    return Runner(painter, painter, params, SETUP, SIGMAS, kinds, lambda _, prompt: "red" in prompt)


def resumed_of(runs: Sequence[Resumed], kind: ReuseKind, same_seed: bool) -> list[float]:
    return [run.distance for run in runs if (run.kind, run.same_seed) == (kind, same_seed)]


def test_a_pair_is_run_in_full_plainly_and_resumed_in_every_way() -> None:
    painter = Painter()
    record = runner(painter).measure_pair(PAIR, 3)
    steps = [request.params.num_inference_steps for request in painter.requests]
    assert steps == [30, 4, 8, *[10] * 10], "2 donors, each 2 kinds at 2 levels"
    assert [run.steps for run in record.plain] == [4, 8]
    ways = {(run.kind, run.same_seed, run.level, run.skip_steps) for run in record.resumed}
    assert ways == {
        (kind, same, level, step)
        for kind in ReuseKind
        for same in (False, True)
        for level, step in ((0.9, 1), (0.5, 5))
    }
    assert (record.relation, record.full_right) == (REWORDED, True)


def test_distances_are_those_from_the_full_run_of_the_same_seed() -> None:
    record = runner(Painter()).measure_pair(PAIR, 3)
    assert resumed_of(record.resumed, ReuseKind.RENOISE, True) == [0.0, 0.0]
    near, far = resumed_of(record.resumed, ReuseKind.RENOISE, False)
    assert 0 < near < far
    whole = resumed_of(record.resumed, ReuseKind.TRAJECTORY, False)
    assert whole[0] == whole[1] > far


def test_pairs_have_seeds_of_their_own_and_the_same_ones_when_run_again() -> None:
    painter = Painter()
    for number in (1, 2, 1):
        runner(painter).measure_pair(PAIR, number)
    seeds = [request.params.seed for request in painter.requests]
    third = len(seeds) // 3
    assert seeds[:third] == seeds[2 * third :]
    assert not set(seeds[:third]) & set(seeds[third : 2 * third])


def test_what_a_donor_shows_is_not_judged() -> None:
    """Its prompt may say less than a checker needs."""

    def strict(_: bytes, prompt: str) -> bool:
        assert prompt == PAIR.prompt
        return True

    params = GenerationParams("unused", guidance_scale=3.0)
    painter = Painter()
    record = Runner(painter, painter, params, SETUP, SIGMAS, tuple(ReuseKind), strict).measure_pair(
        PAIR, 3
    )
    assert all(run.right for run in record.resumed)


def test_what_was_stored_is_removed_even_when_a_run_fails() -> None:
    painter = Painter()
    runner(painter).measure_pair(PAIR, 1)
    assert len(painter.deleted) == len(painter.greys) == 2
    painter.refusal = "LATENT_NOT_FOUND"
    with pytest.raises(Unavailable, match="a donor was refused: no such latent"):
        runner(painter).measure_pair(PAIR, 2)
    assert set(painter.deleted) == set(painter.greys)


def test_a_store_that_was_slow_is_asked_again() -> None:
    painter = Painter()
    painter.refusal, painter.refusals = "STORE_TIMEOUT", 3
    assert len(runner(painter).measure_pair(PAIR, 1).resumed) == 8
    painter.refusals = 10**6
    with pytest.raises(Unavailable, match="a donor was refused"):
        runner(painter).measure_pair(PAIR, 2)


def test_a_snapshot_that_was_not_stored_ends_the_measurement() -> None:
    painter = Painter()
    painter.failures = (SnapshotFailure(5, "QUOTA_EXCEEDED", "the store is full"),)
    with pytest.raises(Unavailable, match="the store is full"):
        runner(painter).measure_pair(PAIR, 1)


def test_pictures_of_many_seeds_lie_closer_the_deeper_they_resume() -> None:
    record = runner(Painter()).measure_seeds("a red circle", 4, 0)
    spread = {(s.kind, s.level): s.distance for s in record.resumed}
    deep, shallow = (spread[ReuseKind.RENOISE, level] for level in (0.5, 0.9))
    assert 0 < deep < shallow < record.full
    assert spread[ReuseKind.TRAJECTORY, 0.9] == 0.0, "it ignores the seed"


def test_only_what_the_model_can_do_is_run() -> None:
    record = runner(Painter(), [ReuseKind.TRAJECTORY]).measure_pair(PAIR, 1)
    assert {run.kind for run in record.resumed} == {ReuseKind.TRAJECTORY}


def test_a_distance_counts_a_moved_edge_less_than_a_moved_object() -> None:
    flat = np.zeros((1, 32, 32, 3), np.float32)
    edge, moved, further = flat.copy(), flat.copy(), flat.copy()
    edge[:, 8:16, 8:16] = 200
    moved[:, 8:16, 9:17] = 200
    further[:, 8:16, 20:28] = 200
    assert distance(edge, edge) == 0.0
    assert 0 < distance(edge, moved) < distance(edge, further)
    assert mean_distance([edge, moved, further]) > 0


def test_a_level_is_resumed_at_where_the_policy_would() -> None:
    """At the deepest step that is not below it."""
    assert [steps_at(SIGMAS, level) for level in (1.0, 0.79, 0.5, 0.41, 0.0)] == [1, 2, 5, 5, 9]


def words(texts: Sequence[str]) -> Vectors:
    """Vectors by shared words."""
    known = sorted({word for text in texts for word in text.split()})
    rows = np.array([[text.split().count(word) for word in known] for text in texts], np.float32)
    found: Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return found


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def read(path: Path, seed: int = 1) -> list[Pair]:
    return pairs_of(read_rows(path), seed, words)


def test_a_log_is_paired_with_the_nearest_prompt_before_each() -> None:
    log = ["a red fox", "stone bridge", "a red fox in snow", "a red fox", "a fox in snow"]
    assert nearest_earlier(log, words) == [
        Pair("a red fox", "a red fox in snow"),
        Pair("a red fox in snow", "a red fox"),
        Pair("a red fox in snow", "a fox in snow"),
    ]


def test_pairs_of_a_file_are_taken_as_they_are_in_an_order_that_a_seed_fixes(
    tmp_path: Path,
) -> None:
    rows = "".join(f"d{i},p{i},{'colour' if i % 2 else 'reworded'}\n" for i in range(20))
    path = write(tmp_path / "pairs.csv", f"donor,prompt,relation\n{rows}")
    found = read(path, 1)
    assert found == read(path, 1) != read(path, 2)
    assert {pair.is_edit for pair in found} == {True, False}


def test_a_log_knows_no_relation(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", "seq,prompt\n1,a fox\n2,a red fox\n")
    (pair,) = read(path)
    assert (pair, pair.is_edit) == (Pair("a fox", "a red fox", UNKNOWN), False)


@pytest.mark.parametrize("text", ["", "prompt\n", "text\nfox\n"])
def test_a_file_without_prompts_is_refused_in_words(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidArgument, match="no column named prompt, or no row"):
        read_rows(write(tmp_path / "log.csv", text))
    with pytest.raises(InvalidArgument, match="cannot be read"):
        read_rows(tmp_path / "missing.csv")


def test_random_pairs_never_put_a_pair_back_together() -> None:
    pairs = [Pair(f"d{i}", f"p{i}") for i in range(5)]
    found = random_pairs(pairs, 200, 1)
    assert len(found) == len(set(found)) == 20, "all there are, each once"
    assert not set(pairs) & set(found)
    assert random_pairs(pairs[:1], 5, 1) == []


def test_a_row_that_is_cut_short_is_no_pair(tmp_path: Path) -> None:
    path = write(tmp_path / "pairs.csv", "donor,prompt\na fox\na fox,a red fox\n")
    assert read(path) == [Pair("a fox", "a red fox")]


def test_chance_does_not_put_together_what_one_user_edited_in_a_row() -> None:
    """Such prompts may ask for the same, and their scores would close every tier."""
    log = [f"thread {i // 10} edit {i % 10}" for i in range(100)]
    pairs = [Pair(log[i], log[i + 1], place=i) for i in range(99)]
    shuffled = random.Random(3).sample(pairs, len(pairs))
    found = random_pairs(shuffled, 1000, 1)
    assert len(found) == 1000
    assert all(
        abs(log.index(pair.donor) - log.index(pair.prompt)) >= len(pairs) // 4 - 1 for pair in found
    )


def test_chance_never_puts_a_prompt_with_itself() -> None:
    pairs = [Pair("a  Fox", f"p{i % 2}", place=i) for i in range(8)]
    pairs += [Pair(f"d{i}", "A fox", place=8 + i) for i in range(2)]
    found = random_pairs(pairs, 100, 1)
    assert found
    assert not any(pair.donor.lower().split() == pair.prompt.lower().split() for pair in found)
    assert random_pairs([Pair("same", "same")] * 4, 5, 1) == []
