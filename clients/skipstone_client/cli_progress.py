"""The progress bar of long commands: on stderr, gone when it ends, silent without a terminal."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
)
from rich.text import Text


def progress_bar(*columns: ProgressColumn, quiet: bool) -> Progress:
    """A bar with a description, the share done, a count and more columns.

    Args:
        columns: Of the time that passed, or that is left, and perhaps of the rate.
        quiet: Whether to show nothing.
    """
    console = Console(file=sys.stderr)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *columns,
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    )


class RateColumn(ProgressColumn):
    """How many a second, or how long each takes where that is longer."""

    def render(self, task: Task) -> Text:
        """The rate lately; nothing before the first."""
        speed = task.finished_speed or task.speed
        if not speed:
            return Text("")
        return Text(f"{speed:.1f}/s" if speed >= 1.0 else f"{1 / speed:.1f} s each")
