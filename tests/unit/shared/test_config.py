"""Settings come from the right place, and a misspelt one is never ignored."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from skipstone_shared.config import (
    ConfigError,
    Port,
    ServiceSettings,
    load_settings,
    resolve_settings,
)
from skipstone_shared.ports import DEFAULT_PORTS


class Tier(BaseModel):
    """One place to keep things."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_bytes: int = 1
    paths: tuple[str, ...] = ()


class StoreSettings(ServiceSettings):
    """Keeps latents."""

    service_name = "latent_kv"

    port: Port = DEFAULT_PORTS["latent_kv"]
    """Where to listen."""

    backend: Literal["lmdb", "memory"] = "lmdb"
    """Where latents are kept."""

    max_bytes: int = Field(default=100, ge=1)
    """Bytes in total."""

    fsync: bool = True
    """Whether an acknowledged write is on disk."""

    ttl_s: float | None = None
    """Seconds an entry lives."""

    sizes: tuple[int, ...] = (1, 2)
    """Some sizes."""

    tiers: dict[str, Tier] = Field(default_factory=dict)
    """Places by name."""

    directory: Path = Path("data")
    """Where files go."""

    password: SecretStr = SecretStr("")
    """Password."""


def read(*argv: str, **environ: str) -> StoreSettings:
    return resolve_settings(StoreSettings, argv, environ)[0]


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "skipstone.toml"
    path.write_text(
        "[latent_kv]\nmax_bytes = 3\nport = 3\nhost = 'file'\nsizes = [7]\n"
        "[denoise]\nanything = 'is the business of another service'\n"
    )
    return path


def test_defaults_hold_when_nothing_is_said() -> None:
    settings = read()
    assert (settings.host, settings.port, settings.max_bytes) == ("127.0.0.1", 50053, 100)


def test_flag_beats_environment_beats_file_beats_default(config_file: Path) -> None:
    settings = read(
        "--config",
        str(config_file),
        "--port=1",
        SKIPSTONE_LATENT_KV_PORT="2",
        SKIPSTONE_LATENT_KV_MAX_BYTES="2",
    )
    assert (settings.port, settings.max_bytes, settings.host) == (1, 2, "file")
    assert settings.backend == "lmdb"


def test_the_file_can_be_named_by_the_environment(config_file: Path) -> None:
    assert read(SKIPSTONE_CONFIG=str(config_file)).sizes == (7,)


def test_variables_of_other_services_are_not_ours() -> None:
    read(SKIPSTONE_DENOISE_NONSENSE="1", SKIPSTONE_SOMETHING="1", PATH="/bin")


@pytest.mark.parametrize(
    ("argv", "field", "value"),
    [
        (["--no-fsync"], "fsync", False),
        (["--fsync"], "fsync", True),
        (["--ttl-s", "1.5"], "ttl_s", 1.5),
        (["--ttl-s", "none"], "ttl_s", None),
        (["--sizes", "3, 4"], "sizes", (3, 4)),
        (["--sizes", "[5]"], "sizes", (5,)),
        (["--sizes="], "sizes", ()),
        (["--tiers", '{"hot": {"max_bytes": 2}}'], "tiers", {"hot": Tier(max_bytes=2)}),
        (["--directory", "/x"], "directory", Path("/x")),
        (["--backend", "memory"], "backend", "memory"),
    ],
)
def test_flags_hold_every_kind_of_value(argv: list[str], field: str, value: object) -> None:
    assert getattr(read(*argv), field) == value


@pytest.mark.parametrize("text", ["false", "0", "no", "off"])
def test_a_switch_can_be_turned_off_by_the_environment(text: str) -> None:
    assert read(SKIPSTONE_LATENT_KV_FSYNC=text).fsync is False


