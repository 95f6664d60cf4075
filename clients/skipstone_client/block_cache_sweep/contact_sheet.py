"""All results of a sweep on one page, so that eyes can judge what a number means."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from skipstone_client.block_cache_sweep.drift import frames_of
from skipstone_client.block_cache_sweep.measure import Measured
from skipstone_client.block_cache_sweep.tables import percent, psnr_text
from skipstone_shared.generation import Artifact

_CELL = 192
_CAPTION = 48
_CAPTION_LINES = 3
_GAP = 10
_FONT_SIZE = 12
_COLUMNS = 6


def draw_contact_sheet(path: Path, rows: Sequence[Measured]) -> None:
    """Writes a PNG with every row's first result; of a clip, the first frame.

    Args:
        path: File to write.
        rows: What was measured, in the order of the table, whose numbers are the captions'.
    """
    from PIL import Image, ImageDraw, ImageFont

    columns = min(_COLUMNS, len(rows))
    width, height = _CELL + _GAP, _CELL + _CAPTION + _GAP
    size = (columns * width + _GAP, math.ceil(len(rows) / columns) * height + _GAP)
    sheet = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(_FONT_SIZE)

    def fits(text: str) -> bool:
        return draw.textlength(text, font=font) <= _CELL

    for index, row in enumerate(rows):
        x, y = _GAP + index % columns * width, _GAP + index // columns * height
        sheet.paste(_thumbnail(row.artifact), (x, y))
        caption = [_figures(index + 1, row), *_wrapped(row.setting.label, fits)]
        text = "\n".join(caption[:_CAPTION_LINES])
        draw.multiline_text((x, y + _CELL + 2), text, fill="black", font=font, spacing=2)
    sheet.save(path, "PNG")


def _thumbnail(artifact: Artifact) -> Any:
    from PIL import Image

    picture = Image.fromarray(frames_of(artifact)[0].astype("uint8"))
    scale = _CELL / max(picture.size)
    size = (max(round(picture.width * scale), 1), max(round(picture.height * scale), 1))
    # Pixels of a small picture stay visible as such.
    return picture.resize(size, Image.Resampling.NEAREST if scale > 1 else Image.Resampling.LANCZOS)


def _figures(number: int, row: Measured) -> str:
    return f"{number}  {percent(row.share)}  {psnr_text(row.drift.psnr_db)}"


def _wrapped(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Breaks a text into lines at its spaces, or inside what is too long for a line."""
    lines = [""]
    for word in text.split(" "):
        while not fits(word):
            end = next(end for end in range(len(word), 0, -1) if fits(word[:end]))
            lines.append(word[:end])
            word = word[end:]
        longer = f"{lines[-1]} {word}".lstrip()
        if fits(longer):
            lines[-1] = longer
        else:
            lines.append(word)
    return [line for line in lines if line]
