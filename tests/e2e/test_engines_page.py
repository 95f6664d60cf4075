"""The programs of docs/engines.md do what the page says, with real services."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.e2e.processes import Cluster, service_environment

from skipstone_client import EngineRun, ReuseSession
from skipstone_client.session_limits import SessionLimits
from skipstone_shared.latents import (
    DType,
    GuidanceMode,
    LatentFingerprint,
    TensorSpec,
    canonical_hash,
)
from skipstone_shared.orchestration import CacheOptions, HitTier, ReuseKind
from skipstone_shared.ports import default_target

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "engines.md"


def program(name: str, cluster: Cluster, namespace: str) -> str:
    """A program of the page, pointed at the cluster of the test."""
    text = PAGE.read_text(encoding="utf-8")
    (code,) = re.findall(rf"```python\n(# {re.escape(name)}\n.*?)```", text, re.DOTALL)
    for service in ("orchestrator", "latent_kv"):
        code = code.replace(default_target(service), cluster.targets[service])
    # A busy machine must not turn a hit into a fallback.
    patient = f'namespace="{namespace}", limits=SessionLimits(30.0, 0.0, 30.0)'
    code = re.sub(r'namespace="[^"]*"', patient, code)
    return f"from skipstone_client.session_limits import SessionLimits\n{code}"


def output(code: str) -> list[list[str]]:
    """The words of each line that a program prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=service_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


def test_the_loop_of_ones_own_prints_what_the_page_says(cluster: Cluster, namespace: str) -> None:
    lines = output(program("own_loop.py", cluster, namespace))
    assert [line[1] for line in lines] == ["miss", "exact", "approximate"]
    skipped = [int(line[-1]) for line in lines]
    assert skipped[:2] == [0, 20]
    assert 0 < skipped[2] < 20


def test_the_loop_in_asyncio_prints_what_the_page_says(cluster: Cluster, namespace: str) -> None:
    described, _ = program("own_loop.py", cluster, namespace).split("with ReuseSession(", 1)
    lines = output(described + program("async_loop.py", cluster, namespace))
    assert lines == [["miss"], ["exact", "approximate"]]


@pytest.mark.parametrize("prediction_type", ["flow", "epsilon"])
def test_the_sampler_function_resumes_and_ends_where_the_full_run_ends(
    cluster: Cluster, namespace: str, prediction_type: str
) -> None:
    parts: dict[str, Any] = {}
    exec(program("sampler.py", cluster, namespace), parts)
    steps, shape = 12, (1, 4, 8, 8)
    first = 1.0 if prediction_type == "flow" else 14.6
    sigmas = torch.linspace(first, 0.0, steps + 1)
    fingerprint = LatentFingerprint(
        model_id="toy",
        weights_hash="1",
        pipeline_class="comfy",
        text_encoder_id="clip",
        vae_id="vae",
        latents=TensorSpec(DType.FLOAT32, shape),
        height=64,
        width=64,
        scheduler_class="euler",
        scheduler_config_hash="",
        sigmas_hash=canonical_hash(sigmas.tolist()),
        num_inference_steps=steps,
        prediction_type=prediction_type,
        guidance_mode=GuidanceMode.NONE,
    )
    seen: list[int] = []

    def model(x: torch.Tensor, sigma: torch.Tensor, **options: Any) -> torch.Tensor:
        return torch.tanh(x / (1.0 + sigma.reshape(-1, 1, 1, 1)) + 0.3)

    def sample(session: ReuseSession, seed: int) -> torch.Tensor:
        run = EngineRun(fingerprint, tuple(sigmas.tolist()), seed)
        sampler = parts["reused_euler"](session, "a small red fox in the snow", run)
        noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        result: torch.Tensor = sampler(
            model, noise * sigmas[0], sigmas, callback=lambda told: seen.append(told["i"])
        )
        assert session.flush(60.0)
        return result

    targets = cluster.targets["orchestrator"], cluster.targets["latent_kv"]
    trajectory = CacheOptions(allow_exact=False, reuse_kind=ReuseKind.TRAJECTORY, key_steps=(2, 4))
    there: dict[str, Any] = {"namespace": namespace, "limits": SessionLimits(30.0, 0.0, 30.0)}
    with ReuseSession(*targets, cache=trajectory, **there) as session:
        full = sample(session, 1)
        assert seen == list(range(steps))
        seen.clear()
        resumed = sample(session, 1)
        assert seen in (list(range(2, steps)), list(range(4, steps)))
        assert torch.equal(resumed, full)
    with ReuseSession(*targets, **there) as session:
        seen.clear()
        other = sample(session, 2)
        assert session.stats.approximate == 1
        assert len(seen) < steps
        assert not np.array_equal(other, full)


@pytest.mark.long
def test_the_script_around_a_stock_pipeline_prints_what_the_page_says(
    cluster: Cluster, namespace: str
) -> None:
    lines = output(program("script.py", cluster, namespace))
    assert [line[1] for line in lines] == [
        HitTier.MISS.value,
        HitTier.EXACT.value,
        HitTier.APPROXIMATE.value,
    ]
    assert [int(line[-1]) for line in lines][:2] == [0, 30]


TWO_RANKS = """
import contextlib
from skipstone_client import ReuseSession

dist.init_process_group("gloo")
rank = dist.get_rank()
session = ReuseSession({targets}, namespace="ranks") if rank == 0 else contextlib.nullcontext()
with session:
    for seed in (1, 1):
        drawn = np.random.default_rng(seed if rank == 0 else 99).standard_normal(SHAPE)
        noise = torch.from_numpy(drawn).float()
        asked = session.request("a fox", describe(seed)) if rank == 0 else contextlib.nullcontext()
        with asked as request:
            latents, start = resume_on_all(request, noise)
            for step in range(start, STEPS):
                latents = torch.from_numpy(denoise(latents.numpy(), step, "a fox"))
            if rank == 0:
                request.finish(latents)
        if rank == 0:
            session.flush()
        print("RANK", start, round(float(latents.double().sum()), 9), flush=True)
        dist.barrier()
"""


@pytest.mark.long
def test_two_ranks_begin_at_the_same_step_with_the_same_latents(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    described, _ = program("own_loop.py", cluster, namespace).split("with ReuseSession(", 1)
    targets = f"{cluster.targets['orchestrator']!r}, {cluster.targets['latent_kv']!r}"
    ranks = program("ranks.py", cluster, namespace)
    body = re.sub(
        r'namespace="[^"]*"',
        f'namespace="{namespace}", limits=SessionLimits(30.0, 0.0, 30.0)',
        TWO_RANKS.replace("{targets}", targets),
    )
    file = tmp_path / "two.py"
    file.write_text(described + ranks + body)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", "2", str(file)),
        ],
        env=service_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = sorted(line.split()[1:] for line in done.stdout.splitlines() if line.startswith("RANK"))
    # Both ranks say the same of the full run, and of the one that is a stored result.
    assert [int(start) for start, _ in told] == [0, 0, 20, 20]
    assert len({total for _, total in told}) == 1
