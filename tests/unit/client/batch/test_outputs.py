"""The folder of a batch: what counts as done after anything was cut, lost or changed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from skipstone_client.artifact_names import MAX_STEM_BYTES
from skipstone_client.batch.outputs import MANIFEST, BatchFolder, Maker
from skipstone_client.batch.rows import Row
from skipstone_shared.errors import FailedPrecondition, InvalidArgument, QueueFull
from skipstone_shared.generation import Artifact, GenerationParams
from skipstone_shared.orchestration import (
    CacheMode,
    CacheOptions,
    GenerateResult,
    HitTier,
    Provenance,
)

MAKER = Maker("127.0.0.1:50050", "model-1", {"num_inference_steps": 8})


def row(number: int, prompt: str = "a", name: str = "") -> Row:
    key = f"{number:012x}"
    return Row(number, key, name, GenerationParams(prompt), CacheOptions())


def result(data: bytes, media_type: str = "image/png") -> GenerateResult:
    provenance = Provenance("r", HitTier.MISS, "NO_DONOR", 8, 8, 1, CacheMode.READ_WRITE, "1")
    artifact = Artifact(media_type, data, 64, 64)
    return GenerateResult(artifact, provenance, GenerationParams("a"))


def test_a_kept_row_is_done_for_the_next_process(tmp_path):
    with BatchFolder(tmp_path / "out") as folder:
        told = folder.keep(row(1), result(b"first"), MAKER)
    with BatchFolder(tmp_path / "out") as folder:
        assert folder.done(row(1)) == told
        assert folder.done(row(2)) is None
    assert (tmp_path / "out" / told.file).read_bytes() == b"first"
    assert told.provenance["tier"] == "miss"
    assert (told.target, told.model_id) == (MAKER.target, MAKER.model_id)


def test_a_line_that_is_json_and_no_outcome_tells_nothing(tmp_path):
    lines = ["[]", "7", '{"row": 1}', '{"row": 1, "key": [], "status": "done", "prompt": "a"}']
    (tmp_path / MANIFEST).write_text("\n".join(lines))
    with BatchFolder(tmp_path) as folder:
        assert folder.done(row(1)) is None


def test_names_come_from_the_row_and_the_kind_of_picture(tmp_path):
    with BatchFolder(tmp_path) as folder:
        assert folder.keep(row(1), result(b"x"), MAKER).file == "00001-00000000.png"
        assert folder.keep(row(2, name="hero"), result(b"x", "video/mp4"), MAKER).file == "hero.mp4"


def test_the_longest_name_that_rows_may_have_fits_into_file_systems(tmp_path):
    longest = "語" * (MAX_STEM_BYTES // 3)
    assert MAX_STEM_BYTES - len(longest.encode()) < 3
    with BatchFolder(tmp_path) as folder:
        kept = folder.keep(row(1, name=longest), result(b"x", "image/webp"), MAKER)
    assert (tmp_path / kept.file).read_bytes() == b"x"


def test_a_row_that_is_made_anew_as_another_kind_leaves_one_file(tmp_path):
    with BatchFolder(tmp_path) as folder:
        folder.keep(row(1, name="hero"), result(b"x", "video/mp4"), MAKER)
        folder.keep(row(1, name="hero"), result(b"y", "image/gif"), MAKER)
    assert {file.name for file in tmp_path.iterdir()} == {"hero.gif", MANIFEST, ".lock"}


def test_every_byte_at_which_a_kill_may_cut_the_manifest_leaves_whole_lines(tmp_path):
    with BatchFolder(tmp_path) as folder:
        folder.keep(row(1), result(b"first"), MAKER)
        length = (tmp_path / MANIFEST).stat().st_size
        folder.keep(row(2), result(b"second"), MAKER)
    whole = (tmp_path / MANIFEST).read_bytes()
    for cut in range(length, len(whole) - 1):
        (tmp_path / MANIFEST).write_bytes(whole[:cut])
        with BatchFolder(tmp_path) as folder:
            assert folder.done(row(1)) is not None
            assert folder.done(row(2)) is None
            folder.keep(row(2), result(b"second"), MAKER)
        assert [json.loads(line)["row"] for line in (tmp_path / MANIFEST).open()] == [1, 2]


@pytest.mark.parametrize("left", [b"", b"fir", b"other"])
def test_a_picture_that_is_not_what_its_line_says_runs_again(tmp_path, left):
    with BatchFolder(tmp_path) as folder:
        told = folder.keep(row(1), result(b"first"), MAKER)
        (tmp_path / told.file).write_bytes(left)
        assert folder.done(row(1)) is None
        (tmp_path / told.file).unlink()
        assert folder.done(row(1)) is None


def test_a_half_written_picture_is_removed_and_never_counts(tmp_path):
    (tmp_path / "00001-00000000.png.part").write_bytes(b"fir")
    with BatchFolder(tmp_path) as folder:
        assert folder.done(row(1)) is None
    assert not list(tmp_path.glob("*.part"))


def test_a_failed_row_runs_again_and_its_last_line_counts(tmp_path):
    with BatchFolder(tmp_path) as folder:
        folder.note_failure(row(1), QueueFull("too many"), MAKER)
    with BatchFolder(tmp_path) as folder:
        assert folder.done(row(1)) is None
        folder.keep(row(1), result(b"first"), MAKER)
    with BatchFolder(tmp_path) as folder:
        assert folder.done(row(1)) is not None
    (line,) = (tmp_path / MANIFEST).read_text().splitlines()
    assert json.loads(line)["status"] == "done"


def test_a_failed_try_to_make_a_row_anew_leaves_it_done_and_tells_of_the_error(tmp_path):
    with BatchFolder(tmp_path) as folder:
        made = folder.keep(row(1, name="hero"), result(b"x", "video/mp4"), MAKER)
        failed = folder.note_failure(row(1, name="hero"), QueueFull("too many"), MAKER)
        assert (failed.status, failed.error, failed.file) == ("failed", "too many", "")
    with BatchFolder(tmp_path) as folder:
        told = folder.done(row(1))
        assert told == dataclasses.replace(made, error="too many", reason=failed.reason)
        kept = folder.keep(row(1, name="hero"), result(b"y", "image/gif"), MAKER)
        assert (kept.file, kept.error) == ("hero.gif", "")
    assert {file.name for file in tmp_path.iterdir()} == {"hero.gif", MANIFEST, ".lock"}


def test_a_picture_that_is_not_whole_goes_though_its_row_failed_before_it_is_made(tmp_path):
    with BatchFolder(tmp_path) as folder:
        folder.keep(row(1, name="hero"), result(b"x", "video/mp4"), MAKER)
        (tmp_path / "hero.mp4").write_bytes(b"cut")
        for _ in range(2):
            folder.note_failure(row(1, name="hero"), QueueFull("too many"), MAKER)
    (line,) = (tmp_path / MANIFEST).read_text().splitlines()[-1:]
    assert json.loads(line)["status"] == "failed"
    with BatchFolder(tmp_path) as folder:
        assert folder.done(row(1)) is None
        folder.keep(row(1, name="hero"), result(b"y", "image/gif"), MAKER)
    assert {file.name for file in tmp_path.iterdir()} == {"hero.gif", MANIFEST, ".lock"}


def test_two_processes_do_not_share_a_folder(tmp_path):
    with BatchFolder(tmp_path), pytest.raises(FailedPrecondition, match="another process"):
        BatchFolder(tmp_path)
    with BatchFolder(tmp_path):
        pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgument, match="--out"):
        BatchFolder(tmp_path / "file")
