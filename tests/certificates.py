"""A certificate authority for tests, made in memory and written as PEM files."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from skipstone_shared.credentials import Credentials
from skipstone_shared.tls_files import TlsFiles

_DAY = datetime.timedelta(days=1)


class Authority:
    """An authority with a file for its certificate."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = self._signed(self._name, self._key.public_key(), authority=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(_pem(self._certificate))

    def write(self, name: str, *, host: str = "localhost") -> TlsFiles:
        """Writes certificate and key of somebody, over what was there; callers must show theirs.

        Args:
            name: Name of the files.
            host: Name of the machine in the certificate, beside 127.0.0.1.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._signed(subject, key.public_key(), authority=False, host=host)
        files = TlsFiles(self._folder / f"{name}.crt", self._folder / f"{name}.key", self.file)
        # Each replaces what was there in one go, as tools that renew certificates do.
        _replace(self._folder / f"{name}.key", key_pem(key))
        _replace(self._folder / f"{name}.crt", _pem(certificate))
        return files

    def credentials(self, name: str) -> Credentials:
        """What a client with the certificate of `name` is made with."""
        files = self.write(name)
        return Credentials(self.file, files.cert_file, files.key_file)

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        *,
        authority: bool,
        host: str = "localhost",
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        names = [x509.DNSName(host), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _DAY)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if not authority:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def key_pem(key: ec.EllipticCurvePrivateKey, password: bytes | None = None) -> bytes:
    """A private key as PEM."""
    protection = (
        serialization.NoEncryption()
        if password is None
        else serialization.BestAvailableEncryption(password)
    )
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _replace(path: Path, data: bytes) -> None:
    new = path.with_suffix(path.suffix + ".new")
    new.write_bytes(data)
    new.replace(path)
