"""A reuse session against a real orchestrator and a real latent store: an engine keeps its loop.

The session may cost an engine time, within bounds; it may never cost it a request.
"""

from __future__ import annotations

import dataclasses
import math
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import numpy as np
import pytest
import torch
from tests.contract.reuse_rig import (
    PATIENT,
    SIGMAS,
    STEPS,
    ReuseRig,
    Shown,
    denoised,
    generate,
    noise_of,
    open_reuse_rig,
    run_of,
)

from skipstone_client import EngineRun, LatentKVClient
from skipstone_client.engine_runs import SolverState
from skipstone_client.torch_arrays import to_array
from skipstone_latent_kv.memory_store import MemoryStore
from skipstone_latent_kv.server import mount
from skipstone_shared.errors import EntryNotFound, FailedPrecondition
from skipstone_shared.grpc_server import in_process_server
from skipstone_shared.latents import DType
from skipstone_shared.orchestration import CacheMode, CacheOptions, HitTier, ReuseKind
from skipstone_shared.stored_entries import StoredEntry

PROMPT = "a red circle on a blue background"
NEAR = "a red circle on a green background"
KEY_STEPS = (1, 3, 5)
ODD_STEPS = (1, 3, 5, 7)
TRAJECTORY = CacheOptions(allow_exact=False, reuse_kind=ReuseKind.TRAJECTORY, key_steps=KEY_STEPS)
NUMPY_DTYPES = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16, DType.FLOAT64)


@pytest.fixture(params=["sync", "async"])
def form(request: pytest.FixtureRequest) -> str:
    """Both forms of a session keep the same promises."""
    form: str = request.param
    return form


@pytest.fixture
def rig(form: str) -> Iterator[ReuseRig]:
    with open_reuse_rig(form) as opened:
        yield opened


def stored(rig: ReuseRig, entry_id: str) -> StoredEntry:
    return rig.store.get_entry("default", entry_id)


@contextmanager
def silent_port() -> Iterator[str]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=lambda dtype: dtype.value)
def test_the_same_request_again_gets_its_result_back_and_runs_no_step(
    rig: ReuseRig, dtype: DType
) -> None:
    with rig.session() as session:
        first, made = rig.generate(session, PROMPT, run_of(1, dtype))
        again, request = rig.generate(session, PROMPT, run_of(1, dtype))
    assert made.provenance.tier is HitTier.MISS
    assert made.provenance.saved is True
    assert request.provenance.tier is HitTier.EXACT
    assert request.start_step == STEPS
    assert request.provenance.entry_id == ""
    assert again.dtype == first.dtype
    assert again.tobytes() == first.tobytes()


@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=lambda dtype: dtype.value)
def test_a_run_resumed_from_its_own_snapshot_equals_the_full_run(
    rig: ReuseRig, dtype: DType
) -> None:
    with rig.session(cache=TRAJECTORY) as session:
        full, _ = rig.generate(session, PROMPT, run_of(1, dtype))
        resumed, request = rig.generate(session, PROMPT, run_of(1, dtype))
    told = request.provenance
    assert (told.tier, told.kind, told.skip_steps) == (
        HitTier.APPROXIMATE,
        ReuseKind.TRAJECTORY,
        5,
    )
    assert resumed.tobytes() == full.tobytes()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ReuseKind)
def test_tensors_go_in_and_come_out_as_arrays_do(
    rig: ReuseRig, dtype: torch.dtype, kind: ReuseKind
) -> None:
    name = DType(str(dtype).removeprefix("torch."))
    cache = dataclasses.replace(TRAJECTORY, reuse_kind=kind)
    noise = noise_of(2, DType.FLOAT32)
    with rig.session(cache=cache) as session:
        rig.generate(session, PROMPT, run_of(1, name))
        starts = []
        for given in (torch.from_numpy(noise), noise):
            with session.request(NEAR, run_of(2, name)) as request:
                starts.append(request.resume(given))
    (tensor, step), (array, same_step) = starts
    assert isinstance(tensor, torch.Tensor)
    assert tensor.dtype is dtype
    assert step == same_step > 0
    assert to_array(tensor).tobytes() == array.tobytes()


