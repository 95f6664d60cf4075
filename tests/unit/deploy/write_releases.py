"""Writes what the chart renders of every release that the tests know, for tools that read files.

Run as ``PYTHONPATH=deploy python -m tests.unit.deploy.write_releases FOLDER``.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import yaml
from tests.unit.deploy.combinations import ALL_RELEASES, any_release


def write(folder: Path) -> None:
    """Writes one file per release, and removes what the folder had before."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # in C, where there is one
    for number, name in enumerate(ALL_RELEASES):
        text = yaml.dump_all(any_release(name), Dumper=dumper)
        (folder / f"{number:02}.yaml").write_text(f"# {name}\n{text}", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
