"""The block-cache state of one request: made with it, gone with it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from torch import Tensor

from skipstone_denoise.blockcache.dbcache import DBCacheState, StepRecord
from skipstone_denoise.blockcache.sample_groups import SampleGroups
from skipstone_denoise.blockcache.settings import DBCacheSettings
from skipstone_shared.generation import BlockCacheReport, BranchReport

ONE_REQUEST = (0,)
"""The layout of a batch whose samples all belong to one request."""


class BlockCacheState:
    """What block caching knows of one run, over all transformers and guidance branches.

    Used by one thread at a time.
    """

    def __init__(
        self,
        settings: DBCacheSettings | Mapping[str, DBCacheSettings],
        *,
        first_steps: Mapping[str, int] = MappingProxyType({}),
        sample_groups: Sequence[int] = ONE_REQUEST,
        process_group: object | None = None,
        report_residual_diffs: bool = False,
    ) -> None:
        """Holds nothing yet.

        Args:
            settings: Of every transformer, by its name; or one for all.
            first_steps: By transformer, the absolute step that is its own step 0; absent: 0.
            sample_groups: Request of each sample of a batch, for batches of several requests, as
                `SampleGroups` takes it. Each request decides for itself, with both halves of its
                batched guidance together.
            process_group: Ranks of `torch.distributed` that must decide alike: those that share a
                sequence or the weights of one transformer, or run the guidance branches of one
                request. They must make the same calls with the same settings; then their rules
                decide alike, and they meet only where a difference has to be measured.
            report_residual_diffs: Whether the report tells the measured differences.

        Raises:
            ValueError: `sample_groups` is empty or leaves a request out.
        """
        self._settings = settings
        self._first_steps = first_steps
        self._report_residual_diffs = report_residual_diffs
        self._states: dict[tuple[str, str, int], DBCacheState] = {}
        self._block_calls = 0
        self._block_calls_full = 0
        self._leader_diffs: dict[tuple[str, int], float] = {}
        self._reused_steps: set[int] = set()
        self.sample_groups = SampleGroups(sample_groups)
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

    def states_of(
        self, transformer: str, chain: str, branch: str, *, keeps_text: bool = True
    ) -> list[DBCacheState]:
        """The states of a branch, one for every request of the batch.

        Args:
            transformer: Name of the transformer.
            chain: Name of the chain; empty for the only one.
            branch: Name of the guidance branch.
            keeps_text: As for `DBCacheState`.
        """
        name = f"{transformer}.{chain}" if chain else transformer
        states = []
        for group in range(self.sample_groups.requests):
            key = (name, branch, group)
            if key not in self._states:
                self._states[key] = DBCacheState(
                    self.settings_of(transformer), keeps_text=keeps_text
                )
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

    def release(self) -> None:
        """Lets go of all tensors; the report stays.

        For the end of the loop: a pipeline may keep its transformer in a local variable while it
        decodes (Wan does), and that transformer refers to this state.
        """
        for state in self._states.values():
            state.release()

    def tensors(self) -> Iterator[Tensor]:
        """All that is held between steps."""
        return itertools.chain.from_iterable(state.tensors() for state in self._states.values())

    def _branch_report(
        self, transformer: str, branch: str, group: int, records: list[StepRecord]
    ) -> BranchReport:
        several = self.sample_groups.requests > 1
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
