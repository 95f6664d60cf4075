"""``skipstone kv migrate`` and ``skipstone index migrate``: to another backend, while it serves."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.progress import Progress, TaskID, TimeRemainingColumn

from skipstone_client._channel import LATENT_KV, VECTOR_INDEX
from skipstone_client.cli_credentials import credentials
from skipstone_client.cli_kv import IndexTargetOption, KVTargetOption
from skipstone_client.cli_output import (
    EXIT_FAILED,
    JsonOption,
    TimeoutOption,
    bytes_text,
    errors_in_one_line,
    fail,
    print_json,
    seconds_text,
    stdout,
)
from skipstone_client.cli_progress import RateColumn, progress_bar
from skipstone_client.migration_replicas import MigrationReplicas, NotToldToMove
from skipstone_client.migration_run import Move, MoveOptions, Mover
from skipstone_shared.errors import SkipstoneError
from skipstone_shared.migration import MigrationStep
from skipstone_shared.ports import default_target

_KV_TARGET = default_target(LATENT_KV.name)
_INDEX_TARGET = default_target(VECTOR_INDEX.name)
_MIB = 1 << 20
_REFUSED_SHOWN = 20

RateOption = Annotated[
    float,
    typer.Option(
        "--max-mib-per-s",
        min=0.0,
        help="Most MiB copied per second; 0: no bound.",
    ),
]
VerifyOption = Annotated[
    bool,
    typer.Option("--verify", help="Read back all that the target has."),
]
PassesOption = Annotated[
    int, typer.Option("--passes", min=1, help="Passes after which it gives up.")
]
RetryForOption = Annotated[
    float,
    typer.Option("--retry-for", min=0.0, help="Seconds to wait for a side that does not answer."),
]


def migrate_kv(
    target: KVTargetOption = _KV_TARGET,
    max_mib_per_s: RateOption = 0.0,
    verify: VerifyOption = False,
    passes: PassesOption = 10,
    retry_for: RetryForOption = 60.0,
    timeout: TimeoutOption = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Copies what latent_kv stored before to the store of its setting migrate_to; 0 when in step.

    The service goes on serving. Stop and repeat it as you like: it goes on from what is there.
    """
    options = MoveOptions(max_mib_per_s * _MIB, verify, passes, retry_for)
    _migrate(LATENT_KV.name, target, options, timeout, as_json)


def migrate_index(
    target: IndexTargetOption = _INDEX_TARGET,
    max_mib_per_s: RateOption = 0.0,
    passes: PassesOption = 10,
    retry_for: RetryForOption = 60.0,
    timeout: TimeoutOption = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Copies what vector_index has to the engine of its setting migrate_to; 0 when in step.

    The service goes on serving. Stop and repeat it as you like: it goes on from what is there.
    """
    options = MoveOptions(max_mib_per_s * _MIB, False, passes, retry_for)
    _migrate(VECTOR_INDEX.name, target, options, timeout, as_json)


def _migrate(
    service: str, target: str, options: MoveOptions, timeout_s: float, as_json: bool
) -> None:
    bar = progress_bar(RateColumn(), TimeRemainingColumn(), quiet=as_json)
    with (
        errors_in_one_line(),
        MigrationReplicas(target, timeout_s=timeout_s, credentials=credentials()) as replicas,
    ):
        with bar:
            told = _Telling(bar)
            mover = Mover(
                replicas.migrate_entries,
                replicas.get_missed_writes,
                options,
                on_step=told.step,
                on_wait=told.trouble,
            )
            try:
                move = mover.run()
            except NotToldToMove as error:
                fail(
                    f"{service} at {error.target} was not told to move: "
                    "set migrate_to and restart it; or it is of an older version than this "
                    "command: upgrade it"
                )
    if as_json:
        print_json(move)
    else:
        _print(service, move)
    if not move.in_step:
        raise typer.Exit(EXIT_FAILED)


class _Telling:
    """Shows how far the pass is."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task: TaskID | None = None

    def step(self, move: Move, step: MigrationStep) -> None:
        if step.source_entries or self._task is None:  # the first step of a pass
            if self._task is not None:
                self._bar.remove_task(self._task)
            title = f"{step.source} -> {step.target}, pass {move.passes + 1}"
            self._task = self._bar.add_task(title, total=step.source_entries)
        self._bar.update(self._task, completed=move.compared)

    def trouble(self, error: SkipstoneError) -> None:
        sys.stderr.write(f"skipstone: waiting: {error}\n")


def _print(service: str, move: Move) -> None:
    console = stdout()
    for entry in move.refused[:_REFUSED_SHOWN]:
        console.print(
            f"refused {entry.namespace}/{entry.entry_id}: {entry.reason}",
            markup=False,
            soft_wrap=True,
        )
    if len(move.refused) > _REFUSED_SHOWN:
        console.print(f"... and {len(move.refused) - _REFUSED_SHOWN} more (--json shows all)")
    console.print(
        f"{move.source} -> {move.target}: compared {move.compared} entries, copied {move.copied} "
        f"({bytes_text(move.copied_bytes)}), removed {move.removed}, "
        f"in {_passes(move.passes)} and {seconds_text(move.seconds)}",
        soft_wrap=True,
    )
    console.print(_verdict(service, move), soft_wrap=True)


def _verdict(service: str, move: Move) -> str:
    if move.in_step:
        return f"in step: {service} may be restarted with the settings of the target"
    if move.restarted:
        return (
            "not in step: not the same processes answered all through the last pass; "
            f"was {service} restarted, or does the target not name all of them?"
        )
    if move.missed_writes:
        return f"not in step: the target missed {move.missed_writes} writes; see the service's log"
    if move.left:
        return (
            f"not in step: the last pass still copied {move.left} entries; "
            "is the quota of the target smaller than what is stored?"
        )
    return f"not in step: the target cannot take {len(move.refused)} entries"


def _passes(count: int) -> str:
    return "1 pass" if count == 1 else f"{count} passes"
