"""The calls of one recorded run, made through the block cache."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.golden.overlapping_blocks import with_room_for
from tests.golden.trace_plan import RunPlan
from torch import nn

from skipstone_denoise.blockcache.adapters import TransformerAdapter
from skipstone_denoise.blockcache.cached_transformer import with_block_cache
from skipstone_denoise.blockcache.state import BlockCacheState


@dataclasses.dataclass(frozen=True, slots=True)
class ObservedBranch:
    """What the cache did in one branch since it started last; steps count from that start.

    Attributes:
        reused_steps: Steps whose middle blocks were reused, rising.
        residual_diffs: Measured differences by step.
    """

    reused_steps: tuple[int, ...] = ()
    residual_diffs: Mapping[int, float] = dataclasses.field(default_factory=dict)


class CountedBlocks:
    """Notes which blocks of a transformer really run.

    Attributes:
        calls: Index of the block of every call so far; blocks are counted through all lists.
    """

    def __init__(self, transformer: nn.Module, adapter: TransformerAdapter) -> None:
        """Watches the blocks from now on, on the shared module itself."""
        self.calls: list[int] = []
        lists = [transformer.get_submodule(path) for c in adapter.chains for path in c.lists]
        blocks = [block for block_list in lists for block in block_list.children()]
        self.count = len(blocks)
        self._handles = [
            block.register_forward_pre_hook(self._noting(index))
            for index, block in enumerate(blocks)
        ]

    def close(self) -> None:
        """Stops watching."""
        for handle in self._handles:
            handle.remove()

    def _noting(self, index: int) -> Any:
        def note(module: nn.Module, args: Any) -> None:
            del module, args
            self.calls.append(index)

        return note


class CachedCalls:
    """One transformer of a run under the block cache, started over where the reference did so."""

    def __init__(
        self,
        name: str,
        transformer: nn.Module,
        adapter: TransformerAdapter,
        plan: RunPlan,
        state: BlockCacheState,
        first_step: int,
    ) -> None:
        """Joins the transformer to a state, which the others of the run may share.

        Args:
            name: The transformer's name in the state.
            transformer: The shared module.
            adapter: Where its blocks are.
            plan: The run's.
            state: The run's.
            first_step: The state's step that is this transformer's first.
        """
        self.calls = 0
        self._name = name
        self._transformer, self._adapter = with_room_for(transformer, adapter, plan.settings[name])
        self._plan = plan
        self._first_step = first_step
        self._refreshed = False
        self._join(state)

    def __call__(self, **inputs: Any) -> Any:
        """One call of the transformer, in the branch whose turn it is."""
        if self._plan.starts_over(self._name, self.calls, self._refreshed):
            self._start_over()
        step, place = divmod(self.calls, len(self._plan.branches))
        if place == 0:
            self._state.begin_step(self._first_step + step)
        self.calls += 1
        with self._branch(self._plan.branches[place]):
            return self._cached(**inputs)

    @property
    def executed_steps(self) -> int:
        """Steps since the last start, an unfinished one too."""
        return -(-self.calls // len(self._plan.branches))

    def observed(self) -> dict[str, ObservedBranch]:
        """What was done since the last start, by branch."""
        branches = {}
        for report in self._state.report().branches:
            if report.transformer != self._name:
                continue
            run = sorted((*report.computed_steps, *report.reused_steps))
            branches[report.branch] = ObservedBranch(
                reused_steps=tuple(step - self._first_step for step in report.reused_steps),
                residual_diffs={
                    step - self._first_step: diff
                    for step, diff in zip(run, report.residual_diffs, strict=True)
                    if not math.isnan(diff)
                },
            )
        return branches

    def _start_over(self) -> None:
        # Any other start over makes the reference forget that it has refreshed.
        self._refreshed = self.calls == self._plan.refresh_after_calls
        self._first_step = self.calls = 0
        self._join(BlockCacheState(self._plan.settings, report_residual_diffs=True))

    def _join(self, state: BlockCacheState) -> None:
        self._state = state
        self._cached: Any = with_block_cache(self._transformer, self._adapter, state, self._name)

    @contextlib.contextmanager
    def _branch(self, name: str) -> Iterator[None]:
        # A pipeline names the branch where its transformer can be told; elsewhere order tells it.
        if not hasattr(self._transformer, "cache_context"):
            yield
            return
        with self._cached.cache_context(name):
            yield


def cached_calls(
    transformers: Mapping[str, nn.Module],
    adapter: TransformerAdapter,
    plan: RunPlan,
    calls_before: Sequence[int],
) -> dict[str, CachedCalls]:
    """The transformers of a run, by name, under one state.

    Args:
        transformers: The shared modules, in the order in which they take over.
        adapter: Where their blocks are.
        plan: The run's.
        calls_before: Per transformer, how many calls of the run come before its first.
    """
    first_steps = {
        name: calls // len(plan.branches)
        for name, calls in zip(transformers, calls_before, strict=True)
    }
    adapter = dataclasses.replace(adapter, branches=plan.branches)
    state = BlockCacheState(plan.settings, first_steps=first_steps, report_residual_diffs=True)
    return {
        name: CachedCalls(name, transformer, adapter, plan, state, first_steps[name])
        for name, transformer in transformers.items()
    }
