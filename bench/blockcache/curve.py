"""Speed against drift: the bundled model's pictures under block caching and with fewer steps.

Drift is the PSNR of a picture against the one of the full run with the same prompt and seed. The
rival of caching is the plain run with fewer steps that costs the same.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
from torch import nn

from blockcache.figures import Figure, quartiles
from blockcache.pictures import FOLDER, BundledModel, prompts, psnr_db
from skipstone_denoise.blockcache.cached_transformer import with_block_cache
from skipstone_denoise.blockcache.config import ModelFacts, resolve_block_cache
from skipstone_denoise.blockcache.families import adapter_for
from skipstone_denoise.blockcache.state import BlockCacheState
from skipstone_shared.generation import BlockCacheConfig, BlockCachePreset

STEPS: Final = 50
FEWER_STEPS: Final = (10, 15, 20, 25, 28, 33, 40)
FEWER: Final = "fewer steps"

CONFIGS: Final = {
    **{preset.value: BlockCacheConfig(preset=preset) for preset in list(BlockCachePreset)[1:]},
    "defaults": BlockCacheConfig(residual_diff_threshold=0.24),
    **{
        f"TaylorSeer R{threshold}": BlockCacheConfig(
            residual_diff_threshold=threshold, enable_taylorseer=True
        )
        for threshold in (0.2, 0.32)
    },
    "divided difference R0.08 W2": BlockCacheConfig(
        max_warmup_steps=2, residual_diff_threshold=0.08, enable_divided_difference=True
    ),
}
"""Settings drawn: presets, the field's defaults, forecasts at rising thresholds."""


@dataclass(frozen=True)
class Picture:
    """What one picture cost and how far it is from the full run's.

    Attributes:
        config: Key of `CONFIGS`, or "fewer steps: N".
        index: Of prompt and seed.
        share: Block calls over those of the full run.
        psnr_db: Against the full run's picture.
    """

    config: str
    index: int
    share: float
    psnr_db: float


class Journal:
    """Pictures measured so far, one JSON line each, so that a stopped run can go on.

    Lines of other weights are ignored. A change of the code is not noticed: begin anew after one.
    """

    def __init__(self, path: Path, resume: bool) -> None:
        """Opens it.

        Args:
            path: File; made if need be.
            resume: Keep what it has.
        """
        self._path = path
        self._weights = _weights_hash()
        self.pictures: list[Picture] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        if not resume:
            path.unlink(missing_ok=True)
        if path.exists():
            lines = map(json.loads, path.read_text().splitlines())
            self.pictures = [
                Picture(**line) for line in lines if line.pop("weights") == self._weights
            ]

    def has(self, config: str, index: int) -> bool:
        """Returns whether a picture is there."""
        return any(p.config == config and p.index == index for p in self.pictures)

    def add(self, picture: Picture) -> None:
        """Writes a picture down."""
        self.pictures.append(picture)
        with self._path.open("a") as file:
            file.write(json.dumps({"weights": self._weights, **asdict(picture)}) + "\n")

    def of(self, config: str) -> list[Picture]:
        """Returns the pictures of a setting."""
        return [picture for picture in self.pictures if picture.config == config]


def measure(journal: Journal, count: int) -> Iterator[Figure]:
    """Makes the pictures that the journal lacks, then compares all.

    Args:
        journal: Where they are noted.
        count: Prompts.
    """
    model = BundledModel()
    # Prompt by prompt, so that a run that is stopped has all settings of the first ones.
    for index, prompt in enumerate(prompts(count)):
        _measure_prompt(model, journal, prompt, index)
    yield from _figures(journal)


def _measure_prompt(model: BundledModel, journal: Journal, prompt: str, index: int) -> None:
    missing = [name for name in _names() if not journal.has(name, index)]
    if not missing:
        return
    full = model.picture(model.latents(model.transformer, prompt, STEPS, index))
    for name in missing:
        picture, share = _picture(model, name, prompt, index)
        journal.add(Picture(name, index, share, psnr_db(picture, full)))


def _names() -> list[str]:
    return [*CONFIGS, *map(_fewer, FEWER_STEPS)]


