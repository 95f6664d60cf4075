"""Settings, and a service that cannot start: non-zero, one sentence that says what to do."""

from __future__ import annotations

import logging
import socket
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from pydantic import ValidationError
from tests.contract.latent_store_cases import Write, latents, list_ids, save
from tests.servers.redis_server import shared_redis
from tests.servers.seaweedfs import shared_seaweedfs

from skipstone_latent_kv.__main__ import build, main, open_store
from skipstone_latent_kv.config import LatentKVSettings
from skipstone_latent_kv.lmdb_store import LmdbStore
from skipstone_latent_kv.memory_store import MemoryStore
from skipstone_latent_kv.redis_store import RedisStore
from skipstone_latent_kv.s3_store import S3Store
from skipstone_latent_kv.store import LatentStore
from skipstone_shared.config import resolve_settings
from skipstone_shared.config_sources import ConfigError
from skipstone_shared.errors import InvalidArgument, QuotaExceeded


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A start points the log of the whole process at the stream that this test captures."""
    handlers, level = list(logging.root.handlers), logging.root.level
    yield
    structlog.reset_defaults()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def start(monkeypatch: pytest.MonkeyPatch, *flags: str) -> int:
    monkeypatch.setattr(sys, "argv", ["skipstone-latent-kv", *flags])
    return main()


def one_sentence(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr().err
    lines = [line for line in captured.splitlines() if line.startswith("skipstone-latent-kv: ")]
    assert len(lines) == 1
    return lines[0]


def test_a_directory_in_use_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = LmdbStore(tmp_path)
    assert start(monkeypatch, "--data-dir", str(tmp_path), "--port", "0") == 2
    assert "is in use by process" in one_sentence(capsys)
    store.close()


def test_a_directory_that_cannot_be_written_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert start(monkeypatch, "--data-dir", str(tmp_path / "file"), "--port", "0") == 2
    assert "cannot write to data_dir" in one_sentence(capsys)


def test_a_taken_port_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert start(monkeypatch, "--store", "memory", "--port", port) == 2
    assert "cannot listen on" in one_sentence(capsys)


def test_an_unknown_flag_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        start(monkeypatch, "--quota-byte", "5")
    assert raised.value.code == 2
    assert "did you mean --quota-bytes" in one_sentence(capsys)


def test_watchers_must_leave_workers_for_other_calls() -> None:
    with pytest.raises(ValidationError, match="max_watchers"):
        LatentKVSettings(max_workers=4, max_watchers=4)


def engine_settings(engine: str, folder: Path) -> dict[str, str]:
    """The variables that choose an empty store of an engine."""
    environ = {
        "SKIPSTONE_LATENT_KV_STORE": engine,
        "SKIPSTONE_LATENT_KV_DATA_DIR": str(folder),
    }
    if engine == "redis":
        environ["SKIPSTONE_LATENT_KV_REDIS_URLS"] = shared_redis().url
        environ["SKIPSTONE_LATENT_KV_REDIS_PREFIX"] = f"test-{uuid.uuid4().hex}"
    if engine == "s3":
        address = shared_seaweedfs().address
        environ |= {
            "SKIPSTONE_LATENT_KV_S3_ENDPOINT": address.endpoint,
            "SKIPSTONE_LATENT_KV_S3_REGION": address.region,
            "SKIPSTONE_LATENT_KV_S3_BUCKET": address.bucket,
            "SKIPSTONE_LATENT_KV_S3_PATH_STYLE": "true",
            "SKIPSTONE_LATENT_KV_S3_CREDENTIALS_FILE": str(address.credentials_file),
            "SKIPSTONE_LATENT_KV_S3_PREFIX": f"test-{uuid.uuid4().hex}",
        }
    return environ


@pytest.mark.parametrize(
    ("engine", "cls", "durability"),
    [
        ("memory", MemoryStore, "none"),
        ("lmdb", LmdbStore, "power"),
        ("redis", RedisStore, "process"),
        ("s3", S3Store, "power"),
    ],
)
def test_settings_reach_the_store(
    tmp_path: Path, engine: str, cls: type[LatentStore], durability: str
) -> None:
    environ = engine_settings(engine, tmp_path) | {
        "SKIPSTONE_LATENT_KV_QUOTA_BYTES": "4096",
        "SKIPSTONE_LATENT_KV_NAMESPACE_QUOTA_BYTES": "3000",
        "SKIPSTONE_LATENT_KV_MAX_SNAPSHOT_BYTES": "2048",
        "SKIPSTONE_LATENT_KV_LOW_WATER": "1.0",
    }
    settings, _ = resolve_settings(LatentKVSettings, [], environ)
    store = open_store(settings)
    assert type(store) is cls
    capabilities = store.get_capabilities()
    assert capabilities.max_snapshot_bytes == 2048
    assert capabilities.durability == durability
    assert store.get_stats("").quota_bytes == 3000
    for namespace in ("a", "b", "c"):
        save(store, "entry", latents(size_bytes=2048), namespace=namespace)
    assert [store.get_stats(name).size_bytes for name in ("a", "b", "c")] == [0, 2048, 2048]
    with pytest.raises(InvalidArgument):
        Write.of("entry", latents(size_bytes=2050)).to(store)
    with pytest.raises(QuotaExceeded):
        Write.of("entry", latents(size_bytes=3002)).to(store)
    store.close()


def test_stopping_sweeps_and_closes_the_store(tmp_path: Path) -> None:
    mounted = build(LatentKVSettings(data_dir=tmp_path))
    for callback in mounted.on_stop:
        callback()
    LmdbStore(tmp_path).close()


@pytest.mark.parametrize("engine", ["memory", "lmdb", "redis", "s3"])
def test_policy_and_water_marks_reach_the_store(tmp_path: Path, engine: str) -> None:
    environ = engine_settings(engine, tmp_path) | {
        "SKIPSTONE_LATENT_KV_QUOTA_BYTES": "4096",
        "SKIPSTONE_LATENT_KV_EVICTION_POLICY": "fifo",
        "SKIPSTONE_LATENT_KV_HIGH_WATER": "0.75",
        "SKIPSTONE_LATENT_KV_LOW_WATER": "0.5",
    }
    settings, _ = resolve_settings(LatentKVSettings, [], environ)
    store = open_store(settings)
    refs = [save(store, entry_id) for entry_id in "abc"]
    store.read_latent("", refs[0])
    save(store, "d")
    assert list_ids(store) == ["c", "d"]
    store.close()


def test_water_marks_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"low_water \(0.9\) must not be above high_water"):
        resolve_settings(LatentKVSettings, ["--high-water", "0.8", "--low-water", "0.9"], {})


@pytest.mark.parametrize("size", [0, 1 << 20])
def test_the_memory_tier_is_there_when_it_has_a_size(size: int) -> None:
    mounted = build(LatentKVSettings(store="memory", memory_tier_bytes=size))
    names = {metric.name for collector in mounted.collectors for metric in collector.collect()}
    assert ("skipstone_latent_kv_memory_tier_bytes" in names) == (size > 0)
    for stop in mounted.on_stop:
        stop()


def test_a_stream_budget_below_the_largest_snapshot_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"stream_bytes \(1000\) must be at least 2099152"):
        resolve_settings(
            LatentKVSettings, ["--stream-bytes", "1000", "--max-snapshot-bytes", "2000"], {}
        )


def test_a_codec_reaches_the_store_and_needs_lmdb(tmp_path: Path) -> None:
    store = open_store(LatentKVSettings(data_dir=tmp_path, codec="int8"))
    save(store, "entry", latents(size_bytes=2000))
    assert store.get_stats("").size_bytes == 1 + 4 + 1000
    store.close()
    with pytest.raises(ConfigError, match="codec int8 needs the store lmdb"):
        resolve_settings(LatentKVSettings, ["--codec", "int8", "--store", "memory"], {})


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--store", "s3"], "store s3 needs s3_bucket"),
        (["--s3-bucket", "a/b"], "--s3-bucket: .*pattern"),
        (["--s3-region", "eu west"], "--s3-region: .*pattern"),
        (["--s3-prefix", "a/b"], "--s3-prefix: .*pattern"),
        (["--s3-timeout-s", "inf"], "--s3-timeout-s"),
        *(
            (["--s3-endpoint", url], "s3_endpoint must be a URL: http://HOST:PORT")
            for url in ("10.0.0.5:9000", "http://", "http://h:99999", "http://[::1", "http://h?a=b")
        ),
        (["--s3-endpoint", "http://key:secret@10.0.0.5"], "s3_endpoint holds a user"),
        (["--s3-attempts", "0"], "s3-attempts"),
    ],
)
def test_settings_of_s3_that_cannot_be_are_refused(flags: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_settings(LatentKVSettings, flags, {})


@pytest.mark.parametrize(
    "text", [None, "", "garbage", "[default]\n", "[default]\naws_access_key_id=a"]
)
def test_a_file_of_credentials_that_has_none_stops_the_start_and_is_named(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    text: str | None,
) -> None:
    file = tmp_path / "credentials"
    if text is not None:
        file.write_text(text)
    flags = ["--store", "s3", "--s3-bucket", "latents", "--s3-endpoint", "http://127.0.0.1:1"]
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    assert start(monkeypatch, *flags, "--s3-credentials-file", str(file), "--port", "0") == 2
    told = one_sentence(capsys)
    assert "s3_credentials_file" in told
    assert "aws_secret_access_key" in told


def test_a_bucket_that_is_not_there_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name, value in (engine_settings("s3", tmp_path)).items():
        monkeypatch.setenv(name, value)
    assert start(monkeypatch, "--s3-bucket", "nobody-made-this", "--port", "0") == 2
    assert "s3_bucket is not there" in one_sentence(capsys)
