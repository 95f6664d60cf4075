"""The command ``skipstone``: up, generate, warm, explain, stats, top, doctor, entries, kv and more.

This file imports nothing but the standard library, so that a client that was installed without the
command line can say what is missing.
"""

from __future__ import annotations

import sys

_NEEDED = ("typer", "rich", "grpc_health")


def app() -> None:
    """Runs the command line with the arguments of the process."""
    try:
        from skipstone_client.cli_commands import build_app
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _NEEDED:
            raise
        sys.stderr.write(
            f"skipstone: the command line needs the package {package}; "
            "install it with: pip install 'skipstone[cli]'\n"
        )
        raise SystemExit(1) from None
    build_app()()


if __name__ == "__main__":
    app()