@pytest.mark.parametrize("prediction_type", ["flow", "epsilon"])
def test_another_seed_gets_the_clean_donor_under_noise_of_its_own(
    rig: ReuseRig, prediction_type: str
) -> None:
    flow = prediction_type == "flow"
    # Where noise is added, its level is a share of the signal and has no upper bound.
    sigmas = SIGMAS if flow else tuple(14.0 * sigma for sigma in SIGMAS)
    donor, run = (
        EngineRun(run_of(prediction_type=prediction_type).fingerprint, sigmas, seed)
        for seed in (1, 2)
    )
    noise = noise_of(2)
    with rig.session() as session:
        clean, _ = rig.generate(session, PROMPT, donor)
        with session.request(PROMPT, run) as request:
            latents, start = request.resume(noise)
    sigma = np.float32(sigmas[start])
    signal = np.float32(1.0 - sigmas[start]) if flow else np.float32(1.0)
    assert request.provenance.kind is ReuseKind.RENOISE
    assert 0 < start < STEPS
    assert np.array_equal(latents, signal * clean + sigma * noise)


def test_a_resumed_run_stores_only_what_it_computed_and_never_donates(rig: ReuseRig) -> None:
    with rig.session(cache=TRAJECTORY) as session:
        _, donor = rig.generate(session, PROMPT, run_of(1))
        _, resumed = rig.generate(session, NEAR, run_of(2))
        assert resumed.provenance.donor_entry_id == donor.provenance.entry_id
        start = resumed.start_step
        entry = stored(rig, resumed.provenance.entry_id)
        steps = [s.metadata.step_index for s in entry.snapshots]
        assert steps == [*(k for k in KEY_STEPS if k > start), STEPS]
        assert {s.metadata.depth for s in entry.snapshots} == {1}
        # Nearest by prompt is the resumed run itself, and it may not donate.
        _, next_one = rig.generate(session, NEAR, run_of(2))
        assert next_one.provenance.donor_entry_id == donor.provenance.entry_id


def test_what_a_solver_remembers_comes_back_with_its_donor(rig: ReuseRig) -> None:
    solver = SolverState({"scheduler.last": np.arange(3, dtype=np.float32)}, '{"order":2}')
    with rig.session(cache=TRAJECTORY) as session:
        with session.request(PROMPT, run_of(1)) as request:
            latents, _ = request.resume(noise_of(1))
            request.snapshot(3, latents, solver)
            request.finish(latents)
        session.flush()
        with session.request(PROMPT, run_of(1)) as again:
            donor = again.donor()
    assert donor is not None
    assert donor.start_step == 3
    assert donor.solver.state_json == solver.state_json
    assert donor.solver.parts["scheduler.last"].tolist() == [0, 1, 2]


def test_a_donor_that_the_engine_refuses_leaves_a_full_run_under_its_own_id(rig: ReuseRig) -> None:
    with rig.session(cache=TRAJECTORY) as session:
        rig.generate(session, PROMPT, run_of(1))
        with session.request(NEAR, run_of(2)) as request:
            assert request.donor() is not None
            request.refuse("SOLVER_HISTORY_MISSING", "no history")
            request.finish(denoised(noise_of(2), 0, NEAR))
        session.flush()
        told = request.provenance
        assert (told.tier, told.reason, told.skip_steps) == (
            HitTier.MISS,
            "SOLVER_HISTORY_MISSING",
            0,
        )
        exact = CacheOptions(reproducible=True)
        _, again = rig.generate(session, NEAR, run_of(2), cache=exact)
    assert again.provenance.tier is HitTier.EXACT
    assert again.provenance.donor_entry_id == told.entry_id
    assert (session.stats.misses, session.stats.approximate) == (2, 0)


