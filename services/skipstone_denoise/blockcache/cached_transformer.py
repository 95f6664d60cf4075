"""A transformer of the request's own, around the shared modules, that runs its blocks cached.

Nothing of the shared transformer is changed: the copy is shallow, and only its attributes for the
block lists are its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn

from skipstone_denoise.blockcache.adapters import BlockChain, TransformerAdapter
from skipstone_denoise.blockcache.chain_pass import ChainPass
from skipstone_denoise.blockcache.dbcache import DBCacheState
from skipstone_denoise.blockcache.families import block_lists, unwrapped
from skipstone_denoise.blockcache.input_copies import InputCopies
from skipstone_denoise.blockcache.own_copy import ArgumentCheck, own_copy, replace_at
from skipstone_denoise.blockcache.patterns import Block, BlockArguments, Streams
from skipstone_denoise.blockcache.settings import DBCacheSettings
from skipstone_denoise.blockcache.state import BlockCacheState
from skipstone_shared.errors import InvalidArgument


def with_block_cache(
    transformer: nn.Module,
    adapter: TransformerAdapter,
    state: BlockCacheState,
    name: str = "transformer",
) -> nn.Module:
    """A copy of a transformer for one request, whose blocks are run cached.

    Args:
        transformer: The shared transformer; it is not changed. One that was compiled as a whole
            runs as it was before, since the decision is made between its blocks; blocks that were
            compiled stay so.
        adapter: Where its blocks are.
        state: State of the request.
        name: Name of the transformer in settings and report.

    Raises:
        InvalidArgument: the settings ask for more blocks than there are, or it lacks a list of the
            adapter.
        FailedPrecondition: its forward method was replaced by something that can't be followed.
    """
    original = unwrapped(transformer)
    mine = own_copy(original, _refusal(original, adapter))
    branches = _BranchNames(adapter.branches)
    mine.__dict__["cache_context"] = branches.context
    for chain in adapter.chains:
        label = chain.lists[0] if len(adapter.chains) > 1 else ""
        _replace_blocks(mine, chain, _Cache(state, name, label, branches))
    return mine


def _refusal(transformer: nn.Module, adapter: TransformerAdapter) -> ArgumentCheck | None:
    """Refuses calls that change the transformer block by block."""
    if not adapter.refused_inputs:
        return None
    names = argument_names(transformer)
    places = {name: names.index(name) for name in adapter.refused_inputs if name in names}

    def check(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        for name in adapter.refused_inputs:
            place = places.get(name, len(args))
            value = args[place] if place < len(args) else kwargs.get(name)
            if value is not None and value is not False:
                raise InvalidArgument(
                    f"{name} changes {adapter.family} block by block, which can't be cached",
                    field="params.block_cache",
                    allowed="preset none for this request",
                )

    return check


class _BranchNames:
    """Names the guidance branch of every call: as the pipeline says, else by order in the step."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._context: str | None = None

    @contextmanager
    def context(self, name: str, **_where: Any) -> Iterator[None]:
        """Stands in for diffusers' `cache_context` (`CacheMixin`)."""
        before, self._context = self._context, name
        try:
            yield
        finally:
            self._context = before

    def of_call(self, calls: dict[str | None, int]) -> str:
        """The branch of a call, given how often each name, and none, called in this step."""
        name = self._context
        if name is None:
            place = calls.get(None, 0)
            calls[None] = place + 1
            name = self._names[place] if place < len(self._names) else f"call {place + 1}"
        before = calls.get(name, 0)
        calls[name] = before + 1
        return f"{name} {before + 1}" if before else name


class _Cache:
    """What the passes through one chain share."""

    def __init__(
        self, state: BlockCacheState, transformer: str, label: str, branches: _BranchNames
    ) -> None:
        self._state = state
        self._transformer = transformer
        self._label = label
        self._branches = branches
        self._leader_key = f"{transformer}.{label}"
        self._calls: dict[str | None, int] = {}
        self._branches_states: dict[str, list[DBCacheState]] = {}
        self._epoch = -1
        self._leads = True
        self.copies = InputCopies()

    @property
    def settings(self) -> DBCacheSettings:
        return self._state.settings_of(self._transformer)

    def begin(self, chain: BlockChain, names: list[str]) -> ChainPass:
        """Begins a pass in the branch of the current call."""
        state = self._state
        self._leads = self._epoch != state.epoch
        if self._leads:
            self._epoch = state.epoch
            self._calls.clear()
        branch = self._branches.of_call(self._calls)
        states = self._branches_states.get(branch)
        if states is None:
            keeps_text = not chain.text_ends or self.settings.bn_compute_blocks > 0
            states = state.states_of(self._transformer, self._label, branch, keeps_text=keeps_text)
            self._branches_states[branch] = states
        step = state.local_step(self._transformer)
        return ChainPass(state, states, step, chain, names, self.copies)

    def decide(self, this: ChainPass, start: Streams, front: Streams) -> None:
        """Decides, with the difference that the step's first branch measured if it is shared."""
        leads = self._leads or not self.settings.share_branch_diff
        this.decide(start.hidden, front, self._leader_key, leads)

    def count(self, this: ChainPass, always: int, middle: int) -> None:
        """Counts the blocks of a pass."""
        requests, computing = self._state.sample_groups.requests, this.computing_requests
        self._state.count(
            run=always * requests + middle * computing,
            full=(always + middle) * requests,
            reused=computing < requests,
        )


