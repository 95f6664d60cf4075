"""What is fuzzed: each target reads bytes and raises only what its reader promises.

A reader may refuse by the errors in its docstring, which the targets swallow. Anything else that
comes out (a KeyError, a RecursionError, a MemoryError) is a finding. Readers behind a checksum are
given bodies with a fitting one too, since a checksum keeps a fuzzer out and a program that wrote
nonsense not.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import inspect
import json
import pkgutil
import tempfile
import typing
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError, Message

import skipstone_shared
from skipstone_client._safetensors import TensorsFile
from skipstone_client.batch.outputs import BatchFolder
from skipstone_client.batch.rows import read_rows
from skipstone_latent_kv import latent_codec, record_format, redis_catalog_rows, s3_records
from skipstone_latent_kv.entry_table import EntryTable
from skipstone_latent_kv.eviction_policies import LeastRecentlyUsed
from skipstone_latent_kv.s3_transaction import S3Transaction, SeenEntry
from skipstone_orchestrator.config import OrchestratorSettings
from skipstone_shared.access import read_callers
from skipstone_shared.block_cache_json import block_cache_from_text
from skipstone_shared.calibration import CalibrationError, read_calibration
from skipstone_shared.certificate_dates import ends_at
from skipstone_shared.config import ConfigError, resolve_settings
from skipstone_shared.errors import DataCorrupt, SkipstoneError
from skipstone_shared.generation import GenerationParams
from skipstone_shared.grpc_server_facts import read_server_facts
from skipstone_shared.latents import DType, TensorPart, TensorSpec, checksum
from skipstone_shared.orchestration import CacheOptions
from skipstone_shared.stored_entry_messages import stored_entry_to_message
from skipstone_shared.tensor_messages import array_from_bytes, arrays_from_parts
from skipstone_vector_index import partition_codec, record_codec

Target = Callable[[bytes], None]

_ROW = b"namespace\0entry"
_NUMBER = b"7"
"""Of a record in a log."""
_KEY = b"key"
_FILE = Path(tempfile.gettempdir()) / "skipstone-fuzzed"
"""Prefix of files for readers that take one."""
_DTYPES = tuple(DType)
_AXES = 4


def latent_record(data: bytes) -> None:
    """Records of latent_kv, with their own checksum and with a fitting one."""
    version, body = data[0] % 4 if data else 0, data[1:]
    for record in (data, record_format.frame(_ROW, version, body)):
        for decode in (record_format.decode_snapshot, record_format.decode_entry):
            with contextlib.suppress(DataCorrupt):
                decode(_ROW, record)


def s3_log(data: bytes) -> None:
    """Records and checkpoints of a store in S3, up to the names of values in them.

    The bytes are an object, what stands behind its checksum, what it says, or what it says of an
    entry behind a checksum of its own.
    """
    said = (data, *map(_json_bytes, _records_of_an_entry(data)))
    bodies = (data, *(zlib.compress(text, 1) for text in said))
    for record in (data, *(record_format.frame(_NUMBER, 1, body) for body in bodies)):
        table = EntryTable(LeastRecentlyUsed())
        with contextlib.suppress(DataCorrupt), table.transaction():
            txn = S3Transaction(table, {}, ())
            txn.apply(s3_records.decode_changes(int(_NUMBER), record))
            _names_of(entry for entry in txn.seen().values() if entry)
        with contextlib.suppress(DataCorrupt):
            read = s3_records.decode_checkpoint(int(_NUMBER), record)
            EntryTable(LeastRecentlyUsed()).load([state for state, _ in read.entries])
            _names_of(SeenEntry(state, rows) for state, rows in read.entries)


def _records_of_an_entry(data: bytes) -> Iterator[list[Any]]:
    """Changes, and lines of a checkpoint, with these bytes as records of entry and snapshot."""
    key = _ROW.decode().split("\0")
    version, body = data[0] % 4 if data else 0, data[1:]
    entry, snapshot = (
        base64.b64encode(record_format.frame(row, version, body)).decode()
        for row in (_ROW, _ROW + b"\0" + (1).to_bytes(4, "big"))
    )
    put, adopt = ["put", *key, entry, True], ["adopt", *key, entry]
    more = [["snapshot", *key, 1, snapshot], ["use", *key, 1.5, 2], ["remove", *key, "deleted"]]
    yield [{"changes": [put, adopt, *more]}]
    yield [{"changes": more}]
    yield [{"events": [], "undeleted": []}, [*key, entry, [[1, snapshot]]]]


def _json_bytes(lines: list[Any]) -> bytes:
    return "\n".join(map(json.dumps, lines)).encode()


def _names_of(entries: Iterable[SeenEntry]) -> None:
    for entry in entries:
        for name in entry.value_names():
            assert name.key


def redis_catalog(data: bytes) -> None:
    """Rows of the catalog in Redis, a field per line, up to the message that tells them."""
    fields = data.split(b"\n")
    with contextlib.suppress(DataCorrupt):
        row = redis_catalog_rows.parse_row("ns", fields)
        if row is not None:
            stored_entry_to_message(row.state.stored_entry(()))
    if len(fields) == 3:
        with contextlib.suppress(DataCorrupt):
            redis_catalog_rows.parse_value(("ns", "entry"), *fields)


def latent_bytes(data: bytes) -> None:
    """Snapshots in fewer bits, under a shape that the first bytes say."""
    spec, rest = _spec(data)
    with contextlib.suppress(DataCorrupt):
        latent_codec.decode(rest, [TensorPart("latents", spec)])


def tensors(data: bytes) -> None:
    """Raw tensors, likewise."""
    spec, rest = _spec(data)
    with contextlib.suppress(DataCorrupt):
        array_from_bytes(rest, spec)
    with contextlib.suppress(DataCorrupt):
        arrays_from_parts(rest, [TensorPart("a", spec), TensorPart("b", spec)])


def index_record(data: bytes) -> None:
    """Records of vector_index, with their own checksum and with a fitting one."""
    body = data[:1] + data[1:]
    fitting = checksum(body) ^ checksum(_KEY)
    for record in (data, fitting.to_bytes(8, "little") + body):
        with contextlib.suppress(DataCorrupt):
            record_codec.decode_record(record, _KEY)
    with contextlib.suppress(DataCorrupt):
        partition_codec.decode_partition(1, data)


def messages(data: bytes) -> None:
    """Every message of the contracts that has a reader, from the wire."""
    if not data:
        return
    read, of = _READERS[data[0] % len(_READERS)]
    message = of()
    with contextlib.suppress(DecodeError, SkipstoneError):
        message.ParseFromString(data[1:])
        read(message)


def configuration(data: bytes) -> None:
    """Configuration files of a service."""
    with _written(data, ".toml") as path, contextlib.suppress(ConfigError):
        resolve_settings(OrchestratorSettings, ["--config", str(path)], {})


def access(data: bytes) -> None:
    """Files of callers."""
    with _written(data, ".toml") as path, contextlib.suppress(SkipstoneError):
        read_callers(path)


def calibration(data: bytes) -> None:
    """Calibration files."""
    with _written(data, ".json") as path, contextlib.suppress(CalibrationError):
        read_calibration(path)


def block_cache(data: bytes) -> None:
    """Block-cache settings as users paste them."""
    with contextlib.suppress(SkipstoneError):
        block_cache_from_text(data.decode("utf-8", "replace"))


def batches(data: bytes) -> None:
    """Files of prompts, and the manifest of a batch that was cut."""
    for suffix in (".txt", ".jsonl", ".csv"):
        with _written(data, suffix) as path, contextlib.suppress(SkipstoneError):
            read_rows(path, GenerationParams(""), CacheOptions())
    with tempfile.TemporaryDirectory(prefix=_FILE.name) as folder:
        (Path(folder) / "manifest.jsonl").write_bytes(data)
        with BatchFolder(Path(folder)):
            pass


def shipped_tensors(data: bytes) -> None:
    """Files of `skipstone kv import`."""
    with _written(data, ".safetensors") as path, contextlib.suppress(DataCorrupt):
        with TensorsFile(path) as file:
            file.read("latents", 8)


def certificates(data: bytes) -> None:
    """Certificates in PEM, and what a server tells of them."""
    with contextlib.suppress(ValueError):
        ends_at(data)
    text = data.decode("latin-1")
    read_server_facts({"x-skipstone-certificates": text, "x-skipstone-disk": text})


TARGETS: Mapping[str, Target] = {
    target.__name__: target
    for target in (
        latent_record,
        s3_log,
        redis_catalog,
        latent_bytes,
        tensors,
        index_record,
        messages,
        configuration,
        access,
        calibration,
        block_cache,
        batches,
        shipped_tensors,
        certificates,
    )
}


def any_target(data: bytes) -> None:
    """The target that the first byte chooses."""
    if data:
        names = tuple(TARGETS)
        TARGETS[names[data[0] % len(names)]](data[1:])


def _spec(data: bytes) -> tuple[TensorSpec, bytes]:
    """A small tensor that the first bytes describe, and the rest."""
    head, rest = data[: 1 + _AXES].ljust(1 + _AXES, b"\1"), data[1 + _AXES :]
    shape = tuple(size % 5 for size in head[1 : 1 + head[0] % (_AXES + 1)])
    return TensorSpec(_DTYPES[head[0] % len(_DTYPES)], shape), rest


@contextlib.contextmanager
def _written(data: bytes, suffix: str) -> Iterator[Path]:
    path = Path(f"{_FILE}-{suffix}")
    path.write_bytes(data)
    yield path


def _readers() -> Iterator[tuple[Callable[[Any], object], type[Message]]]:
    """Every function that makes a value of one message."""
    for found in pkgutil.iter_modules(skipstone_shared.__path__, "skipstone_shared."):
        if not found.name.endswith("_messages"):
            continue
        module = importlib.import_module(found.name)
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if name.endswith("_from_message") and function.__module__ == found.name:
                parameters = list(inspect.signature(function).parameters.values())
                of = typing.get_type_hints(function)[parameters[0].name]
                needed = [p for p in parameters if p.default is inspect.Parameter.empty]
                if len(needed) == 1 and isinstance(of, type) and issubclass(of, Message):
                    yield function, of


_READERS = tuple(_readers())


def seeds() -> Mapping[str, tuple[bytes, ...]]:
    """Good inputs of the targets, from which a fuzzer begins."""
    vector = record_codec.make_record(_entry(), np.ones(4, np.float32), 1)
    return {
        "latent_record": (
            b'\1{"metadata": {"parts": [["latents", "float16", [1, 2]]]}, "xxh3_64": 1, '
            b'"value_id": 1}',
            b"\2" + bytes(60),
        ),
        "s3_log": (
            b'{"writer":"w","changes":[["put","ns","entry","AA==",true],["use","n","e",1.5,2],'
            b'["remove","n","e","deleted"],["gone","n","e",[1,2]],["unreadable","","",3]]}',
            b'{"events":[[1,"deleted","n","e"]],"undeleted":[["n","e",1]]}\n["n","e","AA==",[]]',
            b"\2" + bytes(60),
        ),
        "redis_catalog": (
            b"e\n1.5\n2.5\n3\n\n1\n19\n1\n2\n1024\n19\nab12\n1024\nfedcba9876543210",
            b"ab12\n1024\nfedcba9876543210",
        ),
        "latent_bytes": (b"\2\2\2\1\1\0" + bytes(16), b"\2\2\2\1\1\3" + bytes(24)),
        "tensors": (b"\2\2\2\1\1" + bytes(16),),
        "index_record": (record_codec.encode_record(vector, _KEY)[8:], b'["ns", "key"]'),
        "messages": tuple(bytes([n]) + _filled(of) for n, (_, of) in enumerate(_READERS)),
        "configuration": (b'[orchestrator]\nport = 1\npools = {"a" = "b"}\n',),
        "access": (b'[a]\ntokens = ["x"]\nnamespaces = ["*"]\nrights = ["read"]\n',),
        "calibration": (b'{"tiers": [{"kind": "renoise", "level": 0.8}]}',),
        "block_cache": (b'{"Fn_compute_blocks": 1, "secondary": {}}', b"balanced"),
        "batches": (b'{"prompt": "a", "steps": 3, "key": "k", "row": 1}', b"prompt,seed\na,1\n"),
        "shipped_tensors": ((2).to_bytes(8, "little") + b"{}",),
        "certificates": (b"-----BEGIN CERTIFICATE-----\nMAMCAQA=\n-----END CERTIFICATE-----\n",),
    }


def _entry() -> Any:
    from skipstone_shared.index_entries import IndexEntry

    return IndexEntry("e", "a red circle", seed=1)


def _filled(of: type[Message]) -> bytes:
    """A message with something in every plain field."""
    message = of()
    for field in of.DESCRIPTOR.fields:
        if field.is_repeated:
            continue
        if field.type == field.TYPE_STRING:
            setattr(message, field.name, "a")
        elif field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32, field.CPPTYPE_ENUM):
            setattr(message, field.name, 1)
    return message.SerializeToString()