@pytest.mark.parametrize("trouble", ["gone", "replaced", "down", "silent"])
def test_a_donor_that_is_not_what_was_promised_costs_a_full_run_and_no_error(
    rig: ReuseRig, trouble: str
) -> None:
    wanted = {
        "gone": "LATENT_NOT_FOUND",
        "replaced": "SPEC_MISMATCH",
        "down": "STORE_UNAVAILABLE",
        "silent": "STORE_TIMEOUT",
    }
    with rig.session() as session:
        clean, donor = rig.generate(session, PROMPT, run_of(1))
    with closing(MemoryStore(max_snapshot_bytes=1 << 20)) as other, silent_port() as silence:
        with in_process_server(mount(other)) as target:
            if trouble == "replaced":
                _put(target, stored(rig, donor.provenance.entry_id), clean + 1)
            there = {"down": closed_port(), "silent": silence}.get(trouble, target)
            limits = dataclasses.replace(PATIENT, close_timeout_s=0.05, write_timeout_s=0.2)
            if trouble == "silent":
                limits = dataclasses.replace(limits, read_timeout_s=0.2)
            with rig.session(latent_kv_target=there, limits=limits) as session:
                with session.request(PROMPT, run_of(1)) as request:
                    result = generate(request, PROMPT, run_of(1))
    told = request.provenance
    assert (told.tier, told.reason) == (HitTier.MISS, wanted[trouble])
    assert told.fallbacks[-1].stage == "resume"
    assert np.array_equal(result, clean)


def _put(target: str, entry: StoredEntry, latents: Any) -> None:
    """Writes latents under the id and step of an entry's snapshot."""
    with LatentKVClient(target) as client:
        client.write_arrays("default", entry.snapshots[-1].metadata, {"latents": latents})


def test_without_an_orchestrator_every_request_runs_from_noise_and_says_why(rig: ReuseRig) -> None:
    now = [0.0]
    limits = dataclasses.replace(PATIENT, retry_pause_s=5.0)
    with rig.session(
        orchestrator_target=closed_port(), limits=limits, clock=lambda: now[0]
    ) as session:
        result, asked = rig.generate(session, PROMPT, run_of(1))
        _, passed_over = rig.generate(session, PROMPT, run_of(1))
        now[0] += 5.0
        _, asked_again = rig.generate(session, PROMPT, run_of(1))
    assert np.array_equal(result, denoised(noise_of(1), 0, PROMPT))
    for request in (asked, passed_over, asked_again):
        told = request.provenance
        assert (told.tier, told.reason) == (HitTier.MISS, "LOOKUP_FAILED")
        assert told.fallbacks[0].reason == "UNAVAILABLE"
        assert told.saved is False
        assert told.save_failure.startswith("UNAVAILABLE")
    assert "a moment ago" in passed_over.provenance.fallbacks[0].message
    assert "a moment ago" not in asked_again.provenance.fallbacks[0].message
    assert session.stats.lost_entries == 3


def test_services_that_hang_cost_a_bounded_time(rig: ReuseRig) -> None:
    limits = dataclasses.replace(
        PATIENT, lookup_timeout_s=0.2, write_timeout_s=60.0, close_timeout_s=0.05, queue_size=1
    )
    with silent_port() as silence:
        hanging = {"orchestrator_target": silence, "latent_kv_target": silence}
        with rig.session(**hanging, limits=limits) as session:
            cache = CacheOptions(key_steps=tuple(range(1, STEPS)))
            with session.request(PROMPT, run_of(1), cache) as request:
                result = generate(request, PROMPT, run_of(1))
    assert np.array_equal(result, denoised(noise_of(1), 0, PROMPT))
    told = request.provenance
    assert (told.reason, told.fallbacks[0].reason) == ("LOOKUP_FAILED", "DEADLINE_EXCEEDED")
    # One is being written, one waits, the rest are dropped, and closing waits for none.
    assert session.stats.dropped_snapshots >= STEPS - 2
    assert {reason.split(":")[0] for reason in told.failures.values()} >= {"QUEUE_FULL"}
    assert told.saved is False


