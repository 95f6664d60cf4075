"""The log of a store in S3 and the rows of one in Redis: what was written is read, nonsense is not.

Records have a checksum, which a program that writes nonsense fits too.
"""

from __future__ import annotations

import base64
import contextlib
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.latent_kv.test_record_format import RECORD, STATE

from skipstone_latent_kv import s3_records
from skipstone_latent_kv.entry_table import EntryTable
from skipstone_latent_kv.eviction_policies import LeastRecentlyUsed
from skipstone_latent_kv.record_format import frame, unframe
from skipstone_latent_kv.redis_catalog_rows import parse_row, parse_value
from skipstone_latent_kv.s3_records import (
    Change,
    Checkpoint,
    decode_changes,
    decode_checkpoint,
    encode_changes,
    encode_checkpoint,
    packed_entry,
    packed_snapshot,
)
from skipstone_latent_kv.s3_transaction import S3Transaction
from skipstone_latent_kv.s3_values import ValueName
from skipstone_shared.errors import DataCorrupt, ResourceExhausted
from skipstone_shared.stored_entries import EvictionEvent, EvictionKind

BOUNDED = settings(max_examples=100, derandomize=True, deadline=None, database=None)
KEY = STATE.key
ENTRY, SNAPSHOT = packed_entry(STATE), packed_snapshot(KEY, RECORD)
CHANGES = [
    Change("put", KEY, (ENTRY, True)),
    Change("snapshot", KEY, (5, SNAPSHOT)),
    Change("use", KEY, (1_700_000_002.5, 3)),
    Change("adopt", KEY, (ENTRY,)),
    Change("remove", KEY, ("capacity",)),
    Change("gone", KEY, ([7, (1 << 63) - 1],)),
    Change("unreadable", ("", ""), (12,)),
]
CHECKPOINT = Checkpoint(
    [(STATE, {5: SNAPSHOT}), (STATE, {})],
    [EvictionEvent(1, EvictionKind.DELETED, *KEY), EvictionEvent(2, EvictionKind.GAP)],
    [ValueName(KEY, 7)],
)
CHECKPOINT_V1 = base64.b64decode(
    "AdQWWz0h7nhDeAGNUk1zmzAQvfdncI1nCrJJw6EHGQwWDbiQGCQxPlgIGxHhMAXMx6+vSKc9tJdqpNm3u1rt05Oy"
    "zFhpvJBFV3BtQZdzLzuFilv3Y9JOqwystOu5UZFlnk6fsn82rTR4j7e7CydPrD9DCKPo+3gExx2E3hZ+dl9pFF2R"
    "iv8a0W8AnT9IgV3InpJQbuH1I/pVW2WZqY4uH749+AYjbL8uJr+jOC6p5+rkBT0qX7JbPBWJ1VAbPaI66fneN5EY"
    "RL6OZe5aDatjWahc+DIIdks6DGRP62SiqVnRxJq5lwz5hB6DCrboFjYUGCWq3ofnKhgCB/699GfbrxgwBoLjhtSy"
    "PePYxKCTheKDaleQ1C/Jf9gPjp478X0gDrJjqB5LxUXxD4TqIWg93gmOxlCgNp13bfBK2oM9bHCit+nkzwSUku6T"
    "lmLUs7X/puxS17BbBEJb1RgGx+rOOQjfaRobzEsmvA51xVti0MwMbMRB+F+w7bdszWUurXuutFK256kx40VPx7cW"
    "nlRpxL2rOFSupXpsCu8645noSqfx4AQgdHLj4Bz10InMYIaLPwX2IHjttjxNLuc0UrV5u7wPAdYbXfzaVJxGS32p"
    "00+U6dP+"
)
"""Written by a program whose checkpoints began with the list of events."""
MANY = Checkpoint([(STATE, {5: SNAPSHOT})] * 3000, [], [])
"""Which is unpacked in several pieces."""
WORDS = st.sampled_from(
    ["put", "snapshot", "use", "adopt", "remove", "gone", "unreadable", "default", "entry", "AA=="]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=6,
)


