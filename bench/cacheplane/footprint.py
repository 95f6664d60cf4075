"""What an entry takes beside its latents: the per-entry cost that capacity is planned with."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from cacheplane.entries import STEPS, Sizes, latents
from cacheplane.figures import print_figure
from cacheplane.services import running


def measure_footprint(directory: Path, sizes: Sizes) -> None:
    """Bytes per entry in the memory of each service, and in its directory."""
    with running(directory) as plane:
        plane.store.get_stats()
        plane.index.get_stats()
        full = {service: _anonymous_bytes(pid) for service, pid in plane.pids.items()}
    with tempfile.TemporaryDirectory() as empty, running(Path(empty)) as plane:
        plane.store.get_stats()
        plane.index.get_stats()
        bare = {service: _anonymous_bytes(pid) for service, pid in plane.pids.items()}
    disk = {service: _disk_bytes(directory / service) for service in full}
    disk["latent_kv"] -= _latent_bytes(sizes)
    memory = {service: full[service] - bare[service] for service in full}
    for where, found in (("memory", memory), ("disk", disk)):
        _print(sizes, where, found)


def _print(sizes: Sizes, where: str, found: Mapping[str, int]) -> None:
    for service, size_bytes in found.items():
        per_entry = size_bytes / sizes.entries
        print_figure("entry_bytes", sizes.entries, 0, [per_entry], service=service, where=where)


def _anonymous_bytes(pid: int) -> int:
    """Memory of a process without the files it has mapped, which the system may drop."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


def _disk_bytes(directory: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


def _latent_bytes(sizes: Sizes) -> int:
    measured = sum(sizes.measured * latents(0, mb).nbytes for mb in sizes.mbs)
    small = sizes.entries * len(STEPS) - sizes.measured * len(sizes.mbs)
    return measured + small * latents(0, None).nbytes
