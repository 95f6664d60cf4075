"""One pass through a chain of blocks: front blocks, decision, middle blocks or not, back blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from skipstone_denoise.blockcache.adapters import BlockChain
from skipstone_denoise.blockcache.dbcache import (
    DBCacheState,
    Reason,
    StepRecord,
    relative_differences,
)
from skipstone_denoise.blockcache.input_copies import InputCopies
from skipstone_denoise.blockcache.patterns import Block, BlockArguments, Streams, StreamShapes
from skipstone_denoise.blockcache.state import BlockCacheState


class ChainPass:
    """What is decided and kept while one call goes through a chain."""

    __slots__ = (
        "_cache",
        "_chain",
        "_computing",
        "_copies",
        "_front",
        "_names",
        "_residual",
        "_rows",
        "_states",
        "_step",
        "_sub",
    )

    def __init__(
        self,
        cache: BlockCacheState,
        states: Sequence[DBCacheState],
        step: int,
        chain: BlockChain,
        names: list[str],
        copies: InputCopies,
    ) -> None:
        """Begins a pass.

        Args:
            cache: State of the request.
            states: State of the branch for every request of the batch.
            step: The transformer's own step.
            chain: The chain.
            names: Names of the blocks' positional arguments.
            copies: What is known of the blocks' habits; shared by the passes of a chain.
        """
        self._cache = cache
        self._states = states
        self._step = step
        self._chain = chain
        self._names = names
        self._copies = copies
        self._front: Streams | None = None
        self._residual: Tensor | None = None
        self._computing: tuple[int, ...] = ()
        self._rows: Tensor | None = None
        self._sub: Streams | None = None

    @property
    def computes(self) -> bool:
        """Whether a request of the batch needs its middle blocks."""
        return bool(self._computing)

    @property
    def computing_requests(self) -> int:
        """Requests of the batch that need their middle blocks."""
        return len(self._computing)

    def decide(self, start: Tensor, front: Streams, leader_key: str, is_leader: bool) -> None:
        """Decides for every request of the batch.

        Args:
            start: Hidden states before the front blocks.
            front: Streams after them.
            leader_key: Chain under which the first branch's difference is shared.
            is_leader: Whether this is the first branch.

        Raises:
            ValueError: the batch does not consist of the requests it should.
        """
        self._front = front
        if len(self._states) == 1:
            self._decide_alone(start, front, leader_key, is_leader)
            return
        states, cache, hidden = self._states, self._cache, front.hidden
        reasons = [
            state.rule(self._step, self._shapes_of(group)) for group, state in enumerate(states)
        ]
        diffs = [math.nan] * len(states)
        open_groups = [group for group, reason in enumerate(reasons) if reason is None]
        if open_groups:
            shared = None if is_leader else self._shared_diffs(leader_key, open_groups)
            if shared is None:
                shared = self._measure(hidden - start, open_groups)
            for group, diff in zip(open_groups, shared, strict=True):
                diffs[group] = diff
                reasons[group] = states[group].judge(diff)
                if is_leader:
                    cache.set_leader_diff(leader_key, group, diff)
        self._note(reasons, diffs)
        if self._computing and self._residual is None and states[0].keeps_reference:
            self._residual = hidden - start
        if 0 < len(self._computing) < len(states):
            self._rows = self._rows_of(self._computing)
            self._sub = _chosen(front, self._rows)

    def _decide_alone(
        self, start: Tensor, front: Streams, leader_key: str, is_leader: bool
    ) -> None:
        """The same for a single request, without the lists of a batch: a reused call is short."""
        [state], cache = self._states, self._cache
        diff = math.nan
        reason = state.rule(self._step, front.shapes)
        if reason is None:
            shared = None if is_leader else cache.leader_diff(leader_key, 0)
            if shared is not None:
                diff = shared
            elif cache.process_group is None:
                diff = state.difference(front.hidden, start)
            else:
                measured = state.measure(front.hidden - start)
                [diff] = relative_differences([measured], cache.process_group)
            reason = state.judge(diff)
            if is_leader:
                cache.set_leader_diff(leader_key, 0, diff)
        state.record(StepRecord(cache.step_index, reason, diff))
        if not reason.reuses:
            self._computing = (0,)
            if state.keeps_reference:
                self._residual = front.hidden - start

    def run_middle(self, call: BlockArguments, blocks: Sequence[Block]) -> None:
        """Runs middle blocks on the samples of the requests that need them.

        May be called once with all of them or again and again with the next ones.
        """
        assert self._front is not None
        if self._rows is not None:
            assert self._sub is not None
            batch, chain = self._front.hidden.shape[0], self._chain
            part = call.rows(self._rows, batch, self._names, chain.unbatched, chain.repeated)
            self._sub = part.run(blocks, self._sub)
        elif self._sub is None:
            self._sub = self._copies.run(call, blocks, self._front)
        else:
            self._sub = call.run(blocks, self._sub)

    def finish(self) -> Streams:
        """Stores what was computed and fills in what was not; the streams after the middle."""
        front, states = self._front, self._states
        assert front is not None
        if not self._computing and len(states) == 1:
            return states[0].reuse(self._step, front)
        self._copies.settle()
        if len(states) > 1:
            return self._merge(front)
        middle = self._sub or front
        states[0].store(self._step, self._residual, front, middle)
        return middle

    def _measure(self, residual: Tensor, groups: Sequence[int]) -> list[float]:
        self._residual = residual
        measured = [
            self._states[group].measure(residual[self._rows_of((group,))]) for group in groups
        ]
        return relative_differences(measured, self._cache.process_group)

    def _note(self, reasons: Sequence[Reason | None], diffs: Sequence[float]) -> None:
        computing = []
        for group, (reason, diff) in enumerate(zip(reasons, diffs, strict=True)):
            assert reason is not None
            self._states[group].record(StepRecord(self._cache.step_index, reason, diff))
            if not reason.reuses:
                computing.append(group)
        self._computing = tuple(computing)

    def _shared_diffs(self, leader_key: str, groups: Sequence[int]) -> list[float] | None:
        diffs = [self._cache.leader_diff(leader_key, group) for group in groups]
        known = [diff for diff in diffs if diff is not None]
        return known if len(known) == len(groups) else None

    def _merge(self, front: Streams) -> Streams:
        """Puts the requests of a batch together again, each stored or reused for itself."""
        computed = self._sub or front
        if len(self._computing) == len(self._states):
            whole = computed
        else:
            whole = _room(front.hidden.shape[0], computed)
            if self._rows is not None:
                _put(whole, self._rows, computed)
        for group, state in enumerate(self._states):
            rows = self._rows_of((group,))
            mine = _chosen(front, rows)
            if group not in self._computing:
                _put(whole, rows, state.reuse(self._step, mine))
                continue
            residual = None if self._residual is None else self._residual[rows]
            state.store(self._step, residual, mine, _chosen(whole, rows))
        return whole

    def _shapes_of(self, group: int) -> StreamShapes:
        assert self._front is not None
        hidden, encoder = self._front.shapes
        samples = self._cache.sample_groups.samples_of(group, hidden[0])
        return (samples, *hidden[1:]), None if encoder is None else (samples, *encoder[1:])

    def _rows_of(self, groups: tuple[int, ...]) -> Tensor:
        assert self._front is not None
        hidden = self._front.hidden
        return self._cache.sample_groups.rows(groups, hidden.shape[0], hidden.device)


def _chosen(streams: Streams, rows: Tensor) -> Streams:
    encoder = streams.encoder
    return Streams(streams.hidden[rows], None if encoder is None else encoder[rows])


def _room(batch: int, like: Streams) -> Streams:
    hidden, encoder = like
    return Streams(
        hidden.new_empty((batch, *hidden.shape[1:])),
        None if encoder is None else encoder.new_empty((batch, *encoder.shape[1:])),
    )


def _put(whole: Streams, rows: Tensor, part: Streams) -> None:
    whole.hidden[rows] = part.hidden
    if whole.encoder is not None and part.encoder is not None:
        whole.encoder[rows] = part.encoder
