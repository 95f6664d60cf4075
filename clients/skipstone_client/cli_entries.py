"""``skipstone entries``: list, show and delete what can be reused."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from skipstone_client.cli_credentials import credentials
from skipstone_client.cli_output import (
    DEFAULT_TARGET,
    JsonOption,
    NamespaceOption,
    TargetOption,
    TimeoutOption,
    bytes_text,
    errors_in_one_line,
    print_facts,
    print_json,
    stdout,
    table_of,
    time_text,
)
from skipstone_client.orchestrator import OrchestratorClient
from skipstone_shared.latents import LatentRef
from skipstone_shared.orchestration import Entry

_PAGE_SIZE = 500


def list_entries(
    limit: Annotated[int, typer.Option(min=1, help="Most entries to list.")] = 100,
    namespace: NamespaceOption = "",
    target: TargetOption = DEFAULT_TARGET,
    timeout: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Lists entries that can be reused, oldest first."""
    with (
        errors_in_one_line(),
        OrchestratorClient(target, timeout_s=timeout, credentials=credentials()) as client,
    ):
        entries, more = _fetch(client, namespace, limit)
    if as_json:
        print_json({"entries": entries, "has_more": more})
        return
    console = stdout()
    if not entries:
        console.print("no entries")
        return
    console.print(_entries_table(entries))
    if more:
        console.print(f"there are more than {limit}; raise --limit", style="dim")


def show_entry(
    entry_id: Annotated[str, typer.Argument(help="Id of the entry.")],
    namespace: NamespaceOption = "",
    target: TargetOption = DEFAULT_TARGET,
    timeout: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Shows one entry and its snapshots."""
    with (
        errors_in_one_line(),
        OrchestratorClient(target, timeout_s=timeout, credentials=credentials()) as client,
    ):
        entry = client.get_entry(entry_id, namespace)
    if as_json:
        print_json(entry)
        return
    console = stdout()
    print_facts(
        console,
        {
            "entry": entry.entry_id,
            "prompt": entry.prompt,
            "seed": str(entry.seed),
            "depth": str(entry.depth),
            "saved": time_text(entry.create_time),
            "compatibility": entry.compatibility_key,
        },
    )
    console.print()
    console.print(_snapshots_table(entry.snapshots))


def delete_entries(
    entry_ids: Annotated[list[str], typer.Argument(help="Ids of the entries.")],
    namespace: NamespaceOption = "",
    target: TargetOption = DEFAULT_TARGET,
    timeout: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Deletes entries with their latents. One that is not there is no error."""
    with (
        errors_in_one_line(),
        OrchestratorClient(target, timeout_s=timeout, credentials=credentials()) as client,
    ):
        existed = client.delete_entries(entry_ids, namespace)
    if as_json:
        print_json(dict(zip(entry_ids, existed, strict=True)))
        return
    console = stdout()
    for entry_id, was_there in zip(entry_ids, existed, strict=True):
        console.print(Text(f"{entry_id} {'deleted' if was_there else 'was not there'}"))


def _fetch(client: OrchestratorClient, namespace: str, limit: int) -> tuple[list[Entry], bool]:
    """Up to `limit` entries, and whether there are more."""
    entries: list[Entry] = []
    token = ""
    while len(entries) < limit:
        page_size = min(_PAGE_SIZE, limit - len(entries))
        page = client.list_entries(namespace, page_size, token)
        entries.extend(page.entries)
        token = page.next_page_token
        if not token:
            break
    return entries, bool(token)


def _entries_table(entries: list[Entry]) -> Table:
    rows = [
        (
            entry.entry_id,
            time_text(entry.create_time),
            str(entry.seed),
            bytes_text(sum(ref.size_bytes for ref in entry.snapshots)),
        )
        for entry in entries
    ]
    table = table_of("entry", "saved", "seed", "size")
    # An id that is cut cannot be shown or deleted; a prompt may be.
    for column, cells in zip(table.columns, zip(*rows, strict=True), strict=True):
        column.min_width = max(map(len, (str(column.header), *cells)))
    table.add_column("prompt", overflow="ellipsis", no_wrap=True)
    for row, entry in zip(rows, entries, strict=True):
        table.add_row(*row, Text(entry.prompt))
    return table


def _snapshots_table(snapshots: tuple[LatentRef, ...]) -> Table:
    table = table_of("step", "sigma", "shape", "dtype", "size", "checksum")
    for ref in snapshots:
        spec = ref.spec
        table.add_row(
            str(ref.step_index),
            f"{ref.sigma:.4f}",
            "x".join(map(str, spec.shape)) if spec else "",
            spec.dtype.value if spec else "",
            bytes_text(ref.size_bytes),
            f"{ref.xxh3_64:016x}",
        )
    return table
