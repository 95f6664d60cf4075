"""Asks every service whether it takes its settings, before any of them is started."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

from skipstone_client._launch_flags import DEPENDENCIES, ClusterError, LaunchFlags
from skipstone_client._service_process import introduced
from skipstone_shared.ports import default_target

_PATIENCE_S = 120.0


class SettingsError(ClusterError):
    """A service does not take its settings; ``service`` is its name."""

    def __init__(self, service: str, message: str) -> None:
        super().__init__(message)
        self.service = service


def check_settings(launch: LaunchFlags, environ: Mapping[str, str]) -> None:
    """Has all services read their settings at the same time; nothing is loaded or opened.

    Args:
        launch: Their flags.
        environ: Their environment.

    Raises:
        SettingsError: One of them refuses; in its own words.
    """
    asked = {service: _ask(service, launch, environ) for service in launch.services}
    refused: list[SettingsError] = []
    for service, process in asked.items():
        try:
            _, words = process.communicate(timeout=_PATIENCE_S)
        except BaseException:  # Ctrl-C too: none of them may be left behind.
            for other in asked.values():
                other.kill()
            raise
        if process.returncode:
            told = words.strip().splitlines() or [f"ended with exit code {process.returncode}"]
            refused.append(SettingsError(service, introduced(service, told[-1])))
    if refused:
        raise refused[0]


def _ask(service: str, launch: LaunchFlags, environ: Mapping[str, str]) -> subprocess.Popen[str]:
    # Where the services it calls will be is known only once they run.
    targets = {name: default_target(name) for name in DEPENDENCIES[service]}
    flags = launch.of(service, targets)
    return subprocess.Popen(
        [sys.executable, "-m", f"skipstone_{service}", *flags, "--print-config"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        env=dict(environ),
    )