def test_an_exception_or_a_run_without_end_saves_nothing(rig: ReuseRig) -> None:
    with rig.session(cache=TRAJECTORY) as session:
        failed = session.request(PROMPT, run_of(1))
        with suppress(ZeroDivisionError), failed:
            generate(failed, PROMPT, run_of(1))
            raise ZeroDivisionError
        with session.request(PROMPT, run_of(2)) as unfinished:
            latents, _ = unfinished.resume(noise_of(2))
            unfinished.snapshot(1, latents)
        assert session.flush(30.0)
        _, later = rig.generate(session, PROMPT, run_of(1))
    assert later.provenance.reason == "NO_CANDIDATE"
    assert failed.provenance.saved is None
    assert rig.index.ids() == [later.provenance.entry_id]


def test_latents_that_must_not_be_reused_are_not_stored(rig: ReuseRig) -> None:
    cache = dataclasses.replace(TRAJECTORY, key_steps=ODD_STEPS)
    with rig.session(cache=cache) as session:
        with session.request(PROMPT, run_of(1)) as request:
            latents, _ = request.resume(noise_of(1))
            request.snapshot(1, np.full_like(latents, np.nan))
            request.snapshot(3, latents.astype(np.float16))
            request.snapshot(5, latents.astype(np.int32))
            request.snapshot(7, "no latents at all")
            request.finish(latents)
        session.flush()
    told = request.provenance
    assert {step: why.split(":")[0] for step, why in told.failures.items()} == {
        1: "NOT_FINITE",
        3: "SPEC_MISMATCH",
        5: "INVALID_ARGUMENT",
        7: "NOT_COPIED",
    }
    assert [s.metadata.step_index for s in stored(rig, told.entry_id).snapshots] == [STEPS]
    assert session.stats.failed_snapshots == 4


def test_each_mode_does_what_it_says_and_no_more(rig: ReuseRig) -> None:
    def cache(mode: CacheMode) -> CacheOptions:
        return CacheOptions(mode=mode)

    with rig.session() as session:
        _, read_only = rig.generate(session, PROMPT, run_of(1), cache=cache(CacheMode.READ_ONLY))
        _, off = rig.generate(session, PROMPT, run_of(1), cache=cache(CacheMode.OFF))
        assert rig.index.ids() == []
        for _ in range(2):
            _, write_only = rig.generate(
                session, PROMPT, run_of(1), cache=cache(CacheMode.WRITE_ONLY)
            )
        _, hit = rig.generate(session, PROMPT, run_of(1), cache=cache(CacheMode.READ_ONLY))
    reasons = [r.provenance.reason for r in (read_only, off, write_only, hit)]
    assert reasons == ["NO_CANDIDATE", "CACHE_OFF", "WRITE_ONLY", "EXACT_HIT"]
    assert (off.key_steps, read_only.key_steps) == ((), ())
    assert rig.index.ids() == [write_only.provenance.entry_id]


def test_a_run_that_cannot_be_described_runs_from_noise(rig: ReuseRig) -> None:
    nowhere = run_of(1, guidance_scales=(math.nan,))
    short = EngineRun(run_of(1).fingerprint, SIGMAS[:-1], 1)
    with rig.session() as session:
        for run, prompt in ((nowhere, PROMPT), (short, PROMPT), (run_of(-1), PROMPT)):
            with session.request(prompt, run) as request:
                noise = noise_of(1)
                latents, start = request.resume(noise)
                request.finish(latents)
            assert (latents is noise, start) == (True, 0)
            told = request.provenance
            assert (told.reason, told.saved) == ("INVALID_ARGUMENT", None)
        session.flush()
    assert rig.index.ids() == []


def test_noise_of_another_shape_is_not_replaced_by_a_donor(rig: ReuseRig) -> None:
    with rig.session() as session:
        rig.generate(session, PROMPT, run_of(1))
        with session.request(PROMPT, run_of(1)) as request:
            noise = np.zeros((1, 2), np.float32)
            latents, start = request.resume(noise)
    assert (latents is noise, start) == (True, 0)
    assert request.provenance.reason == "SPEC_MISMATCH"


