"""The pipeline file that TeleFuser serves: ``PPL_CONFIG`` and ``CACHE_CONFIG`` in it."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from skipstone_shared.errors import InvalidArgument


@dataclasses.dataclass(frozen=True, slots=True)
class PipelineFile:
    """What a pipeline file says.

    Attributes:
        ppl_config: Its ``PPL_CONFIG``; None when it has none.
        cache_config: Its ``CACHE_CONFIG``; None when it has none.
    """

    ppl_config: Mapping[str, Any] | None
    cache_config: object


def read_pipeline_file(path: str | Path | None) -> PipelineFile:
    """Reads a pipeline file, as the module that is loaded already where there is one.

    Raises:
        InvalidArgument: there is no such file, it cannot be run, or it says something else.
    """
    if path is None:
        raise InvalidArgument("no pipeline file is given", field="ppl_file")
    module = _loaded(Path(path)) or _run(Path(path))
    ppl_config = getattr(module, "PPL_CONFIG", None)
    if ppl_config is not None and not isinstance(ppl_config, Mapping):
        raise InvalidArgument(
            f"PPL_CONFIG of {path} is a {type(ppl_config).__name__}",
            field="PPL_CONFIG",
            allowed="a dict",
        )
    return PipelineFile(ppl_config, getattr(module, "CACHE_CONFIG", None))


def _loaded(path: Path) -> ModuleType | None:
    """The host loads the file before it asks for a cache; a second run could load models."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and Path(file).resolve() == path.resolve():
            return module
    return None


def _run(path: Path) -> ModuleType:
    if not path.is_file():
        raise InvalidArgument(f"there is no pipeline file {path}", field="ppl_file")
    spec = importlib.util.spec_from_file_location("skipstone_telefuser_pipeline", path)
    if spec is None or spec.loader is None:
        raise InvalidArgument(f"{path} is no Python file", field="ppl_file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        # Code of the user's own: whatever it raises, the host's start must name the file.
        raise InvalidArgument(f"{path} cannot be run: {error!r}", field="ppl_file") from error
    return module