def fitting(*lines: object) -> bytes:
    """What says this, behind a checksum that fits."""
    text = "\n".join(json.dumps(line) for line in lines)
    return frame(b"1", 1, zlib.compress(text.encode()))


def test_what_is_written_is_read_back() -> None:
    assert decode_changes(1, encode_changes(1, "somebody", CHANGES)) == CHANGES
    assert decode_checkpoint(1, encode_checkpoint(1, CHECKPOINT)) == CHECKPOINT
    assert decode_checkpoint(1, encode_checkpoint(1, MANY)) == MANY


def test_checkpoints_of_version_1_are_read() -> None:
    former = Checkpoint(CHECKPOINT.entries[:1], CHECKPOINT.events, [])
    assert decode_checkpoint(1, CHECKPOINT_V1) == former
    told = {"events": [], "undeleted": [[*KEY, 7]]}
    assert decode_checkpoint(1, fitting(told)) == Checkpoint([], [], CHECKPOINT.undeleted)


def test_a_program_refuses_a_checkpoint_of_a_later_version() -> None:
    version, body = unframe(b"1", encode_checkpoint(1, CHECKPOINT))
    assert version == 2  # So that one that knows version 1 alone does.
    with pytest.raises(DataCorrupt, match="version 3, this program knows those up to 2"):
        decode_checkpoint(1, frame(b"1", 3, body))


@pytest.mark.parametrize(
    ("good", "decode"),
    [
        (encode_changes(1, "somebody", CHANGES), decode_changes),
        (encode_checkpoint(1, CHECKPOINT), decode_checkpoint),
    ],
    ids=["record", "checkpoint"],
)
@BOUNDED
@given(data=st.data())
def test_damage_is_noticed(
    good: bytes, decode: Callable[[int, bytes], object], data: st.DataObject
) -> None:
    bad = bytearray(good)
    bad[data.draw(st.integers(0, len(good) - 1))] ^= data.draw(st.integers(1, 255))
    cut = good[: data.draw(st.integers(0, len(good) - 1))]
    for number, damaged in ((1, bytes(bad)), (1, cut), (2, good)):
        with pytest.raises(DataCorrupt):
            decode(number, damaged)


def applied(changes: list[Change]) -> None:
    table = EntryTable(LeastRecentlyUsed())
    with table.transaction():
        S3Transaction(table, {}, ()).apply(changes)


def corrupt_or_nothing(call: Callable[[], object]) -> None:
    with contextlib.suppress(DataCorrupt):
        call()


@BOUNDED
@given(
    changes=st.lists(
        st.tuples(WORDS, WORDS, WORDS, JSON).map(list)
        | st.tuples(WORDS, WORDS, WORDS, JSON, JSON).map(list)
        | JSON,
        max_size=3,
    )
)
@example(changes=[["use", "default", "entry", float("nan"), 1]])
@example(changes=[["use", "default", "entry"]])
@example(changes=[["snapshot", "default", "entry", 1 << 32, "AA=="]])
@example(changes=[["remove", "default", "entry", []]])
@example(changes=[["gone", ["default"], {}, [1]]])
@example(changes=[["put", "\ud800", "entry", "AA==", True]])
def test_changes_that_make_no_sense_are_corrupt_before_they_are_made(changes: list[Any]) -> None:
    corrupt_or_nothing(lambda: applied(decode_changes(1, fitting({"changes": changes}))))


@BOUNDED
@given(first=JSON, line=JSON)
@example(first={"events": [[-1, "deleted", "a", "b"]], "undeleted": []}, line=[])
@example(first={"events": [], "undeleted": [["a", "b", "c"]]}, line=[])
@example(first={"events": [], "undeleted": []}, line=["a", "b", "AA==", [["x", "AA=="]]])
def test_a_checkpoint_that_makes_no_sense_is_corrupt(first: Any, line: Any) -> None:
    for lines in ((first,), (first, line)):
        corrupt_or_nothing(lambda lines=lines: decode_checkpoint(1, fitting(*lines)))
    with pytest.raises(DataCorrupt):
        decode_checkpoint(1, fitting(first, line))


