"""One call of `skipstone calibrate` against running services: what is left to measure, in order."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rich.progress import TimeRemainingColumn

from skipstone_client.calibrate.measure import Checker, Runner, steps_at
from skipstone_client.calibrate.pairs import Pair
from skipstone_client.calibrate.records import Records, Setup
from skipstone_client.cli_progress import progress_bar
from skipstone_client.denoise import DenoiseClient
from skipstone_client.latent_kv import LatentKVClient
from skipstone_shared.calibration import model_hash
from skipstone_shared.denoise_runs import GenerationPlan, ResumeKind
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import GenerationParams
from skipstone_shared.noise_shares import noise_shares
from skipstone_shared.orchestration import ReuseKind


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for on the command line; `command` is that line, for the file."""

    prompts: Path
    pairs: int
    steps: int | None
    full_steps: int | None
    levels: tuple[float, ...]
    plain_steps: tuple[int, ...]
    guidance: float | None
    seeds: int
    seed_prompts: int
    seed: int
    budget_s: float
    command: str = ""


class Session:
    """One call of the command against running services."""

    def __init__(
        self,
        executor: DenoiseClient,
        store: LatentKVClient,
        wanted: Wanted,
        checker: Checker | None,
    ) -> None:
        """Plans the runs.

        Raises:
            InvalidArgument: The model cannot be run so, or cannot resume.
        """
        self._wanted = wanted
        params = GenerationParams(
            "a prompt", num_inference_steps=wanted.steps, guidance_scale=wanted.guidance
        )
        plan = executor.plan(params)
        full = executor.plan(dataclasses.replace(params, num_inference_steps=wanted.full_steps))
        self._setup = _setup(plan, len(full.sigmas) - 1, wanted)
        kinds = [kind for kind in ReuseKind if ResumeKind(kind.value) in plan.resume_kinds]
        if not kinds or not self._setup.levels:
            raise InvalidArgument(
                "this model and number of steps cannot be resumed", field="--steps"
            )
        self._runner = Runner(
            executor, store, plan.params, self._setup, _shares(plan), kinds, checker
        )

    def run(self, records: Records, sample: Sequence[Pair], *, quiet: bool) -> Setup:
        """Measures what is missing in the records until the time is up; returns their setup.

        Raises:
            SkipstoneError: A run failed; what was measured before it is kept.
        """
        records.open(self._setup)
        ends_at = time.monotonic() + self._wanted.budget_s
        work = [*self._seed_work(records, sample), *self._pair_work(records, sample)]
        with progress_bar(TimeRemainingColumn(), quiet=quiet) as progress:
            task = progress.add_task("pairs", total=len(work))
            for measure in work:
                if time.monotonic() >= ends_at:
                    break
                measure()
                progress.advance(task)
        return self._setup

    def _seed_work(self, records: Records, sample: Sequence[Pair]) -> list[Callable[[], None]]:
        done = len(records.seeds)
        prompts = dict.fromkeys(pair.prompt for pair in sample)
        missing = [prompt for prompt in prompts if prompt not in records.seeds]

        def measure(prompt: str, number: int) -> None:
            records.add_seeds(self._runner.measure_seeds(prompt, self._wanted.seeds, number))

        wanted = missing[: max(0, self._wanted.seed_prompts - done)]
        return [partial(measure, prompt, number) for number, prompt in enumerate(wanted, done)]

    def _pair_work(self, records: Records, sample: Sequence[Pair]) -> list[Callable[[], None]]:
        def measure(pair: Pair, number: int) -> None:
            records.add_pair(self._runner.measure_pair(pair, number))

        return [
            partial(measure, pair, number)
            for number, pair in enumerate(sample[: self._wanted.pairs])
            if (pair.donor, pair.prompt) not in records.pairs
        ]


def _shares(plan: GenerationPlan) -> tuple[float, ...]:
    """Shares of noise, by which the reuse policy tells depth."""
    return noise_shares(plan.sigmas, plan.fingerprint.prediction_type)


def _setup(plan: GenerationPlan, full_steps: int, wanted: Wanted) -> Setup:
    steps = len(plan.sigmas) - 1
    # The levels that the schedule really has: a tier is true of these and of those above them.
    shares = _shares(plan)
    found = {shares[steps_at(shares, level)] for level in wanted.levels if steps > 1}
    inner = {round(full_steps * share) for share in (0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.65, 0.8)}
    plain = wanted.plain_steps or tuple(sorted(count for count in inner if 0 < count < full_steps))
    return Setup(
        model_name=Path(plan.fingerprint.model_id).name,
        model_hash=model_hash(plan.fingerprint),
        num_inference_steps=steps,
        full_steps=full_steps,
        guidance_scale=plan.params.guidance_scale or 0.0,
        levels=tuple(sorted(found, reverse=True)),
        plain_steps=plain,
        source=wanted.prompts.name,
        seed=wanted.seed,
    )
