"""One request of an engine, whoever waits for it: where it starts, what of it is kept."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from skipstone_client._background_writer import BackgroundWriter
from skipstone_client._reuse_calls import INVALID_ARGUMENT, ReuseCalls
from skipstone_client._reuse_flows import Flow, Services
from skipstone_client._reuse_outcome import ReuseOutcome
from skipstone_client._reuse_start import read_donor
from skipstone_client._run_recorder import RunEntry, RunRecorder
from skipstone_client.donor_checks import DonorRefused
from skipstone_client.engine_latents import LatentsT, in_form_of, renoised, work_on
from skipstone_client.engine_runs import Donor, EngineRun, ReuseProvenance, SolverState
from skipstone_shared.errors import FailedPrecondition
from skipstone_shared.frame_samples import Picture
from skipstone_shared.latents import compatibility_key
from skipstone_shared.orchestration import (
    CacheMode,
    CacheOptions,
    HitTier,
    LookupDecision,
    ReuseKind,
)
from skipstone_shared.request_context import new_request_id

CACHE_OFF = "CACHE_OFF"


class RequestCore:
    """What the synchronous and the asynchronous form of a request share."""

    def __init__(
        self,
        services: Services,
        calls: ReuseCalls,
        writer: BackgroundWriter,
        prompt: str,
        run: EngineRun,
        cache: CacheOptions,
        outcome: ReuseOutcome,
    ) -> None:
        """Asks nobody yet.

        Args:
            services: Whom it asks.
            calls: What it asks.
            writer: Stores beside the loop.
            prompt: Prompt of the request.
            run: The run.
            cache: How it uses the cache; its mode is set.
            outcome: Takes what becomes of it.
        """
        self._services = services
        self._calls = calls
        self._prompt = prompt
        self._run = run
        self._cache = cache
        self._mode = cache.mode or CacheMode.READ_WRITE
        self._outcome = outcome
        self._request_id = new_request_id()
        self._recorder = RunRecorder(calls, writer, outcome, prompt, run, self._request_id)
        self._decision: LookupDecision | None = None
        self._refusal: DonorRefused | None = None
        self._donor: Donor | None = None
        self._entry_id = ""
        self._key = ""
        self._frames: Sequence[Picture] = ()
        self._finished = False
        self._in_block = False

    @property
    def num_inference_steps(self) -> int:
        """Steps of the run."""
        return self._run.num_inference_steps

    @property
    def start_step(self) -> int:
        """Step the run starts at; 0 from noise and before ``resume``."""
        return 0 if self._donor is None else self._donor.start_step

    @property
    def key_steps(self) -> tuple[int, ...]:
        """Steps whose latents are stored, the clean one (``num_inference_steps``) included."""
        steps = self._run.num_inference_steps
        if self._decision is None or not self._mode.writes or self._recorder.given_up:
            return ()
        # Those below or at the start are the donor's: stored as own ones, drift would chain.
        wanted = {*(self._decision.key_steps or self._cache.key_steps), steps}
        return tuple(sorted(step for step in wanted if self.start_step < step <= steps))

    @property
    def donor_frames(self) -> int:
        """Frames of what the run makes that ``finish`` should be given, up to 16; 0: none."""
        return self._decision.donor_frames if self._decision is not None and self.key_steps else 0

    @property
    def provenance(self) -> ReuseProvenance:
        """Where the run starts and why, and what became of its snapshots so far."""
        decision, donor, refusal = self._decision, self._donor, self._refusal
        if decision is None:
            return ReuseProvenance(self._request_id, HitTier.MISS, "")
        return ReuseProvenance(
            request_id=self._request_id,
            tier=HitTier.MISS if donor is None else decision.tier,
            reason=decision.reason if refusal is None else refusal.reason,
            skip_steps=self.start_step,
            kind=None if donor is None else donor.kind,
            similarity=decision.similarity,
            rerank_score=decision.rerank_score,
            donor_entry_id=decision.donor.entry_id if donor and decision.donor else "",
            entry_id=self._entry_id if self.key_steps else "",
            compatibility_key=decision.compatibility_key,
            fallbacks=self._outcome.fallbacks,
            failures=self._outcome.failures,
            saved=self._outcome.saved,
            save_failure=self._outcome.save_failure,
        )

    def wants(self, step_index: int) -> bool:
        """Whether the latents that enter a step are to be stored; cheap."""
        return step_index in self.key_steps

    def abandon(self) -> None:
        """Gives the run up: nothing of it is saved."""
        self._recorder.give_up()
        self._finished = True

    def _leave(self, *, by_exception: bool) -> None:
        """Ends the block: saves what was finished, and gives up what was not."""
        if by_exception or not self._finished:
            self.abandon()
        else:
            self._save()

    def _resuming(self, noise: LatentsT) -> Flow[tuple[LatentsT, int]]:
        donor = yield from self._finding_donor()
        if donor is None:
            return noise, 0
        given: Any = noise
        if donor.latents.shape != tuple(given.shape):
            message = f"the donor has shape {donor.latents.shape}, the noise {tuple(given.shape)}"
            yield from self._refusing("SPEC_MISMATCH", message)
            return noise, 0
        latents: LatentsT = yield work_on(noise, lambda: self._start_latents(donor, noise))
        return latents, donor.start_step

    def _start_latents(self, donor: Donor, noise: LatentsT) -> LatentsT:
        if donor.kind is not ReuseKind.RENOISE:
            return in_form_of(donor.latents, noise)
        sigma = self._run.sigmas[donor.start_step]
        return renoised(donor.latents, noise, sigma, flow=self._run.is_flow)

    def _finding_donor(self) -> Flow[Donor | None]:
        if self._decision is not None:
            raise FailedPrecondition("a request is resumed once")
        yield from self._deciding()
        self._outcome.started(self.provenance.tier)
        return self._donor

    def _refusing(self, reason: str, message: str) -> Flow[None]:
        if self._donor is not None and self._decision is not None:
            self._outcome.missed_after_all(self._decision.tier)
        self._donor = None
        self._refusal = DonorRefused(reason, message)
        self._outcome.fell_back("resume", "latent_kv", reason, message)
        if self._mode.writes and not self._recorder.given_up:
            # The decision named the entry of a resumed run.
            full = yield from self._calls.full_run_entry_id(self._prompt, self._run, self._cache)
            self._entry_id = full or _own_entry_id()

    def _taking(self, step_index: int, latents: object, solver: SolverState | None) -> Flow[None]:
        if self._decision is None or self._finished:
            raise FailedPrecondition("snapshots are taken between resume and finish")
        if self.wants(step_index):
            yield from self._recorder.record(self._entry, step_index, latents, solver)

    def _finishing(self, latents: object | None, frames: Sequence[Picture]) -> Flow[None]:
        if self._decision is None or self._finished:
            raise FailedPrecondition("a request is finished once, after resume")
        if latents is not None:
            yield from self._taking(self._run.num_inference_steps, latents, None)
        self._frames = frames
        self._finished = True
        if not self._in_block:
            self._save()

    @property
    def _entry(self) -> RunEntry:
        depth = 0 if self._donor is None else self._donor.depth + 1
        return RunEntry(self._entry_id, self._key, depth)

    def _save(self) -> None:
        if self.key_steps:
            self._recorder.save(self._entry, self._frames, self.donor_frames)

    def _deciding(self) -> Flow[None]:
        if self._mode is CacheMode.OFF:
            self._decision = LookupDecision(HitTier.MISS, CACHE_OFF, "", "", "")
            return
        decision = yield from self._calls.look_up(self._prompt, self._run, self._cache)
        self._decision = decision
        self._outcome.fallbacks_of(decision.fallbacks)
        self._entry_id = decision.entry_id or _own_entry_id()
        if decision.reason == INVALID_ARGUMENT:
            self._recorder.give_up()
            return
        try:
            self._key = compatibility_key(self._run.fingerprint)
            if decision.compatibility_key not in ("", self._key):
                # Two versions of Skipstone that hash a fingerprint differently.
                self._recorder.give_up()
                raise DonorRefused("COMPATIBILITY_MISMATCH", "the orchestrator has another key")
            self._donor = yield from read_donor(self._calls, self._run, self._key, decision)
        except DonorRefused as refusal:
            yield from self._refusing(refusal.reason, str(refusal))
        except ValueError as error:
            # Not finite, and nobody said so since nobody was reached: there is no key to store by.
            self._outcome.fell_back("lookup", "client", INVALID_ARGUMENT, str(error))
            self._recorder.give_up()


def _own_entry_id() -> str:
    """An id for a run whose request has none: findable as a donor, not by the exact tier."""
    return "e" + uuid.uuid4().hex
