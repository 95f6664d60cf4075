"""Codecs: how far what is read may be from what was written, and that the rest stays exact."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import get_args

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.contract.latent_store_cases import Write, latents, save

from skipstone_latent_kv.data_check import verify
from skipstone_latent_kv.eviction import Quotas
from skipstone_latent_kv.latent_codec import CodecName, decode, encode
from skipstone_latent_kv.lmdb_store import LmdbStore
from skipstone_shared.latents import LatentRef, checksum
from skipstone_shared.tensor_messages import Array, array_bytes, arrays_from_parts, parts_of

CODECS: tuple[CodecName, ...] = get_args(CodecName)


def round_trip(arrays: Mapping[str, Array], codec: CodecName) -> tuple[int, dict[str, Array]]:
    parts = parts_of(arrays)
    data = memoryview(b"".join(bytes(array_bytes(array)) for array in arrays.values()))
    encoded = encode(data, parts, codec)
    return len(encoded), arrays_from_parts(decode(encoded, parts), parts)


FINITE = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=2, max_dims=5, max_side=5),
    elements=st.floats(-1e4, 1e4, width=32),
)


@settings(deadline=None)
@given(FINITE)
def test_lossless_and_wider_codecs_change_no_bit(array: Array) -> None:
    for codec in ("lossless", "fp32"):
        assert round_trip({"latents": array}, codec)[1]["latents"].tobytes() == array.tobytes()


@settings(deadline=None)
@given(FINITE)
def test_the_error_of_each_codec_is_that_of_its_bits(array: Array) -> None:
    """8 bits of fraction in bf16, 11 in fp16; half a step of 127 per channel in int8."""
    wide = array.astype(np.float64)
    for codec, bits, least in (("bf16", 9, 1e-38), ("fp16", 12, 2.0**-25)):
        read = round_trip({"latents": array}, codec)[1]["latents"].astype(np.float64)
        assert (np.abs(read - wide) <= np.abs(wide) * 2.0 ** (1 - bits) + least).all()
    read = round_trip({"latents": array}, "int8")[1]["latents"].astype(np.float64)
    axes = (1,) if array.ndim == 2 else tuple(range(2, array.ndim))
    largest = np.abs(wide).max(axis=axes, keepdims=True)
    assert (np.abs(read - wide) <= largest * (0.5 / 127 + 1e-6) + 1e-38).all()


@settings(deadline=None)
@given(FINITE, st.sampled_from(CODECS))
def test_what_was_read_is_written_again_without_a_further_error(
    array: Array, codec: CodecName
) -> None:
    once = round_trip({"latents": array}, codec)[1]["latents"]
    twice = round_trip({"latents": once}, codec)[1]["latents"]
    np.testing.assert_allclose(twice, once, rtol=1e-6, atol=0)


@pytest.mark.parametrize(("codec", "size"), [("fp32", 8192), ("bf16", 4096), ("int8", 2048 + 32)])
def test_a_snapshot_takes_the_bytes_of_its_codec(codec: CodecName, size: int) -> None:
    array = np.random.default_rng(0).standard_normal((2, 4, 16, 16))
    assert round_trip({"latents": array}, codec)[0] == 1 + size


@pytest.mark.parametrize("codec", CODECS)
def test_what_a_codec_cannot_hold_stays_as_it_is(codec: CodecName) -> None:
    arrays = {
        "latents": latents().astype(ml_dtypes.bfloat16),
        "huge": np.array([[1e300, -1e-300]]),
        "scheduler.sigmas": np.array([1 / 3, 1 / 7], np.float64),
        "scheduler.order": np.array(1 / 3, np.float64),
        "scheduler.steps": np.array([[1 << 60, -1]], np.int64),
        "zeros": np.zeros((1, 3, 2, 2), np.float32),
    }
    read = round_trip(arrays, codec)[1]
    kept = set(arrays) - ({"latents"} if codec == "int8" else set())
    for name in kept:
        assert read[name].tobytes() == arrays[name].tobytes(), name


def test_a_store_serves_what_its_codec_left_and_says_so_in_the_reference(tmp_path: Path) -> None:
    array = np.random.default_rng(0).standard_normal((1, 4, 64, 64)).astype(np.float32)
    store = LmdbStore(tmp_path, codec="fp16")
    write = Write.of("entry", array)
    ref = write.to(store)
    store.commit_entry("", "entry")
    assert (ref.spec, ref.size_bytes) == (write.metadata.parts[0].spec, array.nbytes)
    assert ref.xxh3_64 != write.xxh3_64
    snapshot = store.read_latent("", ref)
    assert checksum(snapshot.data) == ref.xxh3_64
    assert snapshot.metadata == write.metadata
    read = arrays_from_parts(snapshot.data, snapshot.metadata.parts)["latents"]
    assert read.tobytes() == array.astype(np.float16).astype(np.float32).tobytes()
    assert write.to(store) == ref
    assert store.get_stats("").size_bytes == array.nbytes // 2 + 1
    store.close()
    report = verify(tmp_path)
    assert (report.size_bytes, report.problems) == (array.nbytes // 2 + 1, ())


def test_snapshots_of_all_codecs_live_in_one_directory(tmp_path: Path) -> None:
    array = np.random.default_rng(0).standard_normal((1, 4, 8, 8)).astype(np.float32)
    refs: list[LatentRef] = []
    for codec in CODECS:
        store = LmdbStore(tmp_path, codec=codec)
        refs.append(save(store, codec, array))
        store.close()
    store = LmdbStore(tmp_path)
    for ref in refs:
        assert checksum(store.read_latent("", ref).data) == ref.xxh3_64
    store.close()


def test_quotas_count_what_is_on_the_disk(tmp_path: Path) -> None:
    array = np.zeros((1, 1, 32, 32), np.float32)
    store = LmdbStore(tmp_path, codec="int8", quotas=Quotas(5 * 1029))
    with closing(store):
        for entry_id in "abcdef":
            save(store, entry_id, array)
        save(store, "f", array + 1)
        assert store.get_stats("").entry_count == 5
        assert store.get_stats("").size_bytes == 5 * 1029
