"""One call of `skipstone calibrate` against running services: what is left to measure, in order."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from rich.progress import TimeRemainingColumn

from skipstone_client.calibrate.measure import Checker, Runner, steps_at
from skipstone_client.calibrate.pairs import Vectors, read_pairs
from skipstone_client.calibrate.records import Records, Setup
from skipstone_client.cli_progress import progress_bar
from skipstone_client.denoise import DenoiseClient
from skipstone_client.embedding import EmbeddingClient
from skipstone_client.latent_kv import LatentKVClient
from skipstone_shared.calibration import model_hash
from skipstone_shared.denoise_runs import GenerationPlan, ResumeKind
from skipstone_shared.embeddings import EmbeddingInput
from skipstone_shared.errors import InvalidArgument, SkipstoneError
from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import ReuseKind


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for on the command line."""

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

    @property
    def command(self) -> str:
        """The command without what belongs to a machine, for the file."""
        steps = f" --steps {self.steps}" if self.steps else ""
        return f"skipstone calibrate {self.prompts.name} --pairs {self.pairs}{steps}"


class Session:
    """One call of the command against running services."""

    def __init__(
        self,
        embedder: EmbeddingClient,
        executor: DenoiseClient,
        store: LatentKVClient,
        wanted: Wanted,
        checker: Checker | None,
    ) -> None:
        """Plans the runs.

        Raises:
            InvalidArgument: The model cannot be run so, or cannot resume.
        """
        self._embedder = embedder
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
            executor, store, plan.params, self._setup, plan.sigmas, kinds, checker
        )

    def run(self, records: Records, *, quiet: bool) -> Setup:
        """Measures what is missing in the records until the time is up; returns their setup.

        Raises:
            SkipstoneError: A run failed; what was measured before it is kept.
        """
        wanted = self._wanted
        records.open(self._setup)
        sample = read_pairs(wanted.prompts, wanted.pairs, wanted.seed, self._embed)
        chosen = list(dict.fromkeys(pair.prompt for pair in sample))[: wanted.seed_prompts]
        work: list[Callable[[], None]] = [
            lambda n=number, p=prompt: records.add_seeds(  # type: ignore[misc]
                self._runner.measure_seeds(p, wanted.seeds, n)
            )
            for number, prompt in enumerate(chosen)
            if prompt not in records.seeds
        ]
        work += [
            lambda n=number, p=pair: records.add_pair(self._runner.measure_pair(p, n))  # type: ignore[misc]
            for number, pair in enumerate(sample)
            if (pair.donor, pair.prompt) not in records.pairs
        ]
        ends_at = time.monotonic() + wanted.budget_s
        with progress_bar(TimeRemainingColumn(), quiet=quiet) as progress:
            task = progress.add_task("pairs", total=len(work))
            for item in work:
                if time.monotonic() >= ends_at:
                    break
                item()
                progress.advance(task)
        return self._setup

    def _embed(self, texts: Sequence[str]) -> Vectors:
        return embed_all(self._embedder, texts)


def embed_all(embedder: EmbeddingClient, texts: Sequence[str]) -> Vectors:
    """Vectors of texts, in as many calls as the service wants.

    Raises:
        SkipstoneError: A text has no vector.
    """
    size = embedder.get_capabilities().max_batch_size
    vectors = []
    for start in range(0, len(texts), size):
        inputs = [EmbeddingInput(text=text) for text in texts[start : start + size]]
        for result in embedder.embed(inputs, timeout_s=60.0):
            if isinstance(result, SkipstoneError):
                raise result
            vectors.append(result.vector)
    return np.stack(vectors)


def _setup(plan: GenerationPlan, full_steps: int, wanted: Wanted) -> Setup:
    steps = len(plan.sigmas) - 1
    # The levels that the schedule really has: a tier is true of these and of those above them.
    found = {plan.sigmas[steps_at(plan.sigmas, level)] for level in wanted.levels if steps > 1}
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
