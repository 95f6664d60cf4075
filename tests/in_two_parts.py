"""Runs the tests in two processes: those with servers wait more than they compute.

`python -m tests.in_two_parts PYTEST-OPTIONS` runs contract and end-to-end tests here and all others
beside them, tells what the others printed when both are done, and fails if either does.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
WITH_SERVERS = (HERE / "contract", HERE / "e2e")


def main(options: list[str]) -> int:
    """Runs both parts.

    Args:
        options: For pytest.

    Returns:
        The first exit status that is no success, else 0.
    """
    pytest = [sys.executable, "-m", "pytest", *options]
    others = [str(HERE), *(f"--ignore={folder}" for folder in WITH_SERVERS)]
    with tempfile.TemporaryFile() as told, contextlib.ExitStack() as running:
        # Without the cache, which both would write.
        beside = subprocess.Popen(
            [*pytest, "-p", "no:cacheprovider", *others], stdout=told, stderr=subprocess.STDOUT
        )
        running.callback(beside.terminate)
        here = subprocess.run([*pytest, *map(str, WITH_SERVERS)], check=False)
        statuses = here.returncode, beside.wait()
        told.seek(0)
        sys.stdout.buffer.write(told.read())
    return next((status for status in statuses if status), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
