"""Certificates from files: read, checked, and read again when they change."""

from __future__ import annotations

import dataclasses
import os
import ssl
from pathlib import Path

from skipstone_shared.errors import InvalidArgument
from skipstone_shared.reloaded import Reloaded


@dataclasses.dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where one side's certificates are, in PEM.

    Attributes:
        cert_file: Own certificate, with those between it and the authority; None: none.
        key_file: Its private key, not encrypted.
        ca_file: Authorities that certificates of the other side must come from; None: on a server
            no certificate is asked for.
        prefix: What stands before `cert_file`, `key_file` and `ca_file` in the names of the
            settings, for errors.
    """

    cert_file: Path | None = None
    key_file: Path | None = None
    ca_file: Path | None = None
    prefix: str = "tls_"

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files there are."""
        found = (self.cert_file, self.key_file, self.ca_file)
        return tuple(path for path in found if path is not None)


@dataclasses.dataclass(frozen=True, slots=True)
class TlsMaterial:
    """What the files hold, in PEM; None where there is no file."""

    cert: bytes | None
    key: bytes | None = dataclasses.field(repr=False)
    ca: bytes | None


def read_tls(files: TlsFiles) -> TlsMaterial:
    """Reads and checks certificates.

    Raises:
        InvalidArgument: A file cannot be read or is no PEM of its kind, or key and certificate do
            not belong together; `field` is the name of the setting.
    """
    prefix = files.prefix
    cert = _read(files.cert_file, f"{prefix}cert_file")
    key = _read(files.key_file, f"{prefix}key_file")
    ca = _read(files.ca_file, f"{prefix}ca_file")
    if (cert is None) != (key is None):
        name = f"{prefix}cert_file" if cert is None else f"{prefix}key_file"
        raise InvalidArgument("certificate and key need each other", field=name, allowed="a file")
    if cert is not None:
        _check_authorities(cert, files.cert_file, f"{prefix}cert_file")
        _check_pair(files)
    if ca is not None:
        _check_authorities(ca, files.ca_file, f"{prefix}ca_file")
    return TlsMaterial(cert, key, ca)


def reloaded_tls(files: TlsFiles) -> Reloaded[TlsMaterial]:
    """The certificates of files, read again when those change.

    Raises:
        InvalidArgument: As `read_tls`.
    """
    return Reloaded(f"{files.prefix}files", files.paths, lambda: read_tls(files))


def _read(path: Path | None, name: str) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        reason = (error.strerror or "").lower()
        raise InvalidArgument(f"cannot read {path}: {reason}", field=name) from None


def _check_authorities(pem: bytes, path: Path | None, name: str) -> None:
    """Checks that a file holds certificates."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise InvalidArgument(f"{path} holds no certificates in PEM", field=name) from None


def _check_pair(files: TlsFiles) -> None:
    """Checks that the key is one, not encrypted, and the certificate's."""
    assert files.cert_file is not None
    assert files.key_file is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Without a password given, an encrypted key would ask for one on the terminal.
        context.load_cert_chain(os.fspath(files.cert_file), os.fspath(files.key_file), password="")
    except (ssl.SSLError, OSError, ValueError):
        raise InvalidArgument(
            f"{files.key_file} is not the unencrypted PEM key of {files.cert_file}",
            field=f"{files.prefix}key_file",
        ) from None