@pytest.mark.parametrize(
    ("argv", "environ", "expected"),
    [
        (["--prot", "1"], {}, "unknown flag --prot, did you mean --port?"),
        (["--max_bytes=1"], {}, "unknown flag --max_bytes, did you mean --max-bytes?"),
        (["--port"], {}, "--port: expected one argument"),
        (["start"], {}, "unexpected argument start"),
        (
            [],
            {"SKIPSTONE_LATENT_KV_MAXBYTES": "1"},
            "SKIPSTONE_LATENT_KV_MAXBYTES, did you mean SKIPSTONE_LATENT_KV_MAX_BYTES?",
        ),
        # All variables begin alike: only what comes behind may decide what is near.
        (
            [],
            {"SKIPSTONE_LATENT_KV_MX_BYTS": "1"},
            "SKIPSTONE_LATENT_KV_MX_BYTS, did you mean SKIPSTONE_LATENT_KV_MAX_BYTES?",
        ),
        (["--port", "70000"], {}, "--port: input should be less than or equal to 65535"),
        ([], {"SKIPSTONE_LATENT_KV_PORT": "x"}, "SKIPSTONE_LATENT_KV_PORT: input should be"),
        (["--backend", "redis"], {}, "--backend: input should be 'lmdb' or 'memory', got 'redis'"),
        (["--ttl-s", "nan"], {}, "--ttl-s: input should be a finite number"),
        (["--sizes", "[1"], {}, "not a JSON list"),
        (["--tiers", "hot"], {}, "not a JSON object"),
        (["--tiers", '{"hot": {"max": 1}}'], {}, "--tiers hot max: extra inputs are not permitted"),
        (["--config", "/nowhere.toml"], {}, "cannot read configuration file /nowhere.toml"),
    ],
)
def test_a_mistake_is_named(argv: list[str], environ: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_settings(StoreSettings, argv, environ)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[latent_vk]\n", "unknown table latent_vk, did you mean latent_kv?"),
        ("[latent_kv]\nmax_byte = 1\n", "unknown key max_byte, did you mean max_bytes?"),
        ("latent_kv = 1\n", "write [latent_kv]"),
        ("[latent_kv", "not valid TOML"),
        ("[latent_kv.tiers.hot]\nmax_bytes = 'x'\n", "[latent_kv] hot max_bytes: input should be"),
        ("[latent_kv]\nmax_bytes = 0\n", "[latent_kv]: input should be greater than or equal to 1"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read("--config", str(path))
    assert expected in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_secret_of_the_wrong_kind_is_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "skipstone.toml"
    path.write_text("[latent_kv]\npassword = 271828\n")
    with pytest.raises(ConfigError, match="valid string") as raised:
        read("--config", str(path))
    assert "271828" not in str(raised.value)


def test_a_wrong_configuration_ends_the_program_with_one_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        load_settings(StoreSettings, ["--port", "x"], {})
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("skipstone-latent-kv: --port:")
    assert err.count("\n") == 1


def test_help_shows_meaning_default_and_variable_of_every_field(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        load_settings(StoreSettings, ["--help"], {})
    assert caught.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert (
        "--max-bytes INT Bytes in total. Default: 100. Env: SKIPSTONE_LATENT_KV_MAX_BYTES." in text
    )
    assert "--fsync / --no-fsync Whether" in text
    assert all(f"--{name.replace('_', '-')}" in text for name in StoreSettings.model_fields)


def test_the_printed_configuration_can_be_read_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiers = {"hot": Tier(paths=("/a", "/b"))}
    shown = json.dumps({name: tier.model_dump() for name, tier in tiers.items()})
    argv = ["--print-config", "--max-bytes", "5", "--sizes", "1", "--tiers", shown]
    with pytest.raises(SystemExit) as caught:
        load_settings(StoreSettings, argv, {"SKIPSTONE_LATENT_KV_PASSWORD": "hush"})
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "max_bytes = 5  # --max-bytes" in text
    assert "hush" not in text
    assert tomllib.loads(text)["latent_kv"]["sizes"] == [1]
    path = tmp_path / "printed.toml"
    path.write_text(text)
    again = read("--config", str(path))
    assert (again.max_bytes, again.tiers) == (5, tiers)


def test_settings_cannot_change_after_the_start() -> None:
    with pytest.raises(ValidationError):
        read().port = 1  # type: ignore[misc]


def test_every_service_has_its_own_default_port() -> None:
    assert len(set(DEFAULT_PORTS.values())) == len(DEFAULT_PORTS) == 6
