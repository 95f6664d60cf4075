"""What every server tells of itself beside the answer to `GetCapabilities`.

Its version and clock, the room on the disk of its data, and when its certificates end. As trailing
metadata, so that it is the same for all services and in none of their messages. Unlike a health
check, `GetCapabilities` asks for a token where a service has tokens.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from skipstone_shared.certificate_dates import ends_at
from skipstone_shared.config import ServiceSettings

VERSION_KEY = "x-skipstone-version"
"""Metadata key of the version of Skipstone that a service runs."""

CLOCK_KEY = "x-skipstone-clock"
"""Metadata key of a service's clock: seconds since the epoch, with fractions."""

DISK_KEY = "x-skipstone-disk"
"""Metadata key of the file system with a service's data: bytes free to it, a slash, bytes in all;
of several folders the fullest."""

CERTIFICATES_KEY = "x-skipstone-certificates"
"""Metadata key of when certificates end: names of settings, `=`, seconds since the epoch, with
commas between."""

TOLD_WITH = "/GetCapabilities"
"""How the rpcs end that tell them."""

Metadata = tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server has told of itself; empty and None where it did not.

    Attributes:
        version: Its version of Skipstone.
        clock_s: Its clock, seconds since the epoch.
        disk_free_bytes: Bytes free where its data is.
        disk_size_bytes: Bytes that there are.
        certificates_end_s: Setting of a certificate to when it ends, seconds since the epoch.
    """

    version: str = ""
    clock_s: float | None = None
    disk_free_bytes: int | None = None
    disk_size_bytes: int | None = None
    certificates_end_s: Mapping[str, float] = dataclasses.field(default_factory=dict)


def telling(facts: Callable[[], Metadata], behavior: Callable[..., Any]) -> Callable[..., Any]:
    """A synchronous unary behaviour that tells them."""

    def call(request: Any, context: Any) -> Any:
        context.set_trailing_metadata(facts())
        return behavior(request, context)

    return call


def telling_async(
    facts: Callable[[], Metadata], behavior: Callable[..., Awaitable[Any]]
) -> Callable[..., Awaitable[Any]]:
    """An asynchronous unary behaviour that tells them."""

    async def call(request: Any, context: Any) -> Any:
        context.set_trailing_metadata(facts())
        return await behavior(request, context)

    return call


def server_facts(settings: ServiceSettings) -> Metadata:
    """The metadata. Reads the certificates of the settings and asks for the room on the disk."""
    facts = [(VERSION_KEY, _version()), (CLOCK_KEY, f"{time.time():.6f}")]
    usages = list(_disk_usages(settings.data_folders()))
    if usages:
        free, size = min(usages, key=lambda usage: usage[0] / usage[1])
        facts.append((DISK_KEY, f"{free}/{size}"))
    dates = dict(_dates(settings))
    if dates:
        facts.append((CERTIFICATES_KEY, ",".join(f"{n}={at:.0f}" for n, at in dates.items())))
    return tuple(facts)


def read_server_facts(metadata: Mapping[str, str]) -> ServerFacts:
    """What a server has told; what cannot be read is left out."""
    free, _, size = metadata.get(DISK_KEY, "").partition("/")
    has_disk = free.isdecimal() and size.isdecimal()
    dates = {}
    for told in metadata.get(CERTIFICATES_KEY, "").split(","):
        name, _, at = told.partition("=")
        with contextlib.suppress(ValueError):
            dates[name] = float(at)
    clock = None
    with contextlib.suppress(ValueError):
        clock = float(metadata.get(CLOCK_KEY, ""))
    return ServerFacts(
        metadata.get(VERSION_KEY, ""),
        clock,
        int(free) if has_disk else None,
        int(size) if has_disk else None,
        dates,
    )


def certificate_dates(files: Mapping[str, Path | None]) -> Iterator[tuple[str, float]]:
    """Names and when their certificates end; without those that cannot be read.

    Args:
        files: PEM files by name; None: there is none.
    """
    for name, path in files.items():
        if path is not None:
            # A file that is being replaced is read the next time.
            with contextlib.suppress(OSError, ValueError):
                yield name, ends_at(path.read_bytes())


def _dates(settings: ServiceSettings) -> Iterator[tuple[str, float]]:
    names = ("tls_cert_file", "tls_ca_file", "client_tls_cert_file", "client_tls_ca_file")
    yield from certificate_dates({name: getattr(settings, name, None) for name in names})


def _disk_usages(folders: tuple[Path, ...]) -> Iterator[tuple[int, int]]:
    for folder in folders:
        with contextlib.suppress(OSError):
            usage = shutil.disk_usage(folder)
            if usage.total:
                yield usage.free, usage.total


@functools.cache
def _version() -> str:
    return version("skipstone")
