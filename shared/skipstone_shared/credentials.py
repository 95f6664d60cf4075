"""Who a client is to the services it calls: certificates and token, from files."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from skipstone_shared.errors import InvalidArgument
from skipstone_shared.tls_files import TlsFiles

AUTHORIZATION_KEY = "authorization"
"""Metadata key of the token."""

BEARER = "Bearer "
"""What stands before the token there (RFC 6750)."""

MAX_TOKEN_BYTES = 4096


@dataclasses.dataclass(frozen=True, slots=True)
class Credentials:
    """Certificates and token of a client. Files that change are taken up without a restart.

    Attributes:
        tls_ca_file: PEM file of the authorities that a service must have its certificate from;
            None: plain text.
        tls_cert_file: PEM file of the certificate to show, where the service asks for one.
        tls_key_file: PEM file of its private key, not encrypted.
        tls_server_name: Name that the certificate of a service must carry; empty: the host of the
            target.
        token: Token itself, where no file holds it.
        token_file: File that holds the token; white space around it is left out.
        prefix: What stands before these names in the settings they come from, for errors.
    """

    tls_ca_file: Path | None = None
    tls_cert_file: Path | None = None
    tls_key_file: Path | None = None
    tls_server_name: str = ""
    token: str | None = dataclasses.field(default=None, repr=False)
    token_file: Path | None = None
    prefix: str = ""

    def __post_init__(self) -> None:
        if self.tls_ca_file is None and (self.tls_cert_file or self.tls_key_file):
            name = f"{self.prefix}tls_ca_file"
            raise InvalidArgument(
                "a certificate is shown only to services that are checked", field=name
            )
        if self.token is not None and self.token_file is not None:
            raise InvalidArgument("give one of token and token_file", field=f"{self.prefix}token")
        if self.token is not None:
            checked_token(self.token, f"{self.prefix}token")

    def tls_files(self) -> TlsFiles | None:
        """Where the certificates are; None for plain text."""
        if self.tls_ca_file is None:
            return None
        return TlsFiles(
            self.tls_cert_file, self.tls_key_file, self.tls_ca_file, f"{self.prefix}tls_"
        )


def read_token(path: Path, name: str) -> str:
    """The token in a file.

    Args:
        path: The file.
        name: Name of the setting, for errors.

    Raises:
        InvalidArgument: It cannot be read or holds no token. The text never shows what it holds.
    """
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError as error:
        reason = (error.strerror or "").lower()
        raise InvalidArgument(f"cannot read {path}: {reason}", field=name) from None
    except UnicodeDecodeError:
        raise InvalidArgument(f"{path} holds no token", field=name) from None
    return checked_token(text, name)


def checked_token(token: str, name: str) -> str:
    """The token, if it can be sent.

    Raises:
        InvalidArgument: It is empty, too long, or has characters that a header cannot carry.
    """
    visible = all("!" <= character <= "~" for character in token)
    if not (token and visible and len(token) <= MAX_TOKEN_BYTES):
        raise InvalidArgument(
            "holds no token",
            field=name,
            allowed=f"1 to {MAX_TOKEN_BYTES} visible ASCII characters without spaces",
        )
    return token
