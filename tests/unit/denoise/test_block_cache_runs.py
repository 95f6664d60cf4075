"""Runs with block caching: what is reused and told, alone, beside others, and after trouble."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import math
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.unit.denoise.engine_rig import EVERY_STEP, PARAMS, STEPS, Outcome, Rig, open_rig
from tests.unit.denoise.tiny_pipelines import (
    cogview4_pipeline,
    flux_pipeline,
    pixart_pipeline,
    wan_dual_pipeline,
    wan_pipeline,
)

from skipstone_denoise.blockcache.dbcache import DBCacheState
from skipstone_shared import errors
from skipstone_shared.denoise_runs import DenoiseRequest, ResumeFrom, ResumeKind
from skipstone_shared.generation import (
    BlockCacheConfig,
    BlockCacheReport,
    BranchReport,
    GenerationParams,
    StepProgress,
)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:diffusers.*")

PIPELINES: dict[str, Callable[[], Any]] = {
    "cogview4": cogview4_pipeline,
    "pixart": pixart_pipeline,
    "flux": flux_pipeline,
    "wan": wan_pipeline,
    "wan_dual": wan_dual_pipeline,
}
NEVER = BlockCacheConfig(residual_diff_threshold=0.0, max_warmup_steps=0)
EVERY_OTHER = BlockCacheConfig(
    residual_diff_threshold=1.0, max_warmup_steps=2, max_continuous_cached_steps=1
)
"""Reuses steps 2 and 4 of 6, whatever the weights are."""
BY_DIFFERENCE = BlockCacheConfig(residual_diff_threshold=0.3, max_warmup_steps=1)


def cached(config: BlockCacheConfig | None, **changes: Any) -> GenerationParams:
    return dataclasses.replace(PARAMS, num_frames=1, block_cache=config, **changes)


def report_of(run: Outcome) -> BlockCacheReport:
    assert run.finished.block_cache is not None
    return run.finished.block_cache


def branch_of(run: Outcome, transformer: str = "transformer", branch: str = "cond") -> BranchReport:
    branches = {(b.transformer, b.branch): b for b in report_of(run).branches}
    return branches[transformer, branch]


def reused_steps(run: Outcome) -> list[int]:
    steps = [event for event in run.events if isinstance(event, StepProgress)]
    return [step.step_index for step in steps if step.block_cache_reused]


@pytest.fixture(scope="module")
def rigs() -> Iterator[dict[str, Rig]]:
    open_rigs = {name: Rig(build(), max_concurrent_requests=2) for name, build in PIPELINES.items()}
    yield open_rigs
    for rig in open_rigs.values():
        rig.engine.close()


@pytest.fixture(params=PIPELINES)
def rig(request: pytest.FixtureRequest, rigs: dict[str, Rig]) -> Rig:
    return rigs[request.param]


def test_a_threshold_of_nought_computes_every_step_and_changes_no_bit(rig: Rig) -> None:
    plain, run = rig.run(cached(None)), rig.run(cached(NEVER))
    assert run.picture == plain.picture
    assert plain.finished.block_cache is None
    report = report_of(run)
    assert report.block_calls == report.block_calls_full > 0
    assert not any(branch.reused_steps for branch in report.branches)
    assert reused_steps(run) == []


def test_the_stock_transformer_is_what_it_was_after_a_cached_run(rig: Rig) -> None:
    before = dict(vars(rig.pipeline.transformer))
    rig.run(cached(EVERY_OTHER))
    assert vars(rig.pipeline.transformer) == before


@pytest.mark.parametrize(
    ("name", "branches"),
    [
        ("cogview4", ["cond", "uncond"]),
        ("pixart", ["cond_uncond"]),
        ("flux", ["cond"]),
        ("wan", ["cond", "uncond"]),
    ],
)
def test_a_report_tells_every_step_of_every_guidance_branch(
    rigs: dict[str, Rig], name: str, branches: list[str]
) -> None:
    run = rigs[name].run(cached(EVERY_OTHER))
    report = report_of(run)
    assert [branch.branch for branch in report.branches] == branches
    for branch in report.branches:
        assert (branch.computed_steps, branch.reused_steps) == ((0, 1, 3, 5), (2, 4))
        assert sum(branch.reasons.values()) == STEPS
        assert branch.reasons["warm-up"] == 2
    assert reused_steps(run) == [2, 4]
    assert report.block_calls_full == 2 * STEPS * len(branches)
    assert report.block_calls == report.block_calls_full - 2 * len(branches)


def test_blocks_that_are_told_as_saved_are_really_not_run() -> None:
    with open_rig(cogview4_pipeline()) as rig:
        calls: list[int] = []
        for place, block in enumerate(rig.pipeline.transformer.transformer_blocks):
            block.register_forward_pre_hook(lambda *_, place=place: calls.append(place))
        report = report_of(rig.run(cached(EVERY_OTHER)))
        assert len(calls) == report.block_calls == 20
        assert calls.count(0) == 12
        assert report.block_calls_full == 24


def test_differences_are_told_only_when_asked_for(rigs: dict[str, Rig]) -> None:
    assert branch_of(rigs["flux"].run(cached(BY_DIFFERENCE))).residual_diffs == ()
    asked = dataclasses.replace(BY_DIFFERENCE, report_residual_diffs=True)
    diffs = branch_of(rigs["flux"].run(cached(asked))).residual_diffs
    assert len(diffs) == STEPS
    assert math.isnan(diffs[0])
    assert any(diff > 0 for diff in diffs[1:])


def test_a_run_that_only_decodes_has_nothing_to_tell(rigs: dict[str, Rig]) -> None:
    full = rigs["cogview4"].run(cached(EVERY_OTHER), snapshots=EVERY_STEP)
    decode = ResumeFrom(full.refs[STEPS], STEPS, ResumeKind.DECODE)
    run = rigs["cogview4"].run(cached(EVERY_OTHER), resume=decode)
    assert run.picture == full.picture
    assert run.finished.block_cache is None


def test_two_requests_in_lockstep_equal_the_same_two_one_after_another() -> None:
    """At every call of the model both are inside it, so that whatever they shared would show."""
    with open_rig(cogview4_pipeline(), max_concurrent_requests=2) as rig:
        requests = [
            cached(BY_DIFFERENCE),
            cached(EVERY_OTHER, prompt="a blue square", seed=8, width=32, guidance_scale=5.0),
        ]
        alone = [rig.run(params) for params in requests]
        assert reused_steps(alone[0]) != reused_steps(alone[1])
        together = _run_in_lockstep(rig, requests)
        assert [run.picture for run in together] == [run.picture for run in alone]
        assert [report_of(run) for run in together] == [report_of(run) for run in alone]


def _run_in_lockstep(rig: Rig, requests: list[GenerationParams]) -> list[Outcome]:
    meeting = threading.Barrier(len(requests), timeout=60)

    def meet(*_: Any) -> None:
        meeting.wait()

    handle = rig.pipeline.transformer.transformer_blocks[0].register_forward_pre_hook(meet)
    outcomes: dict[int, Outcome] = {}

    def work(place: int) -> None:
        outcomes[place] = rig.run(requests[place])

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    handle.remove()
    return [outcomes[place] for place in range(len(requests))]


def test_a_request_of_another_size_and_length_runs_as_if_alone(rig: Rig) -> None:
    other = cached(EVERY_OTHER, width=32, num_inference_steps=STEPS + 3)
    alone = [rig.run(cached(BY_DIFFERENCE)).picture, rig.run(other).picture]
    again = [rig.run(other).picture, rig.run(cached(BY_DIFFERENCE)).picture]
    assert again == alone[::-1]


def test_a_request_after_an_aborted_one_runs_as_if_alone() -> None:
    with open_rig(cogview4_pipeline(), max_concurrent_requests=1) as rig:
        alone = rig.run(cached(EVERY_OTHER))
        endless = cached(EVERY_OTHER, num_inference_steps=1000)
        events = rig.engine.run(DenoiseRequest("", endless))
        while not (isinstance(event := next(events), StepProgress) and event.block_cache_reused):
            pass
        events.close()
        after = rig.run(cached(EVERY_OTHER))
        assert (after.picture, report_of(after)) == (alone.picture, report_of(alone))


def test_an_exception_inside_a_block_costs_only_its_own_request() -> None:
    with open_rig(cogview4_pipeline(), max_concurrent_requests=1) as rig:
        alone = rig.run(cached(EVERY_OTHER))
        block = rig.pipeline.transformer.transformer_blocks[1]
        calls = iter(range(1000))
        handle = block.register_forward_pre_hook(lambda *_: _fail() if next(calls) == 4 else None)
        with pytest.raises(RuntimeError, match="no memory"):
            rig.run(cached(EVERY_OTHER))
        handle.remove()
        after = rig.run(cached(EVERY_OTHER))
        assert (after.picture, report_of(after)) == (alone.picture, report_of(alone))


def _fail() -> None:
    raise RuntimeError("no memory")


@pytest.mark.parametrize("ends", ["finished", "aborted", "failed"])
def test_nothing_that_a_run_cached_outlives_it(ends: str) -> None:
    with open_rig(wan_pipeline(), max_concurrent_requests=1) as rig:
        calls = iter(range(1000))
        cached_tensors: list[weakref.ref[torch.Tensor]] = []
        gone = threading.Event()

        def watch(*_: Any) -> None:
            if next(calls) == 4:
                cached_tensors.extend(map(weakref.ref, _cached_tensors()))
                if ends == "aborted":
                    gone.set()
                if ends == "failed":
                    _fail()

        rig.pipeline.transformer.blocks[0].register_forward_pre_hook(watch)
        with contextlib.suppress(errors.Cancelled, RuntimeError):
            rig.run(cached(EVERY_OTHER), cancelled=gone.is_set)
        rig.engine.close()
        stats = rig.engine.get_stats()
        ends_seen = (stats.finished_count, stats.cancelled_count, stats.failed_count)
        assert ends_seen == (ends == "finished", ends == "aborted", ends == "failed")
        gc.collect()
        assert len(cached_tensors) > 0
        assert [ref for ref in cached_tensors if ref() is not None] == []


def test_the_decoder_does_not_share_memory_with_what_was_cached() -> None:
    """Wan's loop keeps the transformer it used last in a local variable until it has decoded."""
    with open_rig(wan_pipeline()) as rig:
        calls = iter(range(1000))
        held = []

        def watch(*_: Any) -> None:
            if next(calls) == 4:
                held.append(len(_cached_tensors()))

        rig.pipeline.transformer.blocks[0].register_forward_pre_hook(watch)
        rig.pipeline.vae.decoder.register_forward_pre_hook(
            lambda *_: held.append(len(_cached_tensors()))
        )
        rig.run(cached(EVERY_OTHER))
        assert held[0] > 0
        assert held[1:] == [0]


