"""Runs the settings of a sweep through an orchestrator and measures each."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from typing import Protocol

from skipstone_client.block_cache_sweep.drift import Drift, Frames, drift_between, frames_of
from skipstone_client.block_cache_sweep.settings import Kind, Setting, full_run
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import Artifact, GenerationParams
from skipstone_shared.orchestration import CacheMode, CacheOptions, GenerateResult, Provenance

# A donor's steps are not run, and a stored result runs none: neither is what is measured here.
_NO_REUSE = CacheOptions(mode=CacheMode.OFF)


class Generator(Protocol):
    """What a sweep needs of an `OrchestratorClient`."""

    def generate(
        self, params: GenerationParams, cache: CacheOptions, namespace: str
    ) -> GenerateResult:
        """Generates and waits for the result."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """What one setting costs and changes; medians over the seeds.

    Attributes:
        setting: The setting.
        share: Block calls run, as a share of the full run's, 0 to 1.
        block_calls: Block calls run with the first seed; 0 where the executor tells none.
        computed_steps: Steps computed with the first seed, summed over transformers and branches;
            without block caching, the steps run.
        reused_steps: Steps reused, summed likewise.
        drift: Distance from the full run.
        denoise_s: Seconds in the denoise stage.
        artifact: The first seed's result.
        notes: What the executor says of the setting, such as that it can never reuse anything.
    """

    setting: Setting
    share: float
    block_calls: int
    computed_steps: int
    reused_steps: int
    drift: Drift
    denoise_s: float
    artifact: Artifact
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Refused:
    """A setting that the model cannot be run with.

    Attributes:
        setting: The setting.
        reason: The executor's words.
    """

    setting: Setting
    reason: str


class Sweep:
    """One prompt and its full runs; then any setting against them."""

    def __init__(
        self,
        generator: Generator,
        params: GenerationParams,
        seeds: Sequence[int],
        namespace: str = "",
    ) -> None:
        """Remembers what is to be run.

        Args:
            generator: Runs it.
            params: Of all runs; seed and block caching are filled in.
            seeds: Seeds of the noise, at least one.
            namespace: Tenant or pool.
        """
        self._generator = generator
        self._params = params
        self._seeds = seeds
        self._namespace = namespace
        self._references: list[Frames] = []
        self._num_inference_steps = 0

    @property
    def num_inference_steps(self) -> int:
        """Steps of the full run; after `measure_full`."""
        return self._num_inference_steps

    def measure_full(self) -> Measured:
        """Runs without block caching; everything else is compared with this.

        Raises:
            SkipstoneError: a run failed, or its result cannot be compared.
        """
        setting = full_run()
        results = [self._run(setting, seed) for seed in self._seeds]
        self._references = [frames_of(result.artifact) for result in results]
        self._num_inference_steps = results[0].provenance.num_inference_steps
        return self._measured(setting, results)

    def measure(self, setting: Setting) -> Measured | Refused:
        """Runs a setting; after `measure_full`.

        Raises:
            SkipstoneError: a run failed for another reason than its setting.
        """
        try:
            return self._measured(setting, [self._run(setting, seed) for seed in self._seeds])
        except InvalidArgument as error:
            return Refused(setting, error.message)

    def _run(self, setting: Setting, seed: int) -> GenerateResult:
        params = dataclasses.replace(
            self._params,
            seed=seed,
            num_inference_steps=setting.steps or self._params.num_inference_steps,
            block_cache=setting.config,
        )
        return self._generator.generate(params, _NO_REUSE, self._namespace)

    def _measured(self, setting: Setting, results: Sequence[GenerateResult]) -> Measured:
        drifts = [
            drift_between(reference, frames_of(result.artifact))
            for reference, result in zip(self._references, results, strict=True)
        ]
        first = results[0].provenance
        report = first.block_cache
        branches = report.branches if report is not None else ()
        computed = sum(len(branch.computed_steps) for branch in branches)
        return Measured(
            setting=setting,
            share=statistics.median(self._share(result.provenance) for result in results),
            block_calls=report.block_calls if report is not None else 0,
            computed_steps=computed or first.executed_steps,
            reused_steps=sum(len(branch.reused_steps) for branch in branches),
            drift=Drift(
                statistics.median(drift.psnr_db for drift in drifts),
                statistics.median(drift.rel_l1 for drift in drifts),
            ),
            denoise_s=statistics.median(_denoise_s(result.provenance) for result in results),
            artifact=results[0].artifact,
            notes=report.notes if report is not None else (),
        )

    def _share(self, provenance: Provenance) -> float:
        """Block calls of a run over those of the full run."""
        report = provenance.block_cache
        of_its_steps = 1.0
        if report is not None and report.block_calls_full:
            of_its_steps = report.block_calls / report.block_calls_full
        return of_its_steps * provenance.executed_steps / self._num_inference_steps


def _denoise_s(provenance: Provenance) -> float:
    times = provenance.stage_times_s
    return times.get("denoise", times.get("total", 0.0))


def rows_of(outcomes: Iterable[Measured | Refused], *kinds: Kind) -> list[Measured]:
    """What was measured of some kinds."""
    return [
        outcome
        for outcome in outcomes
        if isinstance(outcome, Measured) and outcome.setting.kind in kinds
    ]
