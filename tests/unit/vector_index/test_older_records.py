"""Records and directories that older releases wrote are still read."""

from __future__ import annotations

from pathlib import Path

import lmdb
import numpy as np
import pytest

from skipstone_shared.index_entries import IndexEntry
from skipstone_shared.index_entry_messages import unpack_entry
from skipstone_shared.latents import DType, LatentRef, TensorSpec
from skipstone_vector_index.hnsw_index import HnswIndex
from skipstone_vector_index.index import Search
from skipstone_vector_index.record_codec import decode_record, encode_record
from skipstone_vector_index.record_log import LOG_FORMAT, Changes, RecordLog

DISK_BYTES = 1 << 26
REF = LatentRef("ns", "e", 3, spec=TensorSpec(DType.FLOAT16, (1, 2)), xxh3_64=2**63 + 1, sigma=0.5)
ENTRY = IndexEntry("id.1", "käse", -5, (REF,), 2, 1.5, "model/ü", {"a": "b"})
VECTOR = [0.6, 0.8]

JSON_PART = (
    '{"prompt":"käse","seed":-5,"snapshots":[["ns","e",3,"",["float16",1,2],'
    '9223372036854775809,0,0.5,""]],"depth":2,"create_time":1.5,"labels":{"a":"b"}}'
)
WRITTEN = {
    1: bytes.fromhex(
        "6c34ad444a418e6801000400080000000200000000000000000000000001000069642e316d6f6465"
        "6c2fc3bc9a99193fcdcc4c3f"
    ),
    2: bytes.fromhex(
        "cb46ee0c4db2020d02000400080000000200000000000000000000000001000069642e316d6f6465"
        "6c2fc3bccd38663a"
    ),
    3: bytes.fromhex(
        "16cfc81a88f0b62b03000400080000000200000000000000000000000001000069642e316d6f6465"
        "6c2fc3bc9a99193fcdcc4c3f0a0469642e3112056bc3a4736518fbffffffffffffffff0122231202"
        "6e731a016520032a0608021202010231010000000000008041000000000000e03f28023208080110"
        "80cab5ee013a086d6f64656c2fc3bc42060a0161120162"
    ),
    4: bytes.fromhex(
        "52516e2189f531dd04000400080000000200000000000000000000000001000069642e316d6f6465"
        "6c2fc3bccd38663a0a0469642e3112056bc3a4736518fbffffffffffffffff01222312026e731a01"
        "6520032a0608021202010231010000000000008041000000000000e03f2802320808011080cab5ee"
        "013a086d6f64656c2fc3bc42060a0161120162"
    ),
}
"""What older releases wrote for `ENTRY` and `VECTOR`; in versions 1 and 2 up to the JSON."""


def old_record(version: int) -> bytes:
    return WRITTEN[version] + (JSON_PART.encode() if version in (1, 2) else b"")


@pytest.mark.parametrize("version", sorted(WRITTEN))
def test_a_record_is_read_with_every_field(version: int) -> None:
    record = decode_record(old_record(version), b"any key")
    assert record.entry() == ENTRY
    assert unpack_entry(record.packed_entry()) == ENTRY
    assert (record.entry_id, record.embedding_model_id) == ("id.1", "model/ü")
    assert record.revision == 2**40
    np.testing.assert_allclose(record.vector, VECTOR, atol=1e-7 if version % 2 else 1e-3)
    assert encode_record(record, b"any key") == old_record(version)


@pytest.mark.parametrize("version", sorted(WRITTEN))
def test_a_directory_of_an_older_release_opens_and_is_marked_for_newer_ones(
    tmp_path: Path, version: int
) -> None:
    """An older program would remove the records that are written from now on."""
    with RecordLog(tmp_path, DISK_BYTES, fsync=False) as log:
        record = decode_record(old_record(version), b"any key")
        log.write(Changes(1, put={(1, 1): record}, add_partitions={1: ("default", "key")}))
    set_format(tmp_path, 1)

    index = HnswIndex(RecordLog(tmp_path, DISK_BYTES, fsync=False))
    query = np.array(VECTOR, np.float32)
    ((hit,),) = index.search_entries("", "key", [query], 5)
    ((packed,),) = index.search_packed(Search("", "key", [query], 5))
    assert hit.entry == ENTRY
    assert unpack_entry(packed.packed) == ENTRY
    assert packed.similarity == hit.similarity == pytest.approx(1.0)
    assert index.get_entry("", "id.1").entry == ENTRY
    assert index.list_entries("").entries == (ENTRY,)
    index.close()
    assert get_format(tmp_path) == LOG_FORMAT


def set_format(directory: Path, number: int) -> None:
    env = lmdb.open(str(directory / "records.mdb"), subdir=False, max_dbs=3)
    with env.begin(write=True, db=env.open_db(b"meta")) as txn:
        txn.put(b"format", number.to_bytes(4, "big"))
    env.close()


def get_format(directory: Path) -> int:
    env = lmdb.open(str(directory / "records.mdb"), subdir=False, max_dbs=3)
    with env.begin(db=env.open_db(b"meta")) as txn:
        found = int.from_bytes(txn.get(b"format"), "big")
    env.close()
    return found
