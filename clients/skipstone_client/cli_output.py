"""What all commands share: options, errors in one line, numbers for people, JSON for programs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from skipstone_client._channel import ORCHESTRATOR
from skipstone_client.json_values import plain
from skipstone_shared.errors import InvalidArgument, SkipstoneError, Unavailable
from skipstone_shared.ports import DEFAULT_PORTS, default_target

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

_WIDTH_OF_FILES = 1000

DEFAULT_TARGET = default_target(ORCHESTRATOR.name)

TargetOption = Annotated[
    str,
    typer.Option("--target", envvar="SKIPSTONE_TARGET", help="gRPC target of the orchestrator."),
]
NamespaceOption = Annotated[
    str, typer.Option("--namespace", help="Tenant or pool; empty means default.")
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=0.001, max=86_400.0, help="Deadline in seconds.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Ends the program with one line on stderr and a fitting exit code."""
    try:
        yield
    except Unavailable as error:
        is_absent = error.stage in DEFAULT_PORTS and "connect" in error.message
        fail(f"{error}; is it running? (skipstone up starts it)" if is_absent else str(error))
    except SkipstoneError as error:
        bad_input = isinstance(error, InvalidArgument)
        fail(str(error), EXIT_BAD_INPUT if bad_input else EXIT_FAILED)
    except UnicodeEncodeError as error:
        fail(f"{error.object!r} is not valid UTF-8", EXIT_BAD_INPUT)
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def fail(message: str, code: int = EXIT_FAILED) -> NoReturn:
    """Prints one line on stderr and ends the program."""
    sys.stderr.write(f"skipstone: {' '.join(message.split())}\n")
    raise typer.Exit(code)


def print_json(value: Any) -> None:
    """Prints a value as one line of JSON, at once: a program at the other end may wait for it."""
    # In one call, so that the lines of several threads stay whole.
    sys.stdout.write(json.dumps(plain(value), ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_facts(console: Console, rows: Mapping[str, str | Text]) -> None:
    """Prints names and values, one pair a line; pairs without a value are left out."""
    console.print(facts_text(rows), soft_wrap=True)


def facts_text(rows: Mapping[str, str | Text]) -> Text:
    """Names and values, one pair a line; pairs without a value are left out."""
    width = max(map(len, rows))
    lines = [
        Text().append(f"{name:<{width}}  ", style="dim").append(value)
        for name, value in rows.items()
        if value
    ]
    return Text("\n").join(lines)


def stdout() -> Console:
    """Where answers go: as wide as the terminal, and never cut when it is none."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH_OF_FILES)


def table_of(*columns: str) -> Table:
    """A plain table; its cells are not cut, but for those of columns that allow it."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=True)
    return table


def seconds_text(seconds: float) -> str:
    """A duration for people: ``850 ms``, ``12.3 s``."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1.0 else f"{seconds:.1f} s"


def bytes_text(size: int) -> str:
    """A number of bytes for people; negative means unknown."""
    if size < 0:
        return "unknown"
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def time_text(seconds_since_epoch: float) -> str:
    """A point in time in the local time zone; empty when it is not known."""
    if not seconds_since_epoch:
        return ""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds_since_epoch))


def share_text(part: int, whole: int) -> str:
    """A share for people: ``40 %``."""
    return f"{100 * part / whole:.0f} %" if whole else "0 %"
