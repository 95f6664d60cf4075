"""What was measured, one JSON line each, so that a calibration that was stopped goes on.

A record holds what pictures cost minutes for and nothing that follows from it: distances, not
drift; no scores. So the same records serve another gate or other limits within seconds.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from skipstone_shared.errors import InvalidArgument
from skipstone_shared.orchestration import ReuseKind


@dataclasses.dataclass(frozen=True, slots=True)
class Setup:
    """What all records of a file have in common; another one makes them another measurement.

    Attributes:
        model_name: Last part of the model's id or path.
        model_hash: Hash of its weights.
        num_inference_steps: Steps of the resumed runs.
        full_steps: Steps of the full run that all others are compared with.
        guidance_scale: Of all runs.
        levels: Noise levels resumed at.
        plain_steps: Numbers of steps of plain runs.
        source: Name of the file of prompts.
        seed: Of the sample and of all runs.
    """

    model_name: str
    model_hash: str
    num_inference_steps: int
    full_steps: int
    guidance_scale: float
    levels: tuple[float, ...]
    plain_steps: tuple[int, ...]
    source: str
    seed: int


@dataclasses.dataclass(frozen=True, slots=True)
class Resumed:
    """One resumed run: its distance from the full run, and whether it shows what was asked.

    `right` is None where no checker looked.
    """

    kind: ReuseKind
    same_seed: bool
    level: float
    skip_steps: int
    distance: float
    right: bool | None


@dataclasses.dataclass(frozen=True, slots=True)
class Plain:
    """One plain run of few steps, likewise."""

    steps: int
    distance: float
    right: bool | None


@dataclasses.dataclass(frozen=True, slots=True)
class PairRecord:
    """All that was run for one pair."""

    donor: str
    prompt: str
    relation: str
    full_right: bool | None
    plain: tuple[Plain, ...]
    resumed: tuple[Resumed, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Spread:
    """Mean distance among pictures of one prompt and several seeds, resumed from one donor."""

    kind: ReuseKind
    level: float
    distance: float


@dataclasses.dataclass(frozen=True, slots=True)
class SeedRecord:
    """How different the pictures of one prompt are over seeds: full runs, and resumed ones."""

    prompt: str
    seeds: int
    full: float
    resumed: tuple[Spread, ...]


class Records:
    """The file of records."""

    def __init__(self, path: Path) -> None:
        """Names the file; nothing is read or written yet."""
        self._path = path
        self.pairs: dict[tuple[str, str], PairRecord] = {}
        self.seeds: dict[str, SeedRecord] = {}

    def open(self, setup: Setup) -> None:
        """Reads what is there; begins a new file where nothing is.

        Raises:
            InvalidArgument: The file is of another measurement, or is none.
        """
        wanted = json.loads(json.dumps(dataclasses.asdict(setup)))
        if not self._path.exists():
            self._path.write_text(json.dumps({"setup": wanted}) + "\n", encoding="utf-8")
            return
        self._cut_unfinished_line()
        found = self.read()
        if found != setup:
            names = [f.name for f in dataclasses.fields(Setup)]
            differing = [n for n in names if getattr(found, n) != getattr(setup, n)]
            raise InvalidArgument(
                f"{self._path} holds another measurement ({', '.join(differing)} differ)",
                field="--out",
                allowed="an empty folder, or that of a measurement with the same settings",
            )

    def read(self) -> Setup:
        """Reads the records of a file.

        Raises:
            InvalidArgument: It is no file of records.
        """
        try:
            lines = list(self._lines())
            setup = _setup(lines[0]["setup"])
            for line in lines[1:]:
                if "pair" in line:
                    pair = _pair(line["pair"])
                    self.pairs[pair.donor, pair.prompt] = pair
                else:
                    seeds = _seeds(line["seeds"])
                    self.seeds[seeds.prompt] = seeds
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            raise InvalidArgument(
                f"{self._path} is no file of records: {error!r}", field="--out"
            ) from None
        return setup

    def add_pair(self, record: PairRecord) -> None:
        """Keeps a pair, on disk at once."""
        self._append({"pair": dataclasses.asdict(record)})
        self.pairs[record.donor, record.prompt] = record

    def add_seeds(self, record: SeedRecord) -> None:
        """Keeps the spread over seeds of a prompt, on disk at once."""
        self._append({"seeds": dataclasses.asdict(record)})
        self.seeds[record.prompt] = record

    def _cut_unfinished_line(self) -> None:
        """Removes what a run wrote that was killed while it wrote; it is measured again."""
        with self._path.open("r+b") as file:
            data = file.read()
            file.truncate(data.rfind(b"\n") + 1)

    def _append(self, value: dict[str, Any]) -> None:
        text = json.dumps(value, default=lambda kind: kind.value, ensure_ascii=False)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(text + "\n")

    def _lines(self) -> Iterator[dict[str, Any]]:
        whole, _, _ = self._path.read_text(encoding="utf-8").rpartition("\n")
        for line in whole.splitlines():
            yield json.loads(line)


def _setup(found: dict[str, Any]) -> Setup:
    lists = {name: tuple(found[name]) for name in ("levels", "plain_steps")}
    return Setup(**{**found, **lists})


def _pair(found: dict[str, Any]) -> PairRecord:
    plain = tuple(Plain(**item) for item in found["plain"])
    resumed = tuple(Resumed(**{**r, "kind": ReuseKind(r["kind"])}) for r in found["resumed"])
    return PairRecord(**{**found, "plain": plain, "resumed": resumed})


def _seeds(found: dict[str, Any]) -> SeedRecord:
    resumed = tuple(Spread(**{**s, "kind": ReuseKind(s["kind"])}) for s in found["resumed"])
    return SeedRecord(**{**found, "resumed": resumed})