def test_hooks_are_hung_anew_on_the_stock_transformer(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of a call a pipeline that offloads its models hooks those it has then."""
    with open_rig(wan_pipeline()) as rig:
        seen: list[Any] = []
        monkeypatch.setattr(
            type(rig.pipeline), "maybe_free_model_hooks", lambda mine: seen.append(mine.transformer)
        )
        rig.run(cached(EVERY_OTHER))
        assert seen == [rig.pipeline.transformer]


def _cached_tensors() -> list[torch.Tensor]:
    """All that block caching holds in this process."""
    states = [found for found in gc.get_objects() if type(found) is DBCacheState]
    return [tensor for state in states for tensor in state.tensors()]


@pytest.mark.parametrize("skip_steps", [1, 3, 5])
def test_a_resumed_run_that_reuses_nothing_equals_the_plain_one(rig: Rig, skip_steps: int) -> None:
    full = rig.run(cached(NEVER), snapshots=EVERY_STEP)
    resume = ResumeFrom(full.refs[skip_steps], skip_steps, ResumeKind.TRAJECTORY)
    resumed = rig.run(cached(NEVER), resume=resume)
    assert (resumed.started.refusal_reason, resumed.picture) == ("", full.picture)
    computed = {step for branch in report_of(resumed).branches for step in branch.computed_steps}
    assert computed == set(range(skip_steps, STEPS))


def test_skipped_steps_were_the_warm_up_of_a_resumed_run(rigs: dict[str, Rig]) -> None:
    """Counted from the resumed step, two more steps of warm-up would be computed."""
    rig = rigs["cogview4"]
    full = rig.run(cached(EVERY_OTHER), snapshots=EVERY_STEP)
    resume = ResumeFrom(full.refs[3], 3, ResumeKind.TRAJECTORY)
    branch = branch_of(rig.run(cached(EVERY_OTHER), resume=resume))
    assert (branch.computed_steps, branch.reused_steps) == ((3, 5), (4,))
    assert "warm-up" not in branch.reasons
    early = ResumeFrom(full.refs[1], 1, ResumeKind.TRAJECTORY)
    branch = branch_of(rig.run(cached(EVERY_OTHER), resume=early))
    assert (branch.computed_steps, branch.reused_steps) == ((1, 3, 5), (2, 4))
    assert branch.reasons["warm-up"] == 1


def test_each_of_two_transformers_has_its_own_settings_and_counts_its_own_steps(
    rigs: dict[str, Rig],
) -> None:
    """The second one takes over at step 4; its first step is its warm-up, not an old one."""
    second = dataclasses.replace(EVERY_OTHER, max_warmup_steps=1)
    run = rigs["wan_dual"].run(cached(dataclasses.replace(EVERY_OTHER, secondary=second)))
    for name in ("cond", "uncond"):
        branch = branch_of(run, "transformer", name)
        assert (branch.computed_steps, branch.reused_steps) == ((0, 1, 3), (2,))
        branch = branch_of(run, "transformer_2", name)
        assert (branch.computed_steps, branch.reused_steps) == ((4,), (5,))
    assert reused_steps(run) == [2, 5]


def test_without_settings_of_its_own_the_second_transformer_takes_the_firsts(
    rigs: dict[str, Rig],
) -> None:
    branch = branch_of(rigs["wan_dual"].run(cached(EVERY_OTHER)), "transformer_2")
    assert (branch.computed_steps, branch.reasons) == ((4, 5), {"warm-up": 2})