def test_a_change_that_no_program_knows_is_not_passed_over() -> None:
    with pytest.raises(DataCorrupt, match="'rename'"):
        decode_changes(1, fitting({"changes": [["rename", *KEY, "other"]]}))


@pytest.mark.parametrize("field", range(2))
@pytest.mark.parametrize("time", [float("nan"), float("inf"), -1.0, 1e300])
def test_an_entry_at_a_time_that_no_message_can_tell_is_corrupt(field: int, time: float) -> None:
    """It ended the thread of all changes when it was adopted."""
    times = {"create_time": STATE.create_time, "access_time": STATE.access_time}
    times[list(times)[field]] = time
    entry = packed_entry(type(STATE)(*KEY, **times, committed=True))
    with pytest.raises(DataCorrupt):
        applied([Change("adopt", KEY, (entry,))])


class TestSizes:
    """Some thousand bytes may unpack to as many million."""

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(s3_records, "LARGEST_RECORD", 1 << 16)

    def test_a_record_that_unpacks_to_more_than_any_is_corrupt(self) -> None:
        with pytest.raises(DataCorrupt, match="more than 65536 bytes"):
            decode_changes(1, frame(b"1", 1, zlib.compress(b" " * (1 << 20))))

    def test_so_is_a_checkpoint_by_its_longest_line(self) -> None:
        bomb = frame(b"1", 1, zlib.compress(b" " * (8 << 20)))
        with pytest.raises(DataCorrupt, match="above 65536 bytes"):
            decode_checkpoint(1, bomb)
        assert decode_checkpoint(1, encode_checkpoint(1, MANY)) == MANY

    def test_no_record_is_written_that_nobody_would_read(self) -> None:
        with pytest.raises(ResourceExhausted, match="65536 is the most"):
            encode_changes(1, "somebody", [Change("remove", KEY, ("deleted",))] * 3000)


FIELDS = st.sampled_from(
    [b"", b"1", b"-1", b"1.5", b"nan", b"1e300", b"ab12", b"\xff", b"9" * 5000]
)


@BOUNDED
@given(told=st.lists(FIELDS | st.binary(max_size=6), max_size=16))
@example(told=[b"e", b"1e300", b"1", b"0", b"", b"", b"5", b"1", b"1", b"0"])
@example(told=[b"e", b"1", b"1", b"0", b"nan", b"", b"5", b"1", b"1", b"0"])
def test_a_row_of_the_catalog_that_makes_no_sense_is_corrupt(told: list[bytes]) -> None:
    """Somebody else can write to Redis, and its scripts tell what is there."""
    corrupt_or_nothing(lambda: parse_row("default", told))
    corrupt_or_nothing(lambda: parse_value(KEY, *(told + [b""] * 3)[:3]))


def test_a_row_of_the_catalog_is_read() -> None:
    told = b"e 1.5 2.5 3  1 19 -7 2 1024 19 ab12 1024 fedcba9876543210".split(b" ")
    row = parse_row("default", told)
    assert row is not None
    assert (row.state.create_time, row.state.first_use, row.state.committed) == (1.5, -7, True)
    assert row.values[19].xxh3_64 == 0xFEDC_BA98_7654_3210
    assert parse_row("default", []) is None
    for field, damage in (
        (1, b"-1"),
        (3, b"-3"),
        (4, b"inf"),
        (9, b"x"),
        (10, b"-19"),
        (12, b"-1"),
    ):
        with pytest.raises(DataCorrupt):
            parse_row("default", [*told[:field], damage, *told[field + 1 :]])
