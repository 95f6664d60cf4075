"""Who the command line is to the services: options of ``skipstone`` itself, for all commands.

The token comes from a file, never from an option: command lines are seen by everyone on a machine.
"""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path
from typing import Annotated

import typer

from skipstone_shared.credentials import Credentials

TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file", envvar="SKIPSTONE_TOKEN_FILE", help="File with the token to call with."
    ),
]
CaFileOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-ca-file",
        envvar="SKIPSTONE_TLS_CA_FILE",
        help="PEM file of the authorities that services must have their certificate from; "
        "none: plain text.",
    ),
]
CertFileOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert-file", envvar="SKIPSTONE_TLS_CERT_FILE", help="PEM file of an own certificate."
    ),
]
KeyFileOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-key-file", envvar="SKIPSTONE_TLS_KEY_FILE", help="PEM file of its private key."
    ),
]
ServerNameOption = Annotated[
    str,
    typer.Option(
        "--tls-server-name",
        envvar="SKIPSTONE_TLS_SERVER_NAME",
        help="Name in the certificate of a service; empty: the host of its target.",
    ),
]


_kept: ContextVar[Credentials | None] = ContextVar("skipstone_cli_credentials", default=None)


def keep_credentials(credentials: Credentials) -> None:
    """Makes these the credentials of the command that runs."""
    _kept.set(credentials)


def credentials() -> Credentials | None:
    """The credentials that the command was given, for its clients."""
    return _kept.get()
