"""One picture that shows, for every prompt, donor, result and full run side by side."""

from __future__ import annotations

import textwrap

from PIL import Image, ImageDraw, ImageFont

from demo.outcome import Outcome

TILE = 128
"""Width and height of one picture on the sheet, in pixels."""

_MARGIN = 10
_TEXT_WIDTH = 400
_HEADER = 34
_INK = (30, 34, 40)
_FAINT = (110, 118, 128)
_WRONG = (176, 40, 40)
_PAPER = (250, 250, 248)
_GAP = (232, 232, 228)


def contact_sheet(outcomes: list[Outcome]) -> Image.Image:
    """Draws the sheet: one row a prompt, columns donor, result and full run."""
    row = TILE + _MARGIN
    width = _TEXT_WIDTH + 3 * row + _MARGIN
    sheet = Image.new("RGB", (width, _HEADER + row * len(outcomes) + _MARGIN), _PAPER)
    draw = ImageDraw.Draw(sheet)
    for column, title in enumerate(("donor", "result", "full run")):
        draw.text((_TEXT_WIDTH + column * row, 10), title, fill=_FAINT, font=_font(14))
    for index, outcome in enumerate(outcomes):
        top = _HEADER + index * row
        _draw_text(draw, outcome, top)
        # A miss is its own full run.
        full = outcome.full if outcome.is_hit else outcome.picture
        for column, picture in enumerate((outcome.donor, outcome.picture, full)):
            place = (_TEXT_WIDTH + column * row, top)
            if picture is None:
                draw.rectangle((*place, place[0] + TILE, place[1] + TILE), fill=_GAP)
            else:
                sheet.paste(
                    picture.convert("RGB").resize((TILE, TILE), Image.Resampling.NEAREST), place
                )
    return sheet


def _draw_text(draw: ImageDraw.ImageDraw, outcome: Outcome, top: int) -> None:
    provenance = outcome.provenance
    head = f"{outcome.number}. {outcome.prompt.kind.value}"
    if outcome.prompt.change:
        head += f" of {outcome.prompt.change}"
    ran = f"{provenance.executed_steps} of {provenance.num_inference_steps} steps"
    tail = f"{provenance.tier.value}, {ran}, {outcome.seconds:.2f} s"
    draw.text((_MARGIN, top), head, fill=_INK, font=_font(14))
    draw.text((_MARGIN, top + 20), tail, fill=_FAINT, font=_font(12))
    draw.multiline_text(
        (_MARGIN, top + 38),
        "\n".join(textwrap.wrap(outcome.prompt.text, 62)),
        fill=_INK,
        font=_font(12),
    )
    if outcome.judgement.wrong:
        draw.multiline_text(
            (_MARGIN, top + 82),
            "\n".join(textwrap.wrap("wrong: " + ", ".join(outcome.judgement.wrong), 62)),
            fill=_WRONG,
            font=_font(12),
        )


def _font(size: int) -> ImageFont.ImageFont | ImageFont.FreeTypeFont:
    return ImageFont.load_default(size)
