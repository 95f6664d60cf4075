"""The settings of the backend that a service moves to: a file of the same form as its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from skipstone_shared.config import ServiceSettings, resolve_settings
from skipstone_shared.errors import FailedPrecondition

SettingsT = TypeVar("SettingsT", bound=ServiceSettings)


def read_target_settings(
    settings: SettingsT, target_file: Path, place_of: Callable[[SettingsT], object]
) -> SettingsT:
    """Reads the settings of the target, and checks that entries would go somewhere else.

    Args:
        settings: Of the service; they say where the source is.
        target_file: What its setting ``migrate_to`` names.
        place_of: Where entries are with some settings; equal places are one backend.

    Raises:
        ConfigError: The file cannot be read, or a setting in it is wrong.
        FailedPrecondition: It names the source, or itself something to move to.
    """
    target, _ = resolve_settings(type(settings), ["--config", str(target_file)], {})
    if place_of(target) == place_of(settings):
        raise FailedPrecondition(f"migrate_to: {target_file} names the backend that serves already")
    if "migrate_to" in target.model_fields_set:
        raise FailedPrecondition(f"migrate_to: {target_file} itself has migrate_to; take it out")
    return target
