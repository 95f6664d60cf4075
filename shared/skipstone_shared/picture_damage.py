"""What a decoder raises for a damaged picture, beside what says that there is none."""

from __future__ import annotations

import struct
from typing import Final

PICTURE_DAMAGE: Final = (ValueError, EOFError, IndexError, OverflowError, struct.error)
"""What damaged chunks of text, colour profiles and the like make Pillow raise."""