def test_methods_called_out_of_order_say_so(rig: ReuseRig) -> None:
    with rig.session() as session, session.request(PROMPT, run_of(1)) as request:
        with pytest.raises(FailedPrecondition, match="between resume and finish"):
            request.snapshot(1, noise_of(1))
        with pytest.raises(FailedPrecondition, match="after resume"):
            request.finish()
        request.resume(noise_of(1))
        with pytest.raises(FailedPrecondition, match="once"):
            request.resume(noise_of(1))


def test_requests_of_a_closed_session_run_from_noise(rig: ReuseRig) -> None:
    with rig.session() as session:
        session.close()
        session.close()
        with session.request(PROMPT, run_of(1)) as request:
            result = generate(request, PROMPT, run_of(1))
    assert np.array_equal(result, denoised(noise_of(1), 0, PROMPT))
    assert request.provenance.reason == "LOOKUP_FAILED"
    with pytest.raises(EntryNotFound):
        stored(rig, request.provenance.entry_id)


def test_frames_of_what_a_run_made_find_it_where_donors_are_found_by_frames(form: str) -> None:
    by_frames = open_reuse_rig(form, donor_vectors="frames", donor_frames=3)
    with by_frames as rig, rig.session() as session:
        for frames in ([Shown(NEAR)] * 9, [object()]):
            run = run_of(len(frames))
            with session.request(PROMPT, run) as request:
                assert request.donor_frames == 0
                latents, _ = request.resume(noise_of(1))
                assert request.donor_frames == 3
                request.finish(denoised(latents, 0, PROMPT), frames)
            assert session.flush(30.0)
            # What is no picture costs the entry nothing but that it is not found by it.
            assert request.provenance.saved
        entries = [e.entry for part in rig.index.partitions.values() for e in part.values()]
        assert [e.embedding_model_id for e in entries] == ["bag-of-words#frames", "bag-of-words"]
        _, near = rig.generate(session, NEAR, run_of(2))
        assert near.provenance.tier is HitTier.APPROXIMATE
        assert near.provenance.donor_entry_id == entries[0].entry_id


_ENDS_WITHOUT_CLOSING = """
from skipstone_client import ReuseSession
from tests.contract.reuse_rig import PATIENT, generate, run_of
session = ReuseSession({orchestrator!r}, {store!r}, limits=PATIENT)
with session.request({prompt!r}, run_of(1)) as request:
    generate(request, {prompt!r}, run_of(1))
"""
_LOOP_ENDS_WITHOUT_CLOSING = """
import asyncio
from skipstone_client.aio import AsyncReuseSession
from tests.contract.reuse_rig import PATIENT, denoised, noise_of, run_of
async def main():
    session = AsyncReuseSession({orchestrator!r}, {store!r}, limits=PATIENT)
    async with session.request({prompt!r}, run_of(1)) as request:
        latents, start = await request.resume(noise_of(1))
        await request.finish(denoised(latents, start, {prompt!r}))
asyncio.run(main())
"""


def test_a_program_that_ends_without_closing_loses_nothing(rig: ReuseRig, form: str) -> None:
    program = _ENDS_WITHOUT_CLOSING if form == "sync" else _LOOP_ENDS_WITHOUT_CLOSING
    code = program.format(
        orchestrator=rig.orchestrator_target, store=rig.latent_kv_target, prompt=PROMPT
    )
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, check=True)
    with rig.session() as session:
        _, request = rig.generate(session, PROMPT, run_of(1))
    assert request.provenance.tier is HitTier.EXACT


def test_an_engine_of_arrays_never_imports_torch() -> None:
    code = """
import sys
import numpy as np
from skipstone_client import EngineRun, ReuseSession
from skipstone_client.engine_latents import copied_array, renoised
from skipstone_shared.orchestration import CacheOptions
copied_array(renoised(np.ones((2, 2), np.float16), np.zeros((2, 2)), 0.5, flow=True))
with ReuseSession("127.0.0.1:1", "127.0.0.1:1") as session:
    pass
print(sorted({"torch", "structlog", "pydantic"} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
