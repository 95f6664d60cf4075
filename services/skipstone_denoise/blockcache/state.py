"""The block-cache state of one request: made with it, gone with it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from torch import Tensor

from skipstone_denoise.blockcache.dbcache import DBCacheState, StepRecord
from skipstone_denoise.blockcache.settings import DBCacheSettings
from skipstone_shared.generation import BlockCacheReport, BranchReport

ALL_SAMPLES = (0,)
"""Every sample of a batch belongs to one request."""


class BlockCacheState:
    """What block caching knows of one run, over all transformers and guidance branches.

    Used by one thread at a time.
    """

    def __init__(
        self,
        settings: DBCacheSettings | Mapping[str, DBCacheSettings],
        *,
        first_steps: Mapping[str, int] = MappingProxyType({}),
        sample_groups: Sequence[int] = ALL_SAMPLES,
        process_group: object | None = None,
        report_residual_diffs: bool = False,
    ) -> None:
        """Holds nothing yet.

        Args:
            settings: Of every transformer, by its name; or one for all.
            first_steps: By transformer, the absolute step that is its own step 0; absent: 0.
            sample_groups: Request of each sample of a batch, 0-based, for batches of several
                requests. Batched guidance repeats it: `(0, 1)` is the layout `[A, B]` and
                `[A uncond, B uncond, A cond, B cond]`. Each request decides for itself, with both
                halves of its guidance together.
            process_group: Ranks of `torch.distributed` that must decide alike, such as those that
                share a sequence. All of them must make the same calls.
            report_residual_diffs: Whether the report tells the measured differences.
        """
        self._settings = settings
        self._first_steps = first_steps
        self._report_residual_diffs = report_residual_diffs
        self._states: dict[tuple[str, str, int], DBCacheState] = {}
        self._block_calls = 0
        self._block_calls_full = 0
        self._leader_diffs: dict[tuple[str, int], float] = {}
        self._reused_steps: set[int] = set()
        self.sample_groups = tuple(sample_groups)
        self.process_group = process_group
        self.step_index = 0
        self.epoch = 0

    def begin_step(self, step_index: int) -> None:
        """The next calls are of this absolute step. Steps rise; a step may be begun again."""
        self.step_index = step_index
        self.epoch += 1
        self._leader_diffs.clear()

    def settings_of(self, transformer: str) -> DBCacheSettings:
        """The settings of a transformer.

        Raises:
            KeyError: there are none.
        """
        if isinstance(self._settings, DBCacheSettings):
            return self._settings
        return self._settings[transformer]

    def local_step(self, transformer: str) -> int:
        """The current step, counted from the transformer's own first one."""
        return self.step_index - self._first_steps.get(transformer, 0)

    def states_of(self, transformer: str, chain: str, branch: str) -> list[DBCacheState]:
        """The states of a branch, one for every request of the batch."""
        name = f"{transformer}.{chain}" if chain else transformer
        states = []
        for group in range(max(self.sample_groups) + 1):
            key = (name, branch, group)
            if key not in self._states:
                self._states[key] = DBCacheState(self.settings_of(transformer))
            states.append(self._states[key])
        return states

    def count(self, *, run: int, full: int, reused: bool) -> None:
        """Counts one call of a chain.

        Args:
            run: Blocks that ran, summed over the requests of the batch.
            full: Blocks that would have run without caching.
            reused: Whether a request reused its middle blocks.
        """
        self._block_calls += run
        self._block_calls_full += full
        if reused:
            self._reused_steps.add(self.step_index)

    def leader_diff(self, name: str, group: int) -> float | None:
        """The difference that the step's first branch measured, if it did."""
        return self._leader_diffs.get((name, group))

    def set_leader_diff(self, name: str, group: int, residual_diff: float) -> None:
        """Notes the difference that the step's first branch measured."""
        self._leader_diffs[name, group] = residual_diff

    def reused_at(self, step_index: int) -> bool:
        """Whether anything was reused at an absolute step."""
        return step_index in self._reused_steps

    def report(self) -> BlockCacheReport:
        """What happened so far."""
        return BlockCacheReport(
            branches=tuple(
                self._branch_report(*key, state.records) for key, state in self._states.items()
            ),
            block_calls=self._block_calls,
            block_calls_full=self._block_calls_full,
        )

    def tensors(self) -> Iterator[Tensor]:
        """All that is held between steps."""
        return itertools.chain.from_iterable(state.tensors() for state in self._states.values())

    def _branch_report(
        self, transformer: str, branch: str, group: int, records: list[StepRecord]
    ) -> BranchReport:
        several = max(self.sample_groups) > 0
        return BranchReport(
            transformer=transformer,
            branch=f"{branch}, request {group}" if several else branch,
            computed_steps=tuple(r.step_index for r in records if not r.reason.reuses),
            reused_steps=tuple(r.step_index for r in records if r.reason.reuses),
            reasons=dict(Counter(record.reason.value for record in records)),
            residual_diffs=(
                tuple(record.residual_diff for record in records)
                if self._report_residual_diffs
                else ()
            ),
        )
