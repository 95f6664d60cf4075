"""Sends the prompts one after another and looks at what comes back."""

from __future__ import annotations

import io
import time
from collections.abc import Iterable, Iterator

from PIL import Image

from demo.outcome import Judgement, Outcome
from demo.prompts import DemoPrompt
from skipstone_bundled.checker import SceneCheck, check_scene, read_picture
from skipstone_bundled.scenes import Scene
from skipstone_client import OrchestratorClient
from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import CacheMode, CacheOptions, GenerateResult, HitTier

_SAVE_WAIT_S = 5.0
_OFF = CacheOptions(mode=CacheMode.OFF)

STEPS = 30
"""Denoising steps of every prompt, as the bundled model's card recommends."""

GUIDANCE_SCALE = 3.0
"""Guidance of every prompt, from the same place."""


class Sender:
    """Sends prompts and keeps the pictures of donors."""

    def __init__(self, client: OrchestratorClient) -> None:
        self._client = client
        self._saved: dict[str, Image.Image] = {}

    def send(self, prompts: Iterable[DemoPrompt]) -> Iterator[Outcome]:
        """Yields one outcome per prompt, in order.

        A hit is run once more without the cache, with the same seed, to be shown beside it.
        """
        for number, prompt in enumerate(prompts, start=1):
            yield self._send_one(number, prompt)

    def _send_one(self, number: int, prompt: DemoPrompt) -> Outcome:
        result, seconds = self._generate(prompt)
        provenance = result.provenance
        picture = _picture(result)
        donor = self._saved.get(provenance.donor_entry_id)
        if provenance.saved_entry_id:
            self._saved[provenance.saved_entry_id] = picture
        self._wait_for_saves()
        judgement = judge(picture, prompt.scene)
        if provenance.tier is HitTier.MISS:
            return Outcome(number, prompt, provenance, seconds, picture, judgement)
        full_result, full_seconds = self._generate(prompt, _OFF)
        full = _picture(full_result)
        return Outcome(
            number,
            prompt,
            provenance,
            seconds,
            picture,
            judgement,
            full=full,
            full_seconds=full_seconds,
            full_judgement=judge(full, prompt.scene),
            donor=donor,
        )

    def _generate(
        self, prompt: DemoPrompt, cache: CacheOptions | None = None
    ) -> tuple[GenerateResult, float]:
        start = time.perf_counter()
        params = GenerationParams(
            prompt=prompt.text,
            seed=prompt.seed,
            num_inference_steps=STEPS,
            guidance_scale=GUIDANCE_SCALE,
        )
        result = self._client.generate(params, cache=cache)
        return result, time.perf_counter() - start

    def _wait_for_saves(self) -> None:
        # Saving is off the caller's path. The demo's next prompt may be a repeat of this one, so it
        # waits; a busy deployment would simply miss.
        deadline = time.monotonic() + _SAVE_WAIT_S
        while self._client.get_stats().queued_saves and time.monotonic() < deadline:
            time.sleep(0.02)


def judge(picture: Image.Image, scene: Scene) -> Judgement:
    """Lets the checker read a picture that should show a scene."""
    check = check_scene(picture, scene)
    wrong = [] if check.background else [f"background is not {scene.background}"]
    if _count_differs(picture, scene):
        wrong.append(f"not {len(scene.objects)} objects")
    return Judgement(
        wrong=(*wrong, *_wrong_objects(check, scene)),
        placed=sum(item.colour_and_place for item in check.objects),
        objects=len(scene.objects),
    )


def _count_differs(picture: Image.Image, scene: Scene) -> bool:
    # The model's outlines are soft; what is left over beside an object is seen as one more, without
    # a shape. People do not see it as an object.
    seen = read_picture(picture).objects
    shaped = [item for item in seen if item.shape is not None]
    return len(seen) < len(scene.objects) or len(shaped) > len(scene.objects)


def _wrong_objects(check: SceneCheck, scene: Scene) -> Iterator[str]:
    for item, held in zip(scene.objects, check.objects, strict=True):
        attributes = ("colour", "place", "shape", "size")
        missing = [name for name in attributes if not getattr(held, name)]
        if missing:
            yield f"{', '.join(missing)} of the {item.size} {item.colour} {item.shape}"


def _picture(result: GenerateResult) -> Image.Image:
    picture = Image.open(io.BytesIO(result.artifact.data))
    picture.load()
    return picture
