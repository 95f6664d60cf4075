"""Settings of a service: one frozen class, read from flags, environment and file.

Precedence: flag > environment > file > default. Example for the field `max_bytes` of a service
whose `service_name` is `latent_kv`:

    flag         --max-bytes 1000000
    environment  SKIPSTONE_LATENT_KV_MAX_BYTES=1000000
    file         [latent_kv]
                 max_bytes = 1000000

The file is TOML, named by `--config` or `SKIPSTONE_CONFIG`; each service reads its own table, so
one file serves all. What no service knows is an error that names the nearest valid name: a misspelt
limit must not silently become the default.

Kubernetes injects `SKIPSTONE_LATENT_KV_PORT=tcp://...` for a Service of that name: pods need
`enableServiceLinks: false`, or they refuse to start with exactly this message.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NoReturn, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from skipstone_shared.config_sources import (
    CONFIG_ENV,
    ConfigError,
    env_name,
    flag_name,
    is_secret,
    parse_flags,
    read_environment,
    read_file,
)
from skipstone_shared.config_text import describe_settings, format_help
from skipstone_shared.credentials import Credentials
from skipstone_shared.tls_files import TlsFiles

__all__ = [
    "CallerSettings",
    "ConfigError",
    "Port",
    "ServiceSettings",
    "load_settings",
    "resolve_settings",
]

Port = Annotated[int, Field(ge=0, le=65535)]
"""A TCP port; subclasses that give `port` a default repeat this type to keep its range."""

_MAX_SHOWN = 80


class ServiceSettings(BaseModel):
    """What every service can be told. Subclasses set `service_name`, `port` and add fields.

    Fields are plain values: str, int, float, bool, `Literal`, `pathlib.Path`, `pydantic.SecretStr`,
    tuples of these, dicts by name of these or of frozen models, and any of these or None. The
    docstring under a field is its line in `--help`.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        protected_namespaces=(),
        validate_default=True,
    )

    service_name: ClassVar[str]
    """Python name of the service: `latent_kv`. Gives table, environment prefix, program name."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for all interfaces. Beyond loopback give certificates and
    tokens too, or one loud warning says that they are missing."""

    port: Port = 0
    """TCP port to listen on; 0 takes any free one and logs it."""

    metrics_port: Port = 0
    """HTTP port of the Prometheus metrics; 0 turns them off."""

    health_port: Port | None = None
    """TCP port that answers health checks alone, in plain text, for probes that cannot speak TLS; 0
    takes any free one, none opens none."""

    tls_cert_file: Path | None = None
    """PEM file of this service's certificate, with those between it and the authority; none: plain
    text. Changed files are taken up without a restart."""

    tls_key_file: Path | None = None
    """PEM file of its private key, not encrypted."""

    tls_ca_file: Path | None = None
    """PEM file of the authorities whose certificate every caller must show; none asks for none."""

    access_file: Path | None = None
    """File of the tokens that callers may have, with their namespaces and rights; none lets
    everyone do everything. A changed file is taken up without a restart."""

    otlp_endpoint: str = Field(default="", pattern=r"^(https?://[^/\s]+/?)?$")
    """OpenTelemetry collector that gets traces over gRPC: http://host:4317, or https:// with TLS;
    empty: no traces. Needs the extra `tracing`."""

    trace_sample_ratio: float = Field(default=1.0, ge=0.0, le=1.0)
    """Share of the requests that are traced, of those whose caller has not decided it."""

    max_workers: int = Field(default=16, ge=1, le=1024)
    """Threads that work on requests; more requests than that wait."""

    max_connection_age_s: float = Field(default=0.0, ge=0.0)
    """Seconds after which clients are asked to reconnect and so find new replicas; 0: never."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least important event that is logged."""

    log_format: Literal["json", "console"] = "json"
    """Form of the log lines on stderr: JSON for machines, console for people."""

    drain_grace_s: float = Field(default=10.0, ge=0.0)
    """Seconds that running requests get to finish after SIGTERM."""

    @classmethod
    def program_name(cls) -> str:
        """Returns the console script's name: `skipstone-latent-kv`."""
        return "skipstone-" + cls.service_name.replace("_", "-")

    def data_folders(self) -> tuple[Path, ...]:
        """Folders in which this service keeps data; whoever checks a deployment looks at them."""
        return ()

    def tls_files(self) -> TlsFiles | None:
        """Where the certificates of this service's port are; None for plain text."""
        if self.tls_cert_file is None:
            return None
        return TlsFiles(self.tls_cert_file, self.tls_key_file, self.tls_ca_file)

    @model_validator(mode="after")
    def _whole_tls(self) -> Self:
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_cert_file and tls_key_file need each other")
        if self.tls_ca_file is not None and self.tls_cert_file is None:
            raise ValueError("tls_ca_file needs tls_cert_file and tls_key_file")
        return self


