"""Block caching of one run: its state, and its own transformers around the shared blocks."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from skipstone_denoise.block_caching import RunBlockCachePlan
from skipstone_denoise.blockcache.cached_transformer import with_block_cache
from skipstone_denoise.blockcache.state import BlockCacheState
from skipstone_shared.generation import BlockCacheReport


class RunBlockCache:
    """Used by the thread of the run. All that is remembered between steps ends with the loop."""

    def __init__(self, plan: RunBlockCachePlan) -> None:
        """Prepares a run.

        Args:
            plan: Settings and adapters; many runs share it.
        """
        self._plan = plan
        self._state: BlockCacheState | None = plan.new_state()
        self._pipeline: Any = None
        self._originals: dict[str, torch.nn.Module] = {}
        self._report: BlockCacheReport | None = None

    def loop_begins(self, pipeline: Any, step_index: int) -> None:
        """Gives the request's own pipeline object transformers that cache.

        Args:
            pipeline: The request's own object; the loaded one is not changed.
            step_index: The absolute step that runs first.
        """
        assert self._state is not None
        self._pipeline = pipeline
        adapters = self._plan.adapters
        self._originals = {name: getattr(pipeline, name) for name in adapters}
        # Not by plain assignment, which would enter the copy into the pipeline's configuration.
        pipeline.__dict__.update(
            {
                name: with_block_cache(module, adapters[name], self._state, name)
                for name, module in self._originals.items()
            }
        )
        self._state.begin_step(step_index)

    def step_done(self, step_index: int) -> bool:
        """Begins the step after this one; returns whether this one reused anything."""
        assert self._state is not None
        reused = self._state.reused_at(step_index)
        self._state.begin_step(step_index + 1)
        return reused

    def loop_ended(self) -> None:
        """Puts the transformers back and frees the state.

        The decoder needs the memory, and a pipeline that offloads its models hangs its hooks anew
        on the transformers it has at the end of a call.
        """
        if self._state is None or self._pipeline is None:
            return
        self._pipeline.__dict__.update(self._originals)
        self._report = self.report()
        # Wan's call keeps the transformer it used last in a local variable until it returns.
        self._state.release()
        self._state = None

    def report(self) -> BlockCacheReport | None:
        """What happened so far; None while no step has run."""
        if self._state is None:
            return self._report
        report = self._state.report()
        if not report.branches:
            return None
        return dataclasses.replace(report, notes=self._plan.resolved.notes)
