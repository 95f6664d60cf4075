"""Fuzzes targets, guided by what code they reach.

    python -m tests.fuzz --seconds 600              # all targets in one process
    python -m tests.fuzz messages --seconds 600     # one of them
    python -m tests.fuzz all --input crash-0123     # runs a finding again

Findings are written to `--findings` as `crash-...`; the exit code is 77 then, 0 without one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import atheris

_OURS = ["skipstone_client", "skipstone_latent_kv", "skipstone_shared", "skipstone_vector_index"]
with atheris.instrument_imports(include=_OURS):
    from tests.fuzz.targets import TARGETS, any_target, seeds

_LARGEST_INPUT = 4096
_EXIT_FINDING = 77


def main() -> int:
    """Fuzzes, or runs one input again; returns only in the second case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("target", nargs="?", default="all", choices=["all", *TARGETS])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0, help="0: another one every time")
    parser.add_argument("--findings", type=Path, default=Path("out/fuzz"))
    parser.add_argument(
        "--corpus", type=Path, help="keeps what reaches new code, for the next time"
    )
    parser.add_argument("--input", type=Path)
    arguments = parser.parse_args()
    run = any_target if arguments.target == "all" else TARGETS[arguments.target]
    if arguments.input is not None:
        run(arguments.input.read_bytes())
        return 0
    arguments.findings.mkdir(parents=True, exist_ok=True)
    corpus = arguments.corpus or Path(tempfile.mkdtemp(prefix="skipstone-corpus-"))
    _write_seeds(corpus, arguments.target)
    atheris.Setup(
        [
            sys.argv[0],
            str(corpus),
            f"-max_total_time={arguments.seconds}",
            f"-seed={arguments.seed}",
            f"-max_len={_LARGEST_INPUT}",
            f"-artifact_prefix={arguments.findings}/",
            f"-error_exitcode={_EXIT_FINDING}",
            "-print_final_stats=1",
            "-timeout=10",
            "-rss_limit_mb=4096",
        ],
        run,
    )
    atheris.Fuzz()
    return 0


def _write_seeds(corpus: Path, target: str) -> None:
    corpus.mkdir(parents=True, exist_ok=True)
    for number, (name, inputs) in enumerate(seeds().items()):
        if target not in ("all", name):
            continue
        chooses = bytes([number]) if target == "all" else b""
        for index, data in enumerate(inputs):
            (corpus / f"seed-{name}-{index}").write_bytes(chooses + data)


if __name__ == "__main__":
    sys.exit(main())
