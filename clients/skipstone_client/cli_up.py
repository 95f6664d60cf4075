"""``skipstone up``: all services on this machine, one log view, a clean stop."""

from __future__ import annotations

import contextlib
import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.text import Text

from skipstone_client.cli_output import (
    EXIT_BAD_INPUT,
    EXIT_INTERRUPTED,
    JsonOption,
    fail,
    print_json,
    seconds_text,
    stdout,
)
from skipstone_client.json_values import plain
from skipstone_client.local_cluster import (
    ClusterError,
    ClusterEvent,
    LocalCluster,
    LogLine,
    ServiceDied,
    ServiceReady,
    SettingsError,
)
from skipstone_shared.ports import DEFAULT_PORTS

_COLOURS = {
    "embedding": "magenta",
    "vector_index": "blue",
    "latent_kv": "cyan",
    "denoise": "yellow",
    "orchestrator": "green",
    "gateway": "bright_blue",
}
_NAME_WIDTH = max(map(len, DEFAULT_PORTS))
_LEVEL_STYLES = {"warning": "yellow", "error": "red", "critical": "bold red"}
_LEVELS = ("debug", "info", "warning", "error")
_HIDDEN = ("timestamp", "level", "event", "service", "logger", "exception")
_ID_WIDTH = 8
_SIGNAL_POLL_S = 0.2


def up(
    config: Annotated[
        Path | None,
        typer.Option("--config", envvar="SKIPSTONE_CONFIG", help="TOML file for all services."),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where services keep data; else as configured, or out/data.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model folder or id; else the executor's configured one.")
    ] = None,
    free_ports: Annotated[
        bool, typer.Option("--free-ports", help="Let every service take any free port.")
    ] = False,
    gateway: Annotated[
        bool,
        typer.Option("--gateway/--no-gateway", help="Serve HTTP and the web page too."),
    ] = True,
    restart: Annotated[
        bool, typer.Option("--restart/--no-restart", help="Start a service again that died.")
    ] = True,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="SERVICE.FIELD=VALUE", help="Any setting of a service; repeatable."
        ),
    ] = None,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        typer.Option(help="Least important event that is shown."),
    ] = "info",
    ready_timeout: Annotated[
        float, typer.Option(min=1.0, help="Seconds all services have to get ready.")
    ] = 180.0,
    as_json: JsonOption = False,
) -> None:
    """Starts all services on this machine; Ctrl-C stops them.

    The services listen on their configured ports and log into one view. When one dies the others go
    on, and it is started again.
    """
    if not gateway and any(setting.startswith("gateway.") for setting in settings or ()):
        fail("--set gateway....: --no-gateway leaves the gateway out", EXIT_BAD_INPUT)
    view = JsonView() if as_json else LogView(stdout(), log_level)
    try:
        cluster = LocalCluster(
            data_dir,
            config=config,
            model=model,
            flags=_service_flags(settings or [], log_level),
            free_ports=free_ports,
            gateway=gateway,
            restart=restart,
            on_event=view.show,
            ready_timeout_s=ready_timeout,
        )
        if settings or cluster.is_configured:  # Defaults need no look, which takes a second or two.
            cluster.check_settings()
    except SettingsError as error:
        fail(_as_typed(error, settings or []), EXIT_BAD_INPUT)
    except ClusterError as error:
        fail(str(error), EXIT_BAD_INPUT)
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    _run(cluster, view)


def _run(cluster: LocalCluster, view: LogView | JsonView) -> None:
    # The end of the terminal and a polite kill stop the services like Ctrl-C does.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        view.say("starting")
        cluster.start()
    except ClusterError as error:
        fail(str(error))
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    try:
        view.say_ready(cluster.targets, cluster.web_address)
        _wait_for_ever()
    except KeyboardInterrupt:
        view.say("stopping; press Ctrl-C again to stop at once")
    finally:
        try:
            cluster.stop()
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None
    view.say("stopped")


def _wait_for_ever() -> None:
    # Python runs signal handlers in the main thread only, and the kernel may give a signal to
    # another one without waking this: seen for Ctrl-C right after "ready".
    while True:
        time.sleep(_SIGNAL_POLL_S)


def _service_flags(settings: list[str], log_level: str) -> dict[str, list[str]]:
    """Flags per service out of ``service.field=value``."""
    # The cluster learns from an info event that a service listens; the view hides what is below
    # the level that was asked for.
    level = "debug" if log_level == "debug" else "info"
    flags = {name: ["--log-level", level] for name in DEFAULT_PORTS}
    for setting in settings:
        name, equals, value = setting.partition("=")
        service, dot, field = name.partition(".")
        if not (equals and dot and field) or service not in flags:
            services = ", ".join(DEFAULT_PORTS)
            fail(
                f"--set: {setting!r} is not SERVICE.FIELD=VALUE (services: {services})",
                EXIT_BAD_INPUT,
            )
        flag = field.replace("_", "-")
        if value.lower() in ("true", "false"):
            flags[service].append(f"--{flag}" if value.lower() == "true" else f"--no-{flag}")
        else:
            flags[service].append(f"--{flag}={value}")
    return flags


