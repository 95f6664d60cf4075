"""Repeats the runs of one small diffusers model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tests.golden.cached_calls import CachedCalls, CountedBlocks, cached_calls
from tests.golden.trace_comparison import (
    DIFF_TOLERANCE,
    DecisionRule,
    Finding,
    compare_context,
    compare_exactly,
    compare_final,
    compare_numbers,
    relative_l1,
)
from tests.golden.trace_models import TraceModel, denoise, sigmas_of, trace_model
from tests.golden.trace_plan import RunPlan, Unsupported, plan_run
from torch import Tensor

from skipstone_denoise.blockcache.adapters import TransformerAdapter
from skipstone_denoise.blockcache.families import adapter_for
from skipstone_denoise.blockcache.settings import DBCacheSettings

PROFILE_PREFIX = "consecutive_diffs_F"
ALWAYS_MEASURED = 1e-30
"""A threshold that no difference is below, so that every step measures and computes."""


@dataclasses.dataclass(frozen=True, slots=True)
class CachedRun:
    """One run with the block cache: final latents, block calls, and the transformers' calls."""

    latents: Tensor
    block_calls: int
    calls: Mapping[str, CachedCalls]


class ModelRuns:
    """A recorded model, built once, and its runs."""

    def __init__(self, entry: Mapping[str, Any], n_steps: int) -> None:
        """Builds the model and runs it uncached.

        Args:
            entry: The model's entry in the trace file.
            n_steps: Denoising steps of its runs.

        Raises:
            Unsupported: a model that is not known here.
        """
        model = trace_model(entry["model"], entry["model_config"])
        if model is None:
            raise Unsupported(f"model {entry['model']}")
        self._entry = entry
        self._n_steps = n_steps
        self._model: TraceModel = model
        self._adapter: TransformerAdapter = adapter_for(model.transformers["transformer"])
        self._branches = ("cond",) if model.batched else tuple(model.inputs)
        first = [model.transformer_at(float(sigma)) for sigma in sigmas_of(n_steps)[:-1]]
        self._steps = {name: first.count(name) for name in model.transformers}
        self._uncached, self._uncached_calls = self._counted(
            lambda name, inputs: model.transformers[name](**inputs)[0]
        )

    def check_uncached(self) -> Finding:
        """Compares the model without a cache: if it differs, so must its runs."""
        recorded = self._entry["uncached"]
        steps = [self._steps["transformer"]] if len(self._steps) > 1 else [0]
        return (
            compare_numbers("high_noise_steps", {}, [self._entry["high_noise_steps"]], steps, 0.0)
            or compare_final(recorded["final"], self._uncached)
            or compare_exactly("block_calls", {}, recorded["block_calls"], self._uncached_calls)
        )

    def check_profile(self, name: str) -> Finding:
        """Compares the differences between neighbouring steps, all of them computed.

        Raises:
            Unsupported: a profile of another kind.
        """
        if not name.startswith(PROFILE_PREFIX):
            raise Unsupported(f"profile {name}")
        settings = DBCacheSettings(
            fn_compute_blocks=int(name.removeprefix(PROFILE_PREFIX)),
            max_warmup_steps=1,
            max_continuous_cached_steps=-1,
            residual_diff_threshold=ALWAYS_MEASURED,
        )
        plan = RunPlan(dict.fromkeys(self._steps, settings), self._branches, self._steps)
        recorded = [
            [
                context | {"executed_steps": steps, "cached_steps": (), "cfg_cached_steps": ()}
                for context in contexts
            ]
            for contexts, steps in zip(
                self._entry["profiles"][name], self._steps.values(), strict=True
            )
        ]
        return self._compare_contexts(recorded, plan, self._run(plan))

    def check_run(self, run: Mapping[str, Any]) -> Finding:
        """Compares a run: decisions, then how many blocks ran, then the final latents.

        Raises:
            Unsupported: the run needs what Skipstone does not have.
        """
        plan = plan_run(run, self._branches, self._steps)
        cached = self._run(plan)
        error = relative_l1(cached.latents, self._uncached)
        return (
            self._compare_contexts(run["contexts"], plan, cached)
            or compare_exactly("block_calls", {}, run["block_calls"], cached.block_calls)
            or compare_final(run["final"], cached.latents)
            or compare_numbers("rel_l1_final", {}, [run["rel_l1_final"]], [error], DIFF_TOLERANCE)
        )

    def _run(self, plan: RunPlan) -> CachedRun:
        calls_before, before = [], 0
        for steps in self._steps.values():
            calls_before.append(before)
            before += steps * len(self._branches)
        calls = cached_calls(self._model.transformers, self._adapter, plan, calls_before)
        latents, block_calls = self._counted(lambda name, inputs: calls[name](**inputs)[0])
        return CachedRun(latents, block_calls, calls)

    def _counted(self, call: Callable[[str, dict[str, Any]], Tensor]) -> tuple[Tensor, int]:
        transformers = self._model.transformers.values()
        watches = [CountedBlocks(transformer, self._adapter) for transformer in transformers]
        try:
            latents = denoise(self._model, call, self._n_steps)
        finally:
            for watch in watches:
                watch.close()
        return latents, sum(len(watch.calls) for watch in watches)

    def _compare_contexts(
        self, recorded: list[list[dict[str, Any]]], plan: RunPlan, cached: CachedRun
    ) -> Finding:
        for (name, calls), contexts in zip(cached.calls.items(), recorded, strict=True):
            if len(contexts) > 1:
                raise Unsupported("block lists with a state each: the report has one per branch")
            rule = DecisionRule(
                threshold=plan.settings[name].residual_diff_threshold,
                diff_tolerance=DIFF_TOLERANCE,
                near=DIFF_TOLERANCE,
            )
            found = compare_context(
                contexts[0], calls.observed(), calls.executed_steps, plan.branches, rule
            )
            if found:
                return found.at({"transformer": name}) if len(recorded) > 1 else found
        return Finding()
