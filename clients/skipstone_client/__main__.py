"""``python -m skipstone_client`` is ``skipstone``."""

from __future__ import annotations

from skipstone_client.cli import app

app()
