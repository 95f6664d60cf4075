"""The progress bar of long commands: on stderr, gone when it ends, silent without a terminal."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn


def progress_bar(time: ProgressColumn, *, quiet: bool) -> Progress:
    """A bar with a description, the share done, a count and a time.

    Args:
        time: Column of the time that passed, or that is left.
        quiet: Whether to show nothing.
    """
    console = Console(file=sys.stderr)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        time,
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    )
