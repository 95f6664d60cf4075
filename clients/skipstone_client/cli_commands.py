"""Puts the commands of the command line together."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from skipstone_client import (
    cli_block_cache_sweep,
    cli_calibrate,
    cli_deletions,
    cli_doctor,
    cli_entries,
    cli_explain,
    cli_generate,
    cli_kv,
    cli_migrate,
    cli_stats,
    cli_token,
    cli_top,
    cli_up,
    cli_warm,
)
from skipstone_client.cli_credentials import (
    CaFileOption,
    CertFileOption,
    KeyFileOption,
    ServerNameOption,
    TokenFileOption,
    keep_credentials,
)
from skipstone_client.cli_output import errors_in_one_line
from skipstone_shared.credentials import Credentials


def build_app() -> typer.Typer:
    """The application with all its commands."""
    app = typer.Typer(
        name="skipstone",
        help="Cheaper diffusion serving: similar requests skip their first denoising steps.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_main)
    app.command("up")(cli_up.up)
    app.command("generate")(cli_generate.generate)
    app.command("warm")(cli_warm.warm)
    app.command("explain")(cli_explain.explain)
    app.command("stats")(cli_stats.stats)
    app.command("top")(cli_top.top)
    app.command("doctor")(cli_doctor.doctor)
    app.command("calibrate")(cli_calibrate.calibrate)
    entries = typer.Typer(no_args_is_help=True, help="List, show and delete reusable entries.")
    entries.command("list")(cli_entries.list_entries)
    entries.command("show")(cli_entries.show_entry)
    entries.command("delete")(cli_entries.delete_entries)
    entries.command("delete-prompt")(cli_deletions.delete_prompt)
    entries.command("delete-namespace")(cli_deletions.delete_namespace)
    entries.command("verify-deleted")(cli_deletions.verify_deleted)
    app.add_typer(entries, name="entries")
    kv = typer.Typer(no_args_is_help=True, help="Check, compact, ship and move stored snapshots.")
    kv.command("verify")(cli_kv.verify)
    kv.command("compact")(cli_kv.compact)
    kv.command("export")(cli_kv.export)
    kv.command("import")(cli_kv.import_)
    kv.command("migrate")(cli_migrate.migrate_kv)
    app.add_typer(kv, name="kv")
    index = typer.Typer(no_args_is_help=True, help="Move the entries of vector_index.")
    index.command("migrate")(cli_migrate.migrate_index)
    app.add_typer(index, name="index")
    token = typer.Typer(no_args_is_help=True, help="Make tokens that let callers in.")
    token.command("create")(cli_token.create)
    app.add_typer(token, name="token")
    blockcache = typer.Typer(no_args_is_help=True, help="Choose settings of block caching.")
    blockcache.command("sweep")(cli_block_cache_sweep.sweep)
    app.add_typer(blockcache, name="blockcache")
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"skipstone {version('skipstone')}")
        raise typer.Exit


def _main(
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
    token_file: TokenFileOption = None,
    tls_ca_file: CaFileOption = None,
    tls_cert_file: CertFileOption = None,
    tls_key_file: KeyFileOption = None,
    tls_server_name: ServerNameOption = "",
) -> None:
    """Keeps who the caller is; every command makes its clients with it."""
    with errors_in_one_line():
        keep_credentials(
            Credentials(
                tls_ca_file=tls_ca_file,
                tls_cert_file=tls_cert_file,
                tls_key_file=tls_key_file,
                tls_server_name=tls_server_name,
                token_file=token_file,
            )
        )
