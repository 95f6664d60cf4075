"""The tables of docs/benchmarks.md from the lines of `bench_cacheplane.py`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from page_parts import replace_part

PAGE: Final = Path("docs/benchmarks.md")
_OURS: Final = "Skipstone, over gRPC"
_LIMITS: Final = ("gRPC stream", "LMDB", "memcpy")
_BESIDE: Final = 10_000
"""Entries at which limits and rivals are shown."""
_WHOSE: Final = ("limit", "rival")

Line = dict[str, Any]


def draw(lines: Sequence[Line]) -> None:
    """Puts all tables into the page."""
    replace_part(PAGE, "cacheplane costs", _costs(lines))
    replace_part(PAGE, "cacheplane reads", _reads(lines))
    replace_part(PAGE, "cacheplane rivals", _rivals(lines))
    replace_part(PAGE, "cacheplane index", _index(lines))


def _costs(lines: Sequence[Line]) -> str:
    """CPU and wall of hits and saves by size and number of entries."""
    counts = _counts(lines)
    rows = [["", "MB", *(f"{count:,} entries" for count in counts)]]
    for label, figure in (("hit", "hit"), ("miss", "miss"), ("save of five steps", "save")):
        # A miss moves no latents, so one of the sizes beside which it was measured tells all.
        sizes = _sizes(lines) if figure != "miss" else _sizes(lines)[:1]
        for mb in sizes:
            cells = [_cost(lines, figure, count, mb) for count in counts]
            rows.append([label, f"{mb:g}" if figure != "miss" else "", *cells])
            label = ""
    return _table(rows)


def _reads(lines: Sequence[Line]) -> str:
    """Reads beside what nothing can beat."""
    rows = [["MB", "read", *_LIMITS, "read over gRPC stream: wall", "CPU"]]
    for mb in _sizes(lines):
        beside = [_cost(lines, "read", _BESIDE, mb, limit=limit) for limit in _LIMITS]
        wall = _found(lines, "read_ratio_to_echo", _BESIDE, mb)
        cpu = _found(lines, "read_cpu_ratio_to_echo", _BESIDE, mb)
        ratios = [
            f"{wall['p50']:.2f} ({wall['p25']:.2f} to {wall['p75']:.2f})",
            f"{cpu['p50']:.2f}",
        ]
        rows.append([f"{mb:g}", _cost(lines, "read", _BESIDE, mb), *beside, *ratios])
    return _table(rows)


def _rivals(lines: Sequence[Line]) -> str:
    """Hits and saves beside what people use."""
    names = sorted({line["rival"] for line in lines if "rival" in line})
    rows = [["", "MB", _OURS, *names]]
    for label, figure in (("hit", "hit"), ("save of five steps", "save")):
        for mb in _sizes(lines):
            cells = [_cost(lines, figure, _BESIDE, mb, rival=name) for name in names]
            rows.append([label, f"{mb:g}", _cost(lines, figure, _BESIDE, mb), *cells])
            label = ""
    return _table(rows)


def _index(lines: Sequence[Line]) -> str:
    """Searches, recall and starts by number of entries."""
    counts = _counts(lines)
    rows = [["", *(f"{count:,} entries" for count in counts)]]
    for label, figure in (
        ("search, ms", "search_wall_ms"),
        ("search less raw hnswlib, ms", "search_overhead_ms"),
        ("recall@10 (worst 1 %)", "recall_at_10"),
        ("killed services to the first right hit, s", "startup_s"),
    ):
        found = [_found(lines, figure, count, 0) for count in counts]
        rows.append([label, *(f"{line['p50']:g} ({line['p99']:g})" for line in found)])
    return _table(rows)


def _cost(lines: Sequence[Line], figure: str, entries: int, mb: float, **of: str) -> str:
    cpu = _found(lines, f"{figure}_cpu_ms", entries, mb, **of)
    wall = _found(lines, f"{figure}_wall_ms", entries, mb, **of)
    spread = f"{_short(cpu['p25'])} to {_short(cpu['p75'])}"
    return f"**{_short(cpu['p50'])}** ({spread}) / {_short(wall['p50'])}"


def _found(lines: Iterable[Line], figure: str, entries: int, mb: float, **of: str) -> Line:
    wanted: Line = {"figure": figure, "entries": entries, "mb": mb} | of
    for line in lines:
        if all(line.get(key) == wanted.get(key) for key in ("figure", "entries", "mb", *_WHOSE)):
            return line
    raise SystemExit(f"no such line was measured: {wanted}")


def _counts(lines: Iterable[Line]) -> list[int]:
    return sorted({line["entries"] for line in lines})


def _sizes(lines: Iterable[Line]) -> list[float]:
    return sorted({line["mb"] for line in lines if line["figure"] == "hit_cpu_ms"})


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])
