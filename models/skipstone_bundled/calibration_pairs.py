"""Pairs of captions for `skipstone calibrate`, and the judge of their pictures.

    PYTHONPATH=models python -m skipstone_bundled.calibration_pairs > pairs.csv
    PYTHONPATH=models skipstone calibrate pairs.csv \
        --checker skipstone_bundled.calibration_pairs:shows_what_is_asked

Rewordings of one scene, in the same words but another sentence and order; captions that state the
sizes which the donor's leaves out; and edits of one attribute under the wording of the donor. They
are always the same, in the same order.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import random
import re
import sys
from collections.abc import Iterator
from typing import Final

from PIL import Image

from skipstone_bundled.captions import (
    FORM_COUNT,
    SIZE_WORDS,
    random_wording,
    read_caption,
    write_caption,
)
from skipstone_bundled.checker import check_scene
from skipstone_bundled.scenes import ATTRIBUTES, edit_background, edit_object, random_scene

REWORDINGS: Final = 150
ADDED_DETAILS: Final = 80
EDITS_OF_EACH_KIND: Final = 20
_SEED: Final = 2027
_SIZES: Final = re.compile(
    rf"\b({'|'.join(word for words in SIZE_WORDS.values() for word in words)}) "
)


def pairs() -> Iterator[tuple[str, str, str]]:
    """Yields donor, prompt and what was changed: `reworded`, `added` or what an edit changes."""
    rng = random.Random(_SEED)
    for _ in range(REWORDINGS):
        scene, wording = random_scene(rng), random_wording(rng)
        form = (wording.form + rng.randrange(1, FORM_COUNT)) % FORM_COUNT
        other = dataclasses.replace(wording, form=form, reverse=rng.random() < 0.5)
        yield write_caption(scene, wording), write_caption(scene, other), "reworded"
    for _ in range(ADDED_DETAILS):
        wording = dataclasses.replace(random_wording(rng), object_form=0)
        prompt = write_caption(random_scene(rng), wording)
        yield _SIZES.sub("", prompt), prompt, "added"
    for kind in ("background", *ATTRIBUTES):
        found = 0
        while found < EDITS_OF_EACH_KIND:
            scene, wording = random_scene(rng), random_wording(rng)
            try:
                edited = (
                    edit_background(scene, rng)
                    if kind == "background"
                    else edit_object(scene, kind, rng)
                )
            except ValueError:
                continue  # this scene has no room for such an edit
            yield write_caption(scene, wording), write_caption(edited, wording), kind
            found += 1


def shows_what_is_asked(picture: bytes, prompt: str) -> bool:
    """Whether every object of a caption is there, right in all attributes, on its background.

    A superfluous object does not count: the checker takes soft leftovers for one.
    """
    check = check_scene(Image.open(io.BytesIO(picture)), read_caption(prompt))
    return check.background and all(
        item.colour_place_and_shape and item.size for item in check.objects
    )


def main() -> None:
    """Writes the pairs as CSV."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("donor", "prompt", "relation"))
    writer.writerows(pairs())


if __name__ == "__main__":
    main()
