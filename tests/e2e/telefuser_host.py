"""The part of TeleFuser that works with its latent cache, as its contract states it.

The order of the calls, the fields, the event loops and what is dropped are the host's; the model
is a few lines of arithmetic.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from PIL import Image

from skipstone_client.adapters.telefuser.cache_factory import CacheServiceFactory

STEPS = 20
SHAPES = {"720p": (1, 4, 3, 6, 8), "480p": (1, 4, 3, 4, 6)}


def write_pipeline_file(folder: Path, *, ppl: dict[str, Any] | None = None, **cache: Any) -> Path:
    """A pipeline file as users have it: a Python file with two dictionaries in it."""
    ppl_config = {
        "name": "tiny",
        "model_root": "/nowhere/tiny",
        "negative_prompt": "blurry",
        "num_inference_steps": STEPS,
        "num_frames": 9,
        "resolution": "720p",
        "aspect_ratio": "16:9",
        "cfg_scale_high": 5.0,
        "cfg_scale_low": 5.0,
        "seed": 42,
        "sigma_shift": 3.0,
        "boundary": 0.9,
        "sample_solver": "euler",
        **(ppl or {}),
    }
    file = folder / "pipeline.py"
    file.write_text(f"PPL_CONFIG = {ppl_config!r}\nCACHE_CONFIG = {cache!r}\n", encoding="utf-8")
    return file


@dataclasses.dataclass
class Done:
    """What a request of the host came to."""

    latents: torch.Tensor
    latent_data: dict[str, Any]
    skip_step: int
    saved_steps: list[int]
    outputs: Any


class Host:
    """One host with its cache."""

    def __init__(
        self,
        ppl_file: Path,
        *,
        enable_latent_cache: bool | None = None,
        cache_mode: str | None = None,
    ) -> None:
        self.service, self.adapter = CacheServiceFactory.create_cache_service(
            ppl_file=str(ppl_file),
            enable_latent_cache=enable_latent_cache,
            cache_mode=cache_mode,
        )
        self.between: Callable[[str], None] = lambda place: None

    def run(self, prompt: str, seed: int | None = 42, **fields: Any) -> Done:
        """One request, in an event loop of its own."""
        return asyncio.run(self.generate(prompt, seed, **fields))

    async def generate(self, prompt: str, seed: int | None = 42, **fields: Any) -> Done:
        task_data = {
            "task_id": f"task-{id(fields)}",
            "task": "t2v",
            "prompt": prompt,
            "negative_prompt": "",
            "first_image_path": "",
            "resolution": "720p",
            "aspect_ratio": "16:9",
            "target_video_length": 5,
            "output_path": "out.mp4",
            **fields,
        }
        if seed is not None:
            task_data["seed"] = seed
        request = SimpleNamespace(
            task_id=task_data["task_id"], task=task_data["task"], prompt=prompt, seed=seed
        )
        query = self.adapter.build_query(request)
        self.between("lookup")
        result = await self.service.lookup(query)
        self.between("apply_resume")
        latent_data = self.adapter.apply_resume(result, engine_ctx=task_data)
        self.between("inference")
        latents, skip_step, payload = _denoise(task_data, latent_data, seed)
        self.between("save")
        outputs = self.adapter.on_response(request, payload)
        await self.service.save(query, outputs)
        return Done(latents, latent_data, skip_step, payload["saved_steps"], outputs)

    def shutdown_twice(self) -> None:
        """As the host ends: once under the loop that served, once under another."""

        async def end() -> None:
            self.service.shutdown()

        asyncio.run(end())
        asyncio.run(end())


def _denoise(
    task_data: dict[str, Any], latent_data: dict[str, Any], seed: int | None
) -> tuple[torch.Tensor, int, dict[str, Any]]:
    shape = SHAPES[task_data["resolution"]]
    cached, skip_step, saved_steps = _parsed(latent_data, shape, STEPS)
    generator = torch.Generator().manual_seed(42 if seed is None else seed)
    latents = torch.randn(shape, generator=generator).to(torch.bfloat16)
    if cached is not None:
        latents = cached
    states = {}
    for step in range(skip_step, STEPS):
        if step in saved_steps:
            states[step] = latents.clone()
        pull = len(task_data["prompt"]) / 10 + step
        latents = (latents.float() - torch.tanh(latents.float() + pull) / STEPS).to(torch.bfloat16)
    payload = {
        "latent_states_dict": states,
        "saved_steps": saved_steps,
        "final_step": STEPS - 1,
        "num_frames": 9,
        "embedding_video_frames": [Image.new("RGB", (64, 48), (20 * n, 90, 30)) for n in range(9)],
    }
    return latents, skip_step, payload


def _parsed(
    latent_data: dict[str, Any], shape: tuple[int, ...], total_steps: int
) -> tuple[torch.Tensor | None, int, list[int]]:
    """What the host makes of the dictionary; a value that is no number fails the request."""
    cached = latent_data.get("cached_latent")
    skip_step = int(latent_data.get("skip_step") or 0)
    saved_steps = [int(step) for step in latent_data.get("saved_steps") or []]
    usable = isinstance(cached, torch.Tensor) and tuple(cached.shape) == shape
    if not usable or not 0 < skip_step < total_steps:
        cached, skip_step = None, 0
    return cached, skip_step, sorted({s for s in saved_steps if skip_step <= s < total_steps})
