"""``skipstone token``: draws tokens that let callers in."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from skipstone_client.cli_output import (
    EXIT_BAD_INPUT,
    JsonOption,
    errors_in_one_line,
    fail,
    print_json,
    stdout,
)
from skipstone_shared.access import ALL_NAMESPACES, Right, caller_table, token_hash
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.latents import checked_namespace

_TOKEN_BYTES = 32
_PREFIX = "sks_"
"""Lets scanners for leaked secrets find them."""


def create(
    name: Annotated[str, typer.Argument(help="Name of the caller, for logs.")],
    out: Annotated[Path, typer.Option("--out", help="New file that gets the token.")],
    right: Annotated[
        list[Right], typer.Option("--right", help="What they may do; may be given several times.")
    ],
    namespace: Annotated[
        list[str],
        typer.Option("--namespace", help="Where; may be given several times. '*' is everywhere."),
    ],
    as_json: JsonOption = False,
) -> None:
    """Draws a token, writes it to a file that only you can read, and prints what lets it in.

    Append what is printed to the access_file of a service; it holds a hash, not the token.
    """
    with errors_in_one_line():
        for found in namespace:
            if found != ALL_NAMESPACES and checked_namespace(found) != found:
                raise InvalidArgument("is empty", field="--namespace")
    token = _PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
    _write(out, token)
    digest = token_hash(token)
    if as_json:
        rights = [found.value for found in right]
        print_json({"name": name, "tokens": [digest], "namespaces": namespace, "rights": rights})
        return
    stdout().print(caller_table(name, [digest], namespace, right), soft_wrap=True, markup=False)


def _write(path: Path, token: str) -> None:
    """Writes a token to a new file; one that is there may hold another token still in use."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        fail(f"--out: cannot write {path}: {(error.strerror or '').lower()}", EXIT_BAD_INPUT)
    with os.fdopen(file, "w", encoding="ascii") as opened:
        opened.write(token + "\n")