def _fewer(steps: int) -> str:
    return f"{FEWER}: {steps}"


def _picture(model: BundledModel, name: str, prompt: str, seed: int) -> tuple[np.ndarray, float]:
    if name not in CONFIGS:
        steps = int(name.removeprefix(f"{FEWER}: "))
        return model.picture(model.latents(model.transformer, prompt, steps, seed)), steps / STEPS
    transformer, state = _cached(model, CONFIGS[name])
    latents = model.latents(transformer, prompt, STEPS, seed, state.begin_step)
    report = state.report()
    return model.picture(latents), report.block_calls / report.block_calls_full


def _cached(model: BundledModel, config: BlockCacheConfig) -> tuple[nn.Module, BlockCacheState]:
    facts = ModelFacts(blocks={"transformer": (model.blocks,)}, num_inference_steps=STEPS)
    plan = resolve_block_cache(config, facts)
    assert plan is not None
    state = BlockCacheState(plan.settings, first_steps=plan.first_steps)
    return with_block_cache(model.transformer, adapter_for(model.transformer), state), state


def _figures(journal: Journal) -> Iterator[Figure]:
    for name in _names():
        pictures = journal.of(name)
        share, drift = _medians(pictures)
        fewer = None if name not in CONFIGS else _fewer_steps_at(journal, share)
        drifts = [picture.psnr_db for picture in pictures]
        spread = quartiles(drifts) if len(drifts) > 1 else None
        rival = FEWER if fewer is not None else None
        model, n = BundledModel.name, len(pictures)
        yield Figure("psnr_db", model, name, drift, rival, fewer, n, spread)
        shares = [picture.share for picture in pictures]
        spread = quartiles(shares) if len(shares) > 1 else None
        yield Figure("block_calls_share", model, name, share, "full run", 1.0, n, spread)


def _medians(pictures: Sequence[Picture]) -> tuple[float, float]:
    return (
        statistics.median(picture.share for picture in pictures),
        statistics.median(picture.psnr_db for picture in pictures),
    )


def _fewer_steps_at(journal: Journal, share: float) -> float:
    """Returns the PSNR of a plain run that costs the same, between those that were measured."""
    points = [_medians(journal.of(_fewer(steps))) for steps in FEWER_STEPS]
    shares, drifts = zip(*points, strict=True)
    return float(np.interp(share, shares, drifts))


def plot(journal: Journal, path: Path) -> None:
    """Draws all settings and the curve of fewer steps.

    Args:
        journal: What was measured.
        path: Picture to write.
    """
    # Imported here: the other parts need no plotting library, and it takes a second to load.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing(figsize=(7, 4.5), layout="constrained")
    FigureCanvasAgg(drawing)
    axes = drawing.add_subplot()
    speeds, drifts = _speeds(journal, [_fewer(steps) for steps in FEWER_STEPS])
    axes.plot(speeds, drifts, "o-", color="tab:gray", label="plain run with fewer steps")
    speeds, drifts = _speeds(journal, list(CONFIGS))
    axes.plot(speeds, drifts, "s", color="tab:blue", label="block cache")
    for name, speed, drift in zip(CONFIGS, speeds, drifts, strict=True):
        axes.annotate(name, (speed, drift), xytext=(5, 4), textcoords="offset points", fontsize=8)
    axes.axhline(30, linestyle=":", color="tab:red", linewidth=1)
    axes.set_xlabel(f"block calls of the full run ({STEPS} steps) over block calls")
    axes.set_ylabel("median PSNR against the full run, dB")
    axes.set_title(f"{BundledModel.name}: speed against drift")
    axes.grid(alpha=0.3)
    axes.legend()
    drawing.savefig(path, dpi=130)


def _speeds(journal: Journal, names: Sequence[str]) -> tuple[list[float], list[float]]:
    points = [_medians(journal.of(name)) for name in names]
    return [1 / share for share, _ in points], [drift for _, drift in points]


def _weights_hash() -> str:
    digest = hashlib.sha256()
    for path in sorted(FOLDER.glob("*/*.safetensors")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
