"""The page that shows the demo's pictures, what was saved and where every picture comes from."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import jinja2
from PIL import Image

from demo.outcome import Outcome, Totals

_TEMPLATE = Path(__file__).parent / "report.html.j2"


def report_html(outcomes: list[Outcome]) -> str:
    """The page as one self-contained file: pictures are inside it."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["data_uri"] = data_uri
    template = environment.from_string(_TEMPLATE.read_text())
    return template.render(outcomes=outcomes, totals=Totals.of(outcomes))


def data_uri(picture: Image.Image) -> str:
    """A picture as a PNG inside an address."""
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
