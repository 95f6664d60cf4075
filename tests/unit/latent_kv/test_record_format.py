"""Records on disk: what was written stays readable, and damage never reads as data."""

from __future__ import annotations

import dataclasses

import pytest

from skipstone_latent_kv.entry_table import EntryState
from skipstone_latent_kv.record_format import (
    EncodedValue,
    SnapshotRecord,
    decode_entry,
    decode_snapshot,
    encode_entry,
    encode_snapshot,
)
from skipstone_shared.errors import DataCorrupt
from skipstone_shared.latents import DType, SnapshotMetadata, TensorPart, TensorSpec

ROW = b"default\0entry"
SNAPSHOT_ROW = ROW + b"\0\0\0\0\x05"

RECORD = SnapshotRecord(
    metadata=SnapshotMetadata(
        entry_id="entry",
        step_index=5,
        num_inference_steps=20,
        sigma=0.1 + 0.2,
        compatibility_key="ab" * 16,
        parts=(
            TensorPart("latents", TensorSpec(DType.BFLOAT16, (1, 16, 8, 8))),
            TensorPart("scheduler.order", TensorSpec(DType.INT64, ())),
        ),
        scheduler_state_json='{"lower_order_nums": 2}',
        depth=1,
    ),
    xxh3_64=0xFEDC_BA98_7654_3210,
    value_id=7,
)

STATE = EntryState(
    namespace="default",
    entry_id="entry",
    create_time=1_700_000_000.25,
    access_time=1_700_000_001.5,
    size_bytes=2056,
    snapshot_count=1,
    read_count=3,
    pinned=True,
    lease_expire_time=1_700_000_600.25,
)

# Written by the first release. They must be read by every later one.
SNAPSHOT_V1 = bytes.fromhex(
    "01deeb173a5d0ae2bb7b226d65746164617461223a7b22656e7472795f6964223a22656e747279222c22"
    "737465705f696e646578223a352c226e756d5f696e666572656e63655f7374657073223a32302c227369"
    "676d61223a302e33303030303030303030303030303030342c22636f6d7061746962696c6974795f6b65"
    "79223a226162616261626162616261626162616261626162616261626162616261626162222c22706172"
    "7473223a5b5b226c6174656e7473222c2262666c6f61743136222c5b312c31362c382c385d5d2c5b2273"
    "63686564756c65722e6f72646572222c22696e743634222c5b5d5d5d2c227363686564756c65725f7374"
    "6174655f6a736f6e223a227b5c226c6f7765725f6f726465725f6e756d735c223a20327d222c22646570"
    "7468223a317d2c22787868335f3634223a31383336343735383534343439333036343732302c2276616c"
    "75655f6964223a377d"
)
ENTRY_V1 = bytes.fromhex(
    "0120815e5b42adefb100001040fc54d94100006040fc54d9410808000000000000010000000000000003"
    "00000000000000000010d6fc54d94102"
)
# By the second, which added the highest step.
ENTRY_V2 = bytes.fromhex(
    "02240ffe4a46f32e7600001040fc54d94100006040fc54d9410808000000000000010000000000000003"
    "00000000000000000010d6fc54d9410213000000"
)


def test_records_of_version_1_are_read() -> None:
    assert decode_snapshot(SNAPSHOT_ROW, SNAPSHOT_V1) == RECORD
    assert decode_entry(ROW, ENTRY_V1) == STATE


def test_the_entry_record_of_version_2_is_read() -> None:
    assert decode_entry(ROW, ENTRY_V2) == dataclasses.replace(STATE, skip_steps=19)


def test_what_is_written_is_read_back() -> None:
    encoded = dataclasses.replace(RECORD, encoded=EncodedValue(1029, 0xFEDC_BA98_7654_3211))
    for record in (RECORD, encoded):
        assert decode_snapshot(SNAPSHOT_ROW, encode_snapshot(SNAPSHOT_ROW, record)) == record
    for state in (
        STATE,
        STATE.as_committed(),
        dataclasses.replace(STATE, pinned=False, skip_steps=1 << 31),
    ):
        assert decode_entry(ROW, encode_entry(ROW, state)) == state


@pytest.mark.parametrize("bit", [0, 3, 7])
def test_a_flipped_bit_anywhere_is_noticed(bit: int) -> None:
    for row, record, decode in (
        (SNAPSHOT_ROW, SNAPSHOT_V1, decode_snapshot),
        (ROW, ENTRY_V1, decode_entry),
    ):
        for place in range(len(record)):
            damaged = bytearray(record)
            damaged[place] ^= 1 << bit
            with pytest.raises(DataCorrupt):
                decode(row, bytes(damaged))


def test_a_truncated_record_is_noticed() -> None:
    for length in range(len(ENTRY_V1)):
        with pytest.raises(DataCorrupt):
            decode_entry(ROW, ENTRY_V1[:length])


def test_a_record_under_the_key_of_another_is_noticed() -> None:
    with pytest.raises(DataCorrupt):
        decode_entry(b"default\0entrz", ENTRY_V1)


def test_a_version_of_the_future_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skipstone_latent_kv.record_format._ENTRY_VERSION", 3)
    written = encode_entry(ROW, STATE)
    with pytest.raises(DataCorrupt, match="version 3"):
        decode_entry(ROW, written)
