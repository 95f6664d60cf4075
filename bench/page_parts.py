"""Parts of documentation pages that benchmarks write: what is between two comments of the page."""

from __future__ import annotations

from pathlib import Path


def replace_part(page: Path, name: str, part: str) -> None:
    """Replaces the text between ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"{page} has no part {name}")
    page.write_text(f"{before}{begin}\n{part}\n{end}{after}", encoding="utf-8")