def _replace_blocks(mine: nn.Module, chain: BlockChain, cache: _Cache) -> None:
    lists = block_lists(mine, chain)
    blocks = [block for blocks in lists for block in blocks]
    settings = cache.settings
    always = settings.fn_compute_blocks + settings.bn_compute_blocks
    if always > len(blocks):
        raise InvalidArgument(
            f"fn_compute_blocks + bn_compute_blocks = {always}, but {' + '.join(chain.lists)} has "
            f"{len(blocks)} blocks",
            field="params.block_cache.fn_compute_blocks",
            allowed=f"a sum of at most {len(blocks)}",
        )
    if not chain.own_arguments:
        replace_at(mine, chain.lists[0], [_FusedBlocks(blocks, chain, cache)])
        for path in chain.lists[1:]:
            replace_at(mine, path, [])
        return
    wrapped = _WrappedBlocks(blocks, chain, cache)
    start = 0
    for path, own in zip(chain.lists, lists, strict=True):
        replace_at(mine, path, [wrapped.block(start + index) for index in range(len(own))])
        start += len(own)


class _FusedBlocks:
    """Stands in for a whole chain: the transformer's loop calls it once."""

    def __init__(self, blocks: Sequence[Block], chain: BlockChain, cache: _Cache) -> None:
        settings = cache.settings
        front, back = settings.fn_compute_blocks, len(blocks) - settings.bn_compute_blocks
        self._front, self._middle, self._back = blocks[:front], blocks[front:back], blocks[back:]
        self._chain = chain
        self._cache = cache
        self._names = argument_names(blocks[0])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        pattern, cache = self._chain.pattern, self._cache
        call = BlockArguments(pattern, args, kwargs)
        start = call.streams
        this = cache.begin(self._chain, self._names)
        front = cache.copies.run(call, self._front, start)
        cache.decide(this, start, front)
        if this.computes:
            this.run_middle(call, self._middle)
        streams = this.finish()
        if self._back:
            streams = call.run(self._back, streams)
        cache.count(this, len(self._front) + len(self._back), len(self._middle))
        return pattern.pack(streams)


class _WrappedBlocks:
    """Stands in for a chain block by block: each keeps the arguments that the loop gives it."""

    def __init__(self, blocks: Sequence[Block], chain: BlockChain, cache: _Cache) -> None:
        settings = cache.settings
        self._blocks = blocks
        self._chain = chain
        self._cache = cache
        self._names = argument_names(blocks[0])
        self._front_end = settings.fn_compute_blocks
        self._back_start = len(blocks) - settings.bn_compute_blocks
        self._pass: ChainPass | None = None
        self._start: Streams | None = None

    def block(self, index: int) -> Callable[..., Any]:
        """The stand-in for one block."""

        def call_block(*args: Any, **kwargs: Any) -> Any:
            call = BlockArguments(self._chain.pattern, args, kwargs)
            return self._chain.pattern.pack(self._run(index, call))

        return call_block

    def _run(self, index: int, call: BlockArguments) -> Streams:
        block, streams = [self._blocks[index]], call.streams
        if index >= self._back_start:
            return call.run(block, streams)
        if index == 0:
            self._pass, self._start = self._cache.begin(self._chain, self._names), streams
        this = self._pass
        assert this is not None
        if index < self._front_end:
            streams = self._run_front(this, index, call)
        elif this.computes:
            this.run_middle(call, block)
        if index == self._back_start - 1:
            streams = this.finish()
            middle = self._back_start - self._front_end
            self._cache.count(this, len(self._blocks) - middle, middle)
            self._pass = self._start = None
        return streams

    def _run_front(self, this: ChainPass, index: int, call: BlockArguments) -> Streams:
        block = [self._blocks[index]]
        if index == 0:
            streams = self._cache.copies.run(call, block, call.streams)
        else:
            streams = call.run(block, call.streams)
        if index == self._front_end - 1:
            assert self._start is not None
            self._cache.decide(this, self._start, streams)
        return streams


def argument_names(block: Block) -> list[str]:
    """Names of a block's positional arguments."""
    block = getattr(block, "_orig_mod", block)
    return list(inspect.signature(getattr(block, "forward", block)).parameters)
