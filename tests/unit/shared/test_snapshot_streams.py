"""Snapshots on their way: cut into messages, put together again, and refused when broken."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from skipstone.latent_kv.v1 import latent_kv_pb2 as pb
from skipstone_shared.chunk_messages import ChunkField
from skipstone_shared.errors import DataCorrupt, InvalidArgument
from skipstone_shared.latents import (
    DType,
    LatentRef,
    SnapshotMetadata,
    TensorPart,
    TensorSpec,
    checksum,
)
from skipstone_shared.snapshot_streams import (
    SnapshotAssembler,
    data_of_write,
    header_of_write,
    lease_from_header,
    snapshot_to_stream,
    write_to_stream,
)
from skipstone_shared.stored_entries import DEFAULT_LEASE_S, Snapshot

KEY = "0123456789abcdef0123456789abcdef"
DATA = ChunkField(pb.WriteLatentRequest.DESCRIPTOR, "data")
NO_CHUNKS = {
    "nothing": b"",
    "another field": pb.WriteLatentRequest(finish_write=True).SerializeToString(),
    "more than a chunk": pb.WriteLatentRequest(data=b"x", finish_write=True).SerializeToString(),
    "no length": b"\x1a",
    "less than its length": b"\x1a\x05abc",
    "an endless length": b"\x1a" + b"\xff" * 12,
}


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 1 << 20])
def test_a_chunk_is_the_message_that_protobuf_would_make(size):
    chunk = bytes(range(256)) * (size // 256) + bytes(size % 256)
    serialized = DATA.to_wire(memoryview(chunk))
    assert serialized == pb.WriteLatentRequest(data=chunk).SerializeToString()
    assert DATA.from_wire(serialized) == chunk


@pytest.mark.parametrize("serialized", NO_CHUNKS.values(), ids=NO_CHUNKS.keys())
def test_what_is_not_a_chunk_and_nothing_else_is_left_to_protobuf(serialized):
    assert DATA.from_wire(serialized) is None


@pytest.mark.parametrize(
    ("message", "data", "finish_write"),
    [
        (pb.WriteLatentRequest(data=b"x"), b"x", False),
        (pb.WriteLatentRequest(data=b"x", finish_write=True), b"x", True),
        (pb.WriteLatentRequest(namespace="ns", data=b"x", finish_write=True), b"x", True),
        (pb.WriteLatentRequest(finish_write=True), b"", True),
        (pb.WriteLatentRequest(header=pb.WriteLatentHeader()), None, False),
    ],
)
def test_a_message_of_a_write_says_what_it_holds(message, data, finish_write):
    found = data_of_write(message.SerializeToString())
    assert (found.data, found.finish_write) == (data, finish_write)


def test_only_the_last_data_of_a_write_finish_it():
    metadata = snapshot_of(bytes(10)).metadata
    stream = write_to_stream(
        "ns", metadata, [b"01234", b"", b"56789"], size_bytes=10, xxh3_64=0, lease_s=None
    )
    header, *rest = stream
    assert header_of_write(header).namespace == "ns"
    found = [data_of_write(message) for message in rest]
    assert b"".join(message.data for message in found) == b"0123456789"
    assert [message.finish_write for message in found] == [False, True]


@pytest.mark.parametrize("parse", [header_of_write, data_of_write])
def test_a_request_that_is_no_message_is_refused(parse):
    with pytest.raises(InvalidArgument, match="WriteLatentRequest"):
        parse(b"\x1a\x05abc")


def test_a_write_that_names_no_lease_gets_the_default():
    assert lease_from_header(pb.WriteLatentHeader()) == DEFAULT_LEASE_S


def assembled(messages: list[bytes]) -> Snapshot:
    assembler = SnapshotAssembler()
    for message in messages:
        assembler.add(message)
    return assembler.finish()


def snapshot_of(data: bytes) -> Snapshot:
    spec = TensorSpec(DType.BFLOAT16, (len(data) // 2,))
    metadata = SnapshotMetadata("e", 1, 2, 0.5, KEY, (TensorPart("latents", spec),))
    ref = LatentRef("ns", "e", 1, "", spec, checksum(data), len(data), 0.5, KEY)
    return Snapshot(ref, metadata, data)


def test_a_snapshot_is_cut_and_put_together_again_bit_for_bit():
    values = np.arange(1_500_000).astype(ml_dtypes.bfloat16)
    snapshot = snapshot_of(values.tobytes())
    messages = list(snapshot_to_stream(snapshot, 1 << 18))
    assert all(len(message) < (1 << 18) + 1024 for message in messages)
    arrived = assembled(messages)
    assert bytes(arrived.data) == snapshot.data
    assert (arrived.ref, arrived.metadata) == (snapshot.ref, snapshot.metadata)


@pytest.mark.parametrize(
    "damage", ["lost", "flipped", "extra", "headless", "twice", "wrong size", "no message"]
)
def test_a_broken_snapshot_is_refused(damage):
    head, first, *rest = snapshot_to_stream(snapshot_of(bytes(1000)), 600)
    messages = [head, first, *rest]
    if damage == "lost":
        messages.pop()
    elif damage == "flipped":
        messages[1] = first[:-1] + b"\1"
    elif damage == "extra":
        messages.append(pb.ReadLatentResponse(data=b"x").SerializeToString())
    elif damage == "headless":
        messages = [first, *rest]
    elif damage == "twice":
        messages = [head, *messages]
    elif damage == "wrong size":
        message = pb.ReadLatentResponse.FromString(head)
        message.snapshot.ref.size_bytes = 10**15
        messages[0] = message.SerializeToString()
    else:
        messages[1] = first[:-1]
    with pytest.raises(DataCorrupt):
        assembled(messages)
