"""Runs a pair through the executor: the donor, the full run, plain runs, and every resume."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Protocol

from skipstone_client.block_cache_sweep.drift import Frames
from skipstone_client.calibrate.pairs import Pair
from skipstone_client.calibrate.pictures import distance, pixels_of
from skipstone_client.calibrate.records import (
    PairRecord,
    Plain,
    Resumed,
    SeedRecord,
    Setup,
    Spread,
)
from skipstone_shared.denoise_runs import (
    DenoiseEvent,
    DenoiseFinished,
    DenoiseRequest,
    DenoiseStarted,
    ResumeFrom,
    ResumeKind,
    SnapshotPlan,
)
from skipstone_shared.errors import Unavailable
from skipstone_shared.generation import Artifact, GenerationParams
from skipstone_shared.latents import LatentRef
from skipstone_shared.noise_shares import steps_down_to
from skipstone_shared.orchestration import ReuseKind

Checker = Callable[[bytes, str], bool]
"""Tells whether a picture (its encoded bytes) shows what a prompt asks for."""

NAMESPACE = "calibration"

_KINDS = {ReuseKind.RENOISE: ResumeKind.RENOISE, ReuseKind.TRAJECTORY: ResumeKind.TRAJECTORY}
_LEASE_S = 600.0
_TRIES = 5
# Far apart, so that no seed of one prompt is that of another.
_SEED_STRIDE = 1000


class Executor(Protocol):
    """What is needed of a `DenoiseClient`."""

    def run(self, request: DenoiseRequest) -> Generator[DenoiseEvent, None, None]:
        """Runs one generation and gives its events."""
        ...


class Store(Protocol):
    """What is needed of a `LatentKVClient`."""

    def delete_entries(self, namespace: str, entry_ids: Sequence[str]) -> list[bool]:
        """Removes entries."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class _Run:
    frames: Frames
    right: bool | None
    refs: dict[int, LatentRef]


