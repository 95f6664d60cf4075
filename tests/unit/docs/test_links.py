"""A reader who follows a link finds what it promises."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_SKIPPED = {"out", "node_modules"}


def _documents() -> list[Path]:
    found = (path.relative_to(ROOT) for path in ROOT.rglob("*.md"))
    return sorted(path for path in found if not any(map(_is_skipped, path.parts)))


def _is_skipped(part: str) -> bool:
    return part in _SKIPPED or part.startswith(".")


def _anchor(heading: str) -> str:
    """The anchor of a heading, as code hosts make it."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


@pytest.mark.parametrize("document", _documents(), ids=str)
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    for link in _LINK.findall((ROOT / document).read_text()):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = ROOT / document.parent / path if path else ROOT / document
        assert target.exists(), f"{document} links to {link}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            assert anchor in map(_anchor, headings), f"{document} links to {link}"
