"""One pass through a chain of blocks: front blocks, decision, middle blocks or not, back blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from skipstone_denoise.blockcache.adapters import BlockChain
from skipstone_denoise.blockcache.dbcache import (
    DBCacheState,
    Reason,
    StepRecord,
    relative_differences,
)
from skipstone_denoise.blockcache.patterns import BlockArguments, Streams
from skipstone_denoise.blockcache.state import BlockCacheState

Block = Callable[..., Any]


class ChainPass:
    """What is decided and kept while one call goes through a chain."""

    __slots__ = (
        "_cache",
        "_chain",
        "_computing",
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
    ) -> None:
        """Begins a pass.

        Args:
            cache: State of the request.
            states: State of the branch for every request of the batch.
            step: The transformer's own step.
            chain: The chain.
            names: Names of the blocks' positional arguments.
        """
        self._cache = cache
        self._states = states
        self._step = step
        self._chain = chain
        self._names = names
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
        """
        self._front = front
        states, cache, hidden = self._states, self._cache, front.hidden
        reasons = [
            state.rule(self._step, self._of_request(hidden, group))
            for group, state in enumerate(states)
        ]
        diffs = [math.nan] * len(states)
        open_groups = [group for group, reason in enumerate(reasons) if reason is None]
        shared = None if is_leader else self._shared_diffs(leader_key, open_groups)
        if open_groups:
            if shared is None:
                self._residual = hidden - start
                measured = [
                    states[group].measure(self._of_request(self._residual, group))
                    for group in open_groups
                ]
                shared = relative_differences(measured, cache.process_group)
            for group, diff in zip(open_groups, shared, strict=True):
                diffs[group] = diff
                reasons[group] = states[group].judge(diff)
                if is_leader:
                    cache.set_leader_diff(leader_key, group, diff)
        self._note(reasons, diffs)
        if self._computing and self._residual is None and states[0].keeps_reference:
            self._residual = hidden - start
        if 0 < len(self._computing) < len(states):
            self._rows = self._rows_of(self._computing, hidden)

    def run_middle(self, call: BlockArguments, blocks: Sequence[Block]) -> None:
        """Runs middle blocks on the samples of the requests that need them.

        May be called once with all of them or again and again with the next ones.
        """
        assert self._front is not None
        if self._rows is None:
            self._sub = call.run(blocks, self._sub or self._front)
            return
        if self._sub is None:
            encoder = self._front.encoder
            self._sub = Streams(
                self._front.hidden[self._rows], None if encoder is None else encoder[self._rows]
            )
        batch = self._front.hidden.shape[0]
        chain = self._chain
        part = call.rows(self._rows, batch, self._names, chain.unbatched, chain.repeated)
        self._sub = part.run(blocks, self._sub)

    def finish(self) -> Streams:
        """Stores what was computed and fills in what was not; the streams after the middle."""
        front, step, states = self._front, self._step, self._states
        assert front is not None
        if not self._computing and len(states) == 1:
            return states[0].reuse(step, front)
        if len(states) == 1:
            middle = self._sub or front
            states[0].store(
                step, self._residual if states[0].keeps_reference else None, front, middle
            )
            return middle
        return self._merge(front)

    def _note(self, reasons: Sequence[Reason | None], diffs: Sequence[float]) -> None:
        computing = []
        for group, (reason, diff) in enumerate(zip(reasons, diffs, strict=True)):
            assert reason is not None
            record = StepRecord(self._cache.step_index, reason, diff)
            self._states[group].record(self._step, record)
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
        parts = []
        for group, state in enumerate(self._states):
            rows = self._rows_of((group,), front.hidden)
            mine = _rows_of_streams(front, rows)
            if group not in self._computing:
                parts.append((rows, state.reuse(self._step, mine)))
                continue
            own = _rows_of_streams(computed, self._positions(rows))
            residual = None if self._residual is None else self._residual[rows]
            state.store(self._step, residual if state.keeps_reference else None, mine, own)
            parts.append((rows, own))
        return _scatter(parts, front.hidden.shape[0])

    def _positions(self, rows: Tensor) -> Tensor:
        # Where a request's samples are among those that ran.
        return rows if self._rows is None else torch.searchsorted(self._rows, rows)

    def _of_request(self, values: Tensor, group: int) -> Tensor:
        if len(self._states) == 1:
            return values
        return values[self._rows_of((group,), values)]

    def _rows_of(self, groups: Sequence[int], values: Tensor) -> Tensor:
        pattern = self._cache.sample_groups
        rows = [row for row in range(values.shape[0]) if pattern[row % len(pattern)] in groups]
        return torch.tensor(rows, device=values.device)


def _rows_of_streams(streams: Streams, rows: Tensor) -> Streams:
    encoder = streams.encoder
    return Streams(streams.hidden[rows], None if encoder is None else encoder[rows])


def _scatter(parts: Sequence[tuple[Tensor, Streams]], batch: int) -> Streams:
    order = torch.argsort(torch.cat([rows for rows, _ in parts]))
    if len(order) != batch:
        raise ValueError(f"{batch} samples, of which {len(order)} belong to a request")
    hidden = torch.cat([streams.hidden for _, streams in parts])[order]
    encoders = [streams.encoder for _, streams in parts if streams.encoder is not None]
    return Streams(hidden, torch.cat(encoders)[order] if len(encoders) == len(parts) else None)
