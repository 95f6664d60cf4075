"""Which flags each service of a local cluster is started with."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

DEPENDENCIES: Mapping[str, tuple[str, ...]] = {
    "embedding": (),
    "vector_index": (),
    "latent_kv": (),
    "denoise": ("latent_kv",),
    "orchestrator": ("embedding", "vector_index", "latent_kv", "denoise"),
    "gateway": ("orchestrator", "latent_kv"),
}
"""Which services each one calls. A service starts when those listen, and stops before them."""

DEFAULT_DATA_DIR = Path("out/data")
"""Where services keep data when nobody says, relative to the working directory."""

GATEWAY = "gateway"
"""The one service that speaks HTTP, and the one that a cluster can do without."""

WITH_DATA = ("vector_index", "latent_kv")
"""Services that keep data in a directory."""


class ClusterError(RuntimeError):
    """The services cannot run; the message is one sentence that says which one and why."""


class LaunchFlags:
    """Decides the flags of each service.

    What the caller gave wins over what the environment and the file say, which wins over what this
    class would choose: the same precedence that the services themselves keep.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        data_dir: str | Path | None,
        config: str | Path | None,
        model: str | None,
        flags: Mapping[str, Sequence[str]],
        *,
        free_ports: bool,
        gateway: bool = False,
    ) -> None:
        """Reads the configuration file; see ``LocalCluster`` for the arguments.

        Raises:
            ClusterError: the file cannot be read, or a service is not one of those there are.
        """
        for name in flags.keys() - DEPENDENCIES.keys():
            raise ClusterError(f"{name} is no service; there are {', '.join(DEPENDENCIES)}")
        self.services = tuple(name for name in DEPENDENCIES if gateway or name != GATEWAY)
        self._environ = environ
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._config = config or environ.get("SKIPSTONE_CONFIG") or None
        self._file = _read_toml(self._config) if self._config else {}
        self._model = model
        self._flags = flags
        self._free_ports = free_ports

    @property
    def is_configured(self) -> bool:
        """Whether a file or a variable holds settings that are not the caller's flags."""
        prefixes = tuple(f"SKIPSTONE_{service}_".upper() for service in self.services)
        return bool(self._config) or any(name.startswith(prefixes) for name in self._environ)

    def of(self, service: str, targets: Mapping[str, str]) -> list[str]:
        """The flags of a service.

        Args:
            service: Its name.
            targets: Targets of the services that were ready once; this one's own port is kept.
        """
        flags = ["--log-format", "json"]
        if self._config:
            flags += ["--config", str(self._config)]
        if service in targets:
            flags += ["--port", targets[service].rpartition(":")[2]]
        elif self._free_ports:
            flags += ["--port", "0"]
        if service in WITH_DATA:
            flags += self._data_flags(service)
        for name in DEPENDENCIES[service]:
            if self._free_ports or not self._is_set(service, f"{name}_target"):
                flags += [f"--{name.replace('_', '-')}-target", targets[name]]
        # The gateway answers probes on its own port, by HTTPS.
        if (
            service != GATEWAY
            and self.speaks_tls(service)
            and not self._is_set(service, "health_port")
        ):
            flags += ["--health-port", "0"]  # where the cluster asks whether it serves
        if service == "denoise" and self._model is not None:
            flags += ["--model", self._model]
        return [*flags, *self._flags.get(service, ())]

    def _data_flags(self, service: str) -> list[str]:
        if self._data_dir is not None:
            return ["--data-dir", str(self._data_dir / service)]
        if self._is_set(service, "data_dir"):
            return []
        return ["--data-dir", str(DEFAULT_DATA_DIR / service)]

    def speaks_tls(self, service: str) -> bool:
        """Whether a service is given a certificate."""
        given = any(f.startswith("--tls-cert-file") for f in self._flags.get(service, ()))
        return given or self._is_set(service, "tls_cert_file")

    def _is_set(self, service: str, field: str) -> bool:
        table = self._file.get(service, {})
        return f"SKIPSTONE_{service}_{field}".upper() in self._environ or field in table


def reachable(address: str) -> str:
    """The target under which this machine reaches a listening address."""
    host, _, port = address.rpartition(":")
    return f"127.0.0.1:{port}" if host in ("0.0.0.0", "[::]", "::") else address


def _read_toml(path: str | Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ClusterError(f"cannot read configuration file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ClusterError(f"configuration file {path} is not valid TOML: {error}") from None