class CallerSettings(ServiceSettings):
    """What a service that calls others can be told beside: who it is to them."""

    client_tls_ca_file: Path | None = None
    """PEM file of the authorities that the services it calls must have their certificate from; none
    calls them in plain text. Changed files are taken up without a restart."""

    client_tls_cert_file: Path | None = None
    """PEM file of the certificate it shows them; none shows none."""

    client_tls_key_file: Path | None = None
    """PEM file of that certificate's private key, not encrypted."""

    client_tls_server_name: str = ""
    """Name that their certificates must carry; empty: the host of each target."""

    client_token_file: Path | None = None
    """File with the token it calls them with; none sends none. A changed file is taken up without
    a restart."""

    def credentials(self) -> Credentials:
        """Who this service is to those it calls."""
        return Credentials(
            tls_ca_file=self.client_tls_ca_file,
            tls_cert_file=self.client_tls_cert_file,
            tls_key_file=self.client_tls_key_file,
            tls_server_name=self.client_tls_server_name,
            token_file=self.client_token_file,
            prefix="client_",
        )


SettingsT = TypeVar("SettingsT", bound=ServiceSettings)


def resolve_settings(
    cls: type[SettingsT], argv: Sequence[str], environ: Mapping[str, str]
) -> tuple[SettingsT, dict[str, str]]:
    """Reads the settings of one service from its sources.

    Args:
        cls: The settings class.
        argv: Flags without the program name.
        environ: The environment.

    Returns:
        The settings, and for each field that is not at its default where it came from
        (`--port`, `SKIPSTONE_LATENT_KV_PORT`, `skipstone.toml [latent_kv]`).

    Raises:
        ConfigError: A name is unknown or a value is not allowed; the message is one sentence.
    """
    flags, config_path = parse_flags(cls, argv)
    config_path = config_path or environ.get(CONFIG_ENV) or None
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    if config_path:
        found = read_file(cls, config_path)
        values.update(found)
        sources.update(dict.fromkeys(found, f"{config_path} [{cls.service_name}]"))
    found = read_environment(cls, environ)
    values.update(found)
    sources.update({name: env_name(cls, name) for name in found})
    values.update(flags)
    sources.update({name: flag_name(name) for name in flags})
    try:
        return cls(**values), sources
    except ValidationError as error:
        raise ConfigError("; ".join(_explain(e, cls, sources) for e in error.errors())) from None


def load_settings(
    cls: type[SettingsT],
    argv: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> SettingsT:
    """Reads the settings of the program that is starting; the first thing a `main` does.

    Handles `--help` and `--print-config` (both end the program with 0).

    Args:
        cls: The settings class.
        argv: Flags without the program name; those of the process by default.
        environ: The environment; that of the process by default.

    Raises:
        SystemExit: With 2, after one sentence on stderr, when the configuration is wrong.
    """
    argv = sys.argv[1:] if argv is None else argv
    environ = os.environ if environ is None else environ
    if "--help" in argv or "-h" in argv:
        _print_and_exit(format_help(cls))
    rest = [word for word in argv if word != "--print-config"]
    try:
        settings, sources = resolve_settings(cls, rest, environ)
    except ConfigError as error:
        sys.stderr.write(f"{cls.program_name()}: {error}\n")
        raise SystemExit(2) from None
    if len(rest) != len(argv):
        _print_and_exit(describe_settings(settings, sources))
    return settings


def _print_and_exit(text: str) -> NoReturn:
    sys.stdout.write(text)
    raise SystemExit(0)


def _explain(error: ErrorDetails, cls: type[ServiceSettings], sources: Mapping[str, str]) -> str:
    """Returns one pydantic error as "--port: input should be ..., got '70000'".

    Inside a list or a table the place follows the name: "--sizes 1: input should be ...". What was
    given for a secret is not repeated.
    """
    message = error["msg"].removeprefix("Value error, ")
    if not error["loc"]:
        return message
    name, *inner = map(str, error["loc"])
    text = f"{' '.join([sources.get(name, name), *inner])}: {message[:1].lower()}{message[1:]}"
    if name in cls.model_fields and is_secret(cls.model_fields[name]):
        return text
    shown = repr(error["input"])
    shown = shown if len(shown) <= _MAX_SHOWN else shown[:_MAX_SHOWN] + "..."
    return f"{text}, got {shown}"