def _as_typed(error: SettingsError, settings: list[str]) -> str:
    """The words of a service about a flag, with the ``--set`` that stands behind it."""
    for setting in settings:
        name = setting.partition("=")[0]
        service, _, field = name.partition(".")
        flag = field.replace("_", "-")
        words = re.split(r"[\s:,=]+", str(error))
        if service == error.service and {f"--{flag}", f"--no-{flag}"} & set(words):
            return f"--set {name}: {error}"
    return str(error)


class LogView:
    """The log lines of all services, one after the other, for people."""

    def __init__(self, console: Console, log_level: str) -> None:
        """Creates the view.

        Args:
            console: Where it writes.
            log_level: Least important level that is shown.
        """
        self._console = console
        self._shown_levels = _LEVELS[_LEVELS.index(log_level) :]

    def say(self, text: str) -> None:
        """Something about all services."""
        self._print("skipstone", Text(text))

    def say_ready(self, targets: Mapping[str, str], web_address: str) -> None:
        """All services serve."""
        target = targets["orchestrator"]
        self._print("skipstone", Text(f"ready: orchestrator at {target}", style="bold"))
        if web_address:
            self.say(f"web page and HTTP: {web_address}")
        option = (
            "" if target.endswith(f":{DEFAULT_PORTS['orchestrator']}") else f" --target {target}"
        )
        prompt = "a large red circle in the center, gray background"
        self.say(f'try: skipstone generate "{prompt}"{option}')

    def show(self, event: ClusterEvent) -> None:
        """One event; called from several threads."""
        match event:
            case LogLine(service, text, None):
                self._print(service, Text(text))
            case LogLine(service, _, fields) if fields is not None:
                if self._is_shown(fields):
                    self._print(service, log_text(fields))
            case ServiceReady(service, target, seconds):
                text = f"ready at {target} after {seconds_text(seconds)}"
                self._print(service, Text(text, style="bold"))
            case ServiceDied(service, reason, pause_s):
                then = "stays down" if pause_s is None else f"starts again in {pause_s:g} s"
                text = f"died ({reason}) and {then}; the others go on"
                self._print(service, Text(text, style="bold red"))

    def _is_shown(self, fields: Mapping[str, Any]) -> bool:
        # The orchestrator asks every service every few seconds whether it is there.
        if _method(fields) == "GetCapabilities" and fields.get("code") == "OK":
            return "debug" in self._shown_levels
        return fields.get("level", "info") in self._shown_levels

    def _print(self, service: str, text: Text) -> None:
        # Appended, since a style given to the first Text would colour the whole line.
        line = Text().append(f"{service:<{_NAME_WIDTH}} | ", style=_COLOURS.get(service, "bold"))
        with contextlib.suppress(OSError):  # the terminal is gone; the services still have to stop
            self._console.print(line.append_text(text), soft_wrap=True)


class JsonView:
    """The same for programs: one JSON object a line."""

    def say(self, text: str) -> None:
        """Something about all services."""
        self._print({"service": "skipstone", "event": text})

    def say_ready(self, targets: Mapping[str, str], web_address: str) -> None:
        """All services serve."""
        self._print(
            {
                "service": "skipstone",
                "event": "ready",
                "targets": targets,
                "web_address": web_address,
            }
        )

    def show(self, event: ClusterEvent) -> None:
        """One event; called from several threads."""
        match event:
            case LogLine(service, text, fields):
                self._print(fields if fields is not None else {"service": service, "text": text})
            case ServiceReady():
                self._print({"event": "service ready", **plain(event)})
            case ServiceDied():
                self._print({"event": "service died", **plain(event)})

    def _print(self, value: Any) -> None:
        with contextlib.suppress(OSError):  # as in LogView
            print_json(value)


def log_text(fields: Mapping[str, Any]) -> Text:
    """A log line for people: time, event, then what is special about it."""
    style = _LEVEL_STYLES.get(str(fields.get("level", "info")), "")
    text = Text().append(str(fields.get("timestamp", ""))[11:19] + " ", style="dim")
    method = _method(fields)
    if fields.get("event") == "rpc" and method:
        took = f"{fields.get('duration_ms', 0):.0f} ms"
        text.append(f"{method} {fields.get('code')} in {took}", style=style)
        rest = {k: v for k, v in fields.items() if k not in ("rpc", "code", "duration_ms")}
    else:
        text.append(str(fields.get("event", "")), style=style)
        rest = dict(fields)
    for name, value in rest.items():
        if name not in _HIDDEN:
            shown = str(value)[:_ID_WIDTH] if name == "request_id" else str(value)
            text.append(f" {name}=", style="dim").append(shown)
    if "exception" in fields:
        text.append(f"\n{fields['exception']}", style="red")
    return text


def _method(fields: Mapping[str, Any]) -> str:
    """The rpc a line is about, without its service; empty when it is about none."""
    return str(fields.get("rpc", "")).rpartition("/")[2]
