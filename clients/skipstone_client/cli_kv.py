"""``skipstone kv``: check, compact and ship what latent_kv keeps."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from skipstone_client._channel import LATENT_KV, VECTOR_INDEX
from skipstone_client.cli_credentials import credentials
from skipstone_client.cli_output import (
    EXIT_BAD_INPUT,
    JsonOption,
    TimeoutOption,
    bytes_text,
    errors_in_one_line,
    fail,
    print_facts,
    print_json,
    stdout,
)
from skipstone_client.kv_transfer import Transferred, export_entries, import_entries
from skipstone_client.latent_kv import LatentKVClient
from skipstone_client.vector_index import VectorIndexClient
from skipstone_shared.ports import default_target

_DEFAULT_TARGET = default_target(LATENT_KV.name)
_DEFAULT_INDEX_TARGET = default_target(VECTOR_INDEX.name)
_PROBLEMS_SHOWN = 20
_FOUND_PROBLEMS = 1

KVTargetOption = Annotated[
    str,
    typer.Option("--target", envvar="SKIPSTONE_LATENT_KV_TARGET", help="gRPC target of latent_kv."),
]
IndexTargetOption = Annotated[
    str,
    typer.Option(
        "--vector-index-target",
        envvar="SKIPSTONE_VECTOR_INDEX_TARGET",
        help="gRPC target of vector_index.",
    ),
]
WithoutVectorsOption = Annotated[
    bool,
    typer.Option(
        "--without-vectors", help="Only latents: what is imported is found by equal requests alone."
    ),
]
DataDirArgument = Annotated[Path, typer.Argument(help="data_dir of a latent_kv that is stopped.")]


def verify(data_dir: DataDirArgument, as_json: JsonOption = False) -> None:
    """Checks every record and every byte of a data directory; 1 when something is wrong."""
    code, report = _offline("verify", data_dir)
    if as_json:
        print_json(report)
        raise typer.Exit(code)
    problems: list[str] = report["problems"]
    console = stdout()
    print_facts(
        console,
        {
            "entries": str(report["entries"]),
            "snapshots": str(report["snapshots"]),
            "size": bytes_text(report["size_bytes"]),
            "file": bytes_text(report["file_bytes"]),
            "unused values": str(report["unused_values"]),
            "problems": str(len(problems)),
        },
    )
    for problem in problems[:_PROBLEMS_SHOWN]:
        console.print(problem, markup=False, soft_wrap=True)
    if len(problems) > _PROBLEMS_SHOWN:
        console.print(f"... and {len(problems) - _PROBLEMS_SHOWN} more (--json shows all)")
    raise typer.Exit(code)


def compact(data_dir: DataDirArgument, as_json: JsonOption = False) -> None:
    """Writes the data file anew, without the space of what was removed."""
    _, report = _offline("compact", data_dir)
    if as_json:
        print_json(report)
        return
    before, after = bytes_text(report["file_bytes_before"]), bytes_text(report["file_bytes"])
    stdout().print(f"{before} -> {after}")


def export(
    directory: Annotated[Path, typer.Argument(help="New directory to write to.")],
    namespace: Annotated[
        list[str] | None,
        typer.Option("--namespace", help="Namespace to export; may be repeated. Default: default."),
    ] = None,
    target: KVTargetOption = _DEFAULT_TARGET,
    index_target: IndexTargetOption = _DEFAULT_INDEX_TARGET,
    without_vectors: WithoutVectorsOption = False,
    timeout: TimeoutOption = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Writes all committed entries, with their vectors, to safetensors files with a manifest."""
    with errors_in_one_line(), _clients(target, index_target, without_vectors, timeout) as clients:
        with _files_in_one_line():
            client, index = clients
            done = export_entries(client, directory, namespace or [""], index)
    _tell("exported", "gone meanwhile", done, as_json)


def import_(
    directory: Annotated[Path, typer.Argument(help="Directory of an export.")],
    target: KVTargetOption = _DEFAULT_TARGET,
    index_target: IndexTargetOption = _DEFAULT_INDEX_TARGET,
    without_vectors: WithoutVectorsOption = False,
    timeout: TimeoutOption = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Writes the entries of an export to running services; those they have are left as they are."""
    with errors_in_one_line(), _clients(target, index_target, without_vectors, timeout) as clients:
        with _files_in_one_line():
            client, index = clients
            done = import_entries(client, directory, index)
    _tell("imported", "there already", done, as_json)


def _tell(verb: str, skipped: str, done: Transferred, as_json: bool) -> None:
    if as_json:
        print_json(done)
        return
    text = f"{verb} {done.entries} entries, {done.snapshots} snapshots, "
    text += f"{bytes_text(done.size_bytes)}, {done.vectors} vectors"
    if done.skipped:
        text += f"; {skipped}: {done.skipped}"
    if done.empty_namespaces:
        text += f"; nothing is stored in {', '.join(done.empty_namespaces)}"
    stdout().print(text, soft_wrap=True)


@contextmanager
def _clients(
    target: str, index_target: str, without_vectors: bool, timeout_s: float
) -> Iterator[tuple[LatentKVClient, VectorIndexClient | None]]:
    me = credentials()
    index = (
        None
        if without_vectors
        else VectorIndexClient(index_target, timeout_s=timeout_s, credentials=me)
    )
    store = LatentKVClient(target, timeout_s=timeout_s, credentials=me)
    with store as client, index or nullcontext():
        yield client, index


@contextmanager
def _files_in_one_line() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}", EXIT_BAD_INPUT)


def _offline(command: str, data_dir: Path) -> tuple[int, dict[str, Any]]:
    """Runs the service's own program on a directory; this package knows no service's files.

    Returns:
        Its exit code (0, or 1 for problems) and what it found.
    """
    program = [sys.executable, "-m", "skipstone_latent_kv.offline", command, str(data_dir)]
    ended = subprocess.run(program, capture_output=True, text=True, check=False)
    if ended.returncode not in (0, _FOUND_PROBLEMS) or not ended.stdout:
        reason = ended.stderr.strip().splitlines() or [f"ended with code {ended.returncode}"]
        fail(reason[-1], EXIT_BAD_INPUT)
    found: dict[str, Any] = json.loads(ended.stdout)
    return ended.returncode, found
