"""Generates the Python stubs beside their protos, or checks that they are up to date.

Usage:
    python protos/generate.py            write *_pb2.py, *_pb2_grpc.py and their .pyi files
    python protos/generate.py --check    fail when a committed stub differs from its proto

`protos/` is the import root, so the generated imports (`from skipstone.latent.v1 import
latent_pb2`) need no patching. `google/rpc` protos come from third_party/; their Python modules from
the installed googleapis-common-protos.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent
THIRD_PARTY = ROOT.parent / "third_party" / "googleapis"
STUB_PATTERNS = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")


def find_protos() -> list[Path]:
    """Returns every proto of ours, relative to the import root, sorted."""
    return sorted(path.relative_to(ROOT) for path in ROOT.glob("skipstone/**/*.proto"))


def generate(out: Path) -> None:
    """Writes the stubs of every proto under `out`.

    Raises:
        SystemExit: protoc refused a proto; its message is already on stderr.
    """
    protos = find_protos()
    if not protos:
        raise SystemExit(f"no protos found under {ROOT}/skipstone")
    # protoc looks for the mypy plugins on PATH; they live beside this interpreter.
    scripts = str(Path(sys.executable).parent)
    os.environ["PATH"] = scripts + os.pathsep + os.environ.get("PATH", "")
    code = protoc.main(
        [
            "protoc",
            f"-I{ROOT}",
            f"-I{THIRD_PARTY}",
            f"-I{Path(grpc_tools.__file__).parent / '_proto'}",
            f"--python_out={out}",
            f"--grpc_python_out={out}",
            f"--mypy_out=quiet:{out}",
            f"--mypy_grpc_out=quiet:{out}",
            *map(str, protos),
        ]
    )
    if code != 0:
        raise SystemExit(code)
    add_packages(out, protos)


def add_packages(out: Path, protos: list[Path]) -> None:
    """Gives every package directory an `__init__.py` and the root its `py.typed` marker."""
    directories = {parent for proto in protos for parent in proto.parents if parent != Path()}
    for directory in sorted(directories):
        name = ".".join(directory.parts)
        (out / directory / "__init__.py").write_text(f'"""Generated stubs of `{name}`."""\n')
    (out / "skipstone" / "py.typed").touch()


def list_stubs(root: Path) -> dict[Path, bytes]:
    """Returns the bytes of every generated file under `root` by relative path."""
    patterns = (*STUB_PATTERNS, "__init__.py", "py.typed")
    paths = (path for pattern in patterns for path in root.glob(f"skipstone/**/{pattern}"))
    return {path.relative_to(root): path.read_bytes() for path in paths}


def find_drift() -> list[str]:
    """Returns one line for each stub that is missing, stale or has lost its proto."""
    with tempfile.TemporaryDirectory() as directory:
        generate(Path(directory))
        wanted = list_stubs(Path(directory))
    present = list_stubs(ROOT)
    missing = [f"missing: {path}" for path in wanted.keys() - present.keys()]
    orphans = [f"no proto: {path}" for path in present.keys() - wanted.keys()]
    stale = [f"stale: {p}" for p in wanted.keys() & present.keys() if wanted[p] != present[p]]
    return sorted(missing + orphans + stale)


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description="Generate the Python stubs beside their protos.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    if not parser.parse_args().check:
        generate(ROOT)
        return 0
    drift = find_drift()
    for line in drift:
        print(line, file=sys.stderr)
    if drift:
        print("stubs differ from their protos: run `make proto`", file=sys.stderr)
    return 1 if drift else 0


if __name__ == "__main__":
    sys.exit(main())