class Runner:
    """Makes the runs of a calibration, one at a time; nothing it stores stays behind."""

    def __init__(
        self,
        executor: Executor,
        store: Store,
        params: GenerationParams,
        setup: Setup,
        shares: Sequence[float],
        kinds: Sequence[ReuseKind],
        checker: Checker | None,
    ) -> None:
        """Remembers what is to be run.

        Args:
            executor: Runs.
            store: Where the executor keeps snapshots.
            params: Of all runs; prompt, seed and steps are filled in.
            setup: What is common to all records.
            shares: Share of noise entering each step of a run.
            kinds: Ways of resuming that the model allows.
            checker: Judges pictures; None: nobody does.
        """
        self._executor = executor
        self._store = store
        self._params = params
        self._setup = setup
        self._kinds = tuple(kinds)
        self._checker = checker
        self._steps = {level: steps_at(shares, level) for level in setup.levels}

    def measure_pair(self, pair: Pair, number: int) -> PairRecord:
        """Measures one pair; its number fixes the seeds.

        Raises:
            SkipstoneError: A run failed, or a donor could not be used.
        """
        setup = self._setup
        seed = setup.seed + number * _SEED_STRIDE
        full = self._run(pair.prompt, seed, setup.full_steps)
        plain = tuple(
            Plain(steps, distance(full.frames, run.frames), run.right)
            for steps in setup.plain_steps
            for run in (self._run(pair.prompt, seed, steps),)
        )
        resumed = tuple(
            Resumed(
                kind,
                same_seed,
                level,
                self._steps[level],
                distance(full.frames, run.frames),
                run.right,
            )
            for same_seed in (False, True)
            for kind, level, run in self._resumes(
                pair.donor, seed if same_seed else seed + 1, pair.prompt, [seed]
            )
        )
        return PairRecord(pair.donor, pair.prompt, pair.relation, full.right, plain, resumed)

    def measure_seeds(self, prompt: str, seeds: int, number: int) -> SeedRecord:
        """Measures how different pictures of one prompt are, with and without one donor.

        Raises:
            SkipstoneError: A run failed, or a donor could not be used.
        """
        first = self._setup.seed - (number + 1) * _SEED_STRIDE
        wanted = [abs(first) + place for place in range(seeds)]
        steps = self._setup.num_inference_steps
        full = [self._run(prompt, seed, steps).frames for seed in wanted]
        found: dict[tuple[ReuseKind, float], list[Frames]] = {}
        for kind, level, run in self._resumes(prompt, abs(first) + seeds, prompt, wanted):
            found.setdefault((kind, level), []).append(run.frames)
        spreads = tuple(
            Spread(kind, level, mean_distance(frames)) for (kind, level), frames in found.items()
        )
        return SeedRecord(prompt, seeds, mean_distance(full), spreads)

    def _resumes(
        self, donor_prompt: str, donor_seed: int, prompt: str, seeds: Sequence[int]
    ) -> Iterator[tuple[ReuseKind, float, _Run]]:
        """Runs a donor, then every kind, level and seed from it."""
        steps = self._setup.num_inference_steps
        entry_id = f"calibration-{uuid.uuid4().hex}"
        wanted = tuple(sorted(set(self._steps.values())))
        snapshots = SnapshotPlan(entry_id, wanted, store_clean=True, lease_s=_LEASE_S)
        try:
            donor = self._run(donor_prompt, donor_seed, steps, snapshots=snapshots)
            for kind, (level, step), seed in itertools.product(
                self._kinds, self._steps.items(), seeds
            ):
                ref = donor.refs[steps if kind is ReuseKind.RENOISE else step]
                resume = ResumeFrom(ref, step, _KINDS[kind])
                yield kind, level, self._resumed(prompt, seed, steps, resume)
        finally:
            self._store.delete_entries(NAMESPACE, [entry_id])

    def _resumed(self, prompt: str, seed: int, steps: int, resume: ResumeFrom) -> _Run:
        """Runs from a donor; again when the store was slow, as it may be on a busy machine."""
        for tries_left in reversed(range(_TRIES)):
            try:
                return self._run(prompt, seed, steps, resume=resume)
            except _DonorRefused as error:
                if not (tries_left and error.is_passing):
                    raise
        raise AssertionError("the last try returns or raises")

    def _run(
        self,
        prompt: str,
        seed: int,
        steps: int,
        *,
        snapshots: SnapshotPlan | None = None,
        resume: ResumeFrom | None = None,
    ) -> _Run:
        params = dataclasses.replace(
            self._params, prompt=prompt, seed=seed, num_inference_steps=steps
        )
        artifact: Artifact | None = None
        refs: dict[int, LatentRef] = {}
        request = DenoiseRequest(NAMESPACE, params, resume=resume, snapshots=snapshots)
        with closing(self._executor.run(request)) as events:
            for event in events:
                if isinstance(event, DenoiseStarted) and event.refusal_reason:
                    raise _DonorRefused(event)
                if isinstance(event, Artifact):
                    artifact = event
                elif isinstance(event, DenoiseFinished):
                    _check_stored(event)
                    refs = {ref.step_index: ref for ref in event.snapshots}
        assert artifact is not None, "a run that ends without an error has given its picture"
        # What a donor shows is not in question, and a log's prompt may be beyond the checker.
        checker = self._checker if snapshots is None else None
        right = checker(artifact.data, prompt) if checker is not None else None
        return _Run(pixels_of(artifact), right, refs)


class _DonorRefused(Unavailable):
    """The executor did not resume from a donor that was just written."""

    def __init__(self, event: DenoiseStarted) -> None:
        super().__init__(f"a donor was refused: {event.refusal_message}")
        self.came_from("denoise")
        self.is_passing = event.refusal_reason.startswith("STORE_")


def _check_stored(event: DenoiseFinished) -> None:
    if event.snapshot_failures:
        failure = event.snapshot_failures[0]
        raise Unavailable(f"a snapshot was not stored: {failure.message}").came_from("denoise")


def steps_at(shares: Sequence[float], level: float) -> int:
    """The deepest step that a tier of a noise level may start at, as the reuse policy counts.

    The first one where even that lies below the level: a tier then says of itself that it is
    deeper.
    """
    return max(steps_down_to(shares, level), default=1)


def mean_distance(pictures: Sequence[Frames]) -> float:
    """Mean distance of all pairs of pictures."""
    return statistics.fmean(distance(a, b) for a, b in itertools.combinations(pictures, 2))
