"""Files and records that are damaged or hostile: refused by name, never a traceback."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skipstone_latent_kv import record_format
from skipstone_latent_kv.config import LatentKVSettings
from skipstone_orchestrator.config import OrchestratorSettings
from skipstone_orchestrator.prompt_keys import read_prompt_keys
from skipstone_shared.access import read_callers
from skipstone_shared.config import ConfigError, ServiceSettings, resolve_settings
from skipstone_shared.credentials import read_token
from skipstone_shared.errors import DataCorrupt, InvalidArgument
from skipstone_shared.index_entries import IndexEntry
from skipstone_shared.tls_files import TlsFiles, read_tls
from skipstone_vector_index import record_codec

BOUNDED = settings(max_examples=60, derandomize=True, deadline=None, database=None)
NAMES = st.sampled_from(["gallery", "tokens", "namespaces", "rights", "orchestrator", "port"])
VALUES = st.recursive(
    st.sampled_from(
        ["1", "-1", "1e400", "nan", "true", '""', '"*"', '"read"', "1979-05-27", "0x7f"]
    )
    | st.integers().map(str),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | inner.map(lambda value: f"{{a = {value}}}")
    ),
    max_leaves=4,
)
LINES = st.one_of(
    st.tuples(NAMES, VALUES).map(" = ".join),
    NAMES.map("[{}]".format),
    NAMES.map("[[{}]]".format),
    NAMES.map('["{}"]'.format),
    st.text(max_size=10),
)
TOML = st.lists(LINES, max_size=8).map(lambda lines: "\n".join(lines).encode("utf-8", "replace"))
ANY_FILE = TOML | st.binary(max_size=200)


@contextlib.contextmanager
def written(content: bytes) -> Iterator[Path]:
    """A file of these bytes."""
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(content)
        yield Path(file.name)


@pytest.mark.parametrize("cls", [OrchestratorSettings, LatentKVSettings])
@BOUNDED
@given(content=ANY_FILE)
@example(content=b"[orchestrator]\npools = {a = 1}\n")
@example(content=b"[orchestrator]\nrate_limits = {a = nan}\n")
def test_a_configuration_is_taken_or_refused_in_one_sentence(
    cls: type[ServiceSettings], content: bytes
) -> None:
    with written(content) as path, contextlib.suppress(ConfigError):
        resolve_settings(cls, ["--config", str(path)], {})


@pytest.mark.parametrize(
    "read",
    [
        read_callers,
        read_prompt_keys,
        lambda path: read_token(path, "token_file"),
        lambda path: read_tls(TlsFiles(path, path, path)),
        lambda path: read_tls(TlsFiles(ca_file=path)),
    ],
    ids=["access", "prompt key", "token", "certificates", "authorities"],
)
@BOUNDED
@given(content=ANY_FILE)
def test_a_file_of_secrets_is_taken_or_refused_with_its_setting(
    read: Callable[[Path], object], content: bytes
) -> None:
    with written(content) as path:
        error = None
        try:
            read(path)
        except InvalidArgument as caught:
            error = caught
        assert error is None or error.field


ROW = b"ns\0entry"


@BOUNDED
@given(data=st.binary(max_size=120))
def test_bytes_that_are_no_record_of_a_latent_are_corrupt(data: bytes) -> None:
    for decode in (record_format.decode_snapshot, record_format.decode_entry):
        with pytest.raises(DataCorrupt):
            decode(ROW, data)


@BOUNDED
@given(data=st.data())
def test_a_changed_record_of_a_vector_is_corrupt(data: st.DataObject) -> None:
    entry = IndexEntry("e", "a red circle", seed=1)
    record = record_codec.make_record(entry, np.ones(8, np.float32), 1)
    good = record_codec.encode_record(record, b"key")
    assert record_codec.decode_record(good, b"key").entry_id == "e"
    place = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[place] ^= data.draw(st.integers(1, 255))
    cut = good[: data.draw(st.integers(0, len(good) - 1))]
    for damaged, key in ((bytes(bad), b"key"), (cut, b"key"), (good, b"another")):
        with pytest.raises(DataCorrupt):
            record_codec.decode_record(damaged, key)
