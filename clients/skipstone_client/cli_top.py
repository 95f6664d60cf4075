"""``skipstone top``: what a deployment does right now."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from typing import Annotated

import typer
from rich.live import Live

from skipstone_client.cli_credentials import credentials
from skipstone_client.cli_output import (
    DEFAULT_TARGET,
    EXIT_FAILED,
    JsonOption,
    NamespaceOption,
    TargetOption,
    TimeoutOption,
    errors_in_one_line,
    print_json,
    stdout,
)
from skipstone_client.top.samples import Sampler
from skipstone_client.top.screen import screen
from skipstone_client.top.views import View, view_of
from skipstone_shared.latents import checked_namespace

_HISTORY = 60


def top(
    interval: Annotated[
        float, typer.Option("--interval", min=0.05, max=3600.0, help="Seconds between two looks.")
    ] = 1.0,
    once: Annotated[
        bool, typer.Option("--once", help="Look twice, an interval apart, print that and end.")
    ] = False,
    namespace: NamespaceOption = "",
    target: TargetOption = DEFAULT_TARGET,
    timeout: TimeoutOption = 2.0,
    as_json: JsonOption = False,
) -> None:
    """Shows live what is served and saved, what waits, and how the services are; Ctrl-C ends it.

    Counts are sums over all orchestrators behind the target, which are listed where there are
    several. With --json a line for every interval. Where the output is no terminal it is as with
    --once. With --once it ends with 1 where no orchestrator answers.
    """
    with errors_in_one_line():
        checked_namespace(namespace)
        sampler = Sampler(target, namespace, timeout, credentials())
        with closing(sampler):
            if once or not (as_json or sys.stdout.isatty()):
                _print_once(_views(sampler, target, interval), as_json=as_json)
            else:
                _follow(_views(sampler, target, interval), as_json=as_json)


def _views(sampler: Sampler, target: str, interval_s: float) -> Iterator[View]:
    """A view at once, then one for every interval."""
    before = None
    while True:
        now = sampler.look()
        yield view_of(target, before, now)
        before = now
        time.sleep(interval_s)


def _print_once(views: Iterator[View], *, as_json: bool) -> None:
    view = next(views)
    if not view.error:
        view = next(views)
    if as_json:
        print_json(view)
    else:
        stdout().print(screen(view, ()))
    if view.error:
        raise typer.Exit(EXIT_FAILED)


def _follow(views: Iterator[View], *, as_json: bool) -> None:
    try:
        if as_json:
            for view in views:
                print_json(view)
            return
        rates: deque[float] = deque(maxlen=_HISTORY)
        with Live(console=stdout(), screen=True, auto_refresh=False) as live:
            for view in views:
                if view.lately is not None:
                    rates.append(view.lately.requests_per_s)
                live.update(screen(view, rates), refresh=True)
    except KeyboardInterrupt:
        return  # how one leaves it
