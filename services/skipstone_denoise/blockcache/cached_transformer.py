"""A transformer of the request's own, around the shared modules, that runs its blocks cached.

Nothing of the shared transformer is changed: the copy is shallow, and only its attributes for the
block lists are its own.
"""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn

from skipstone_denoise.blockcache.adapters import BlockChain, TransformerAdapter
from skipstone_denoise.blockcache.chain_pass import Block, ChainPass
from skipstone_denoise.blockcache.patterns import BlockArguments, Streams
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
        InvalidArgument: the settings leave it no blocks, or it lacks a list of the adapter.
        TypeError: it has a hook that replaces its forward method.
    """
    original = getattr(transformer, "_orig_mod", transformer)
    mine = copy.copy(original)
    mine.__dict__["_compiled_call_impl"] = None
    branches = _BranchNames(state, adapter.branches)
    mine.__dict__["cache_context"] = branches.context
    for chain in adapter.chains:
        label = chain.lists[0] if len(adapter.chains) > 1 else ""
        _replace_blocks(mine, chain, _Cache(state, name, label, branches))
    _keep_forward(original, mine, adapter)
    return mine


def block_lists(transformer: nn.Module, chain: BlockChain) -> list[nn.ModuleList]:
    """The block lists of a chain.

    Raises:
        InvalidArgument: the transformer lacks one, or it is empty.
    """
    lists = []
    for path in chain.lists:
        try:
            blocks = transformer.get_submodule(path)
        except AttributeError as error:
            raise _no_list(transformer, path) from error
        if not isinstance(blocks, nn.ModuleList) or not len(blocks):
            raise _no_list(transformer, path)
        lists.append(blocks)
    return lists


def _no_list(transformer: nn.Module, path: str) -> InvalidArgument:
    lists = [name for name, module in transformer.named_modules() if _is_block_list(module)]
    return InvalidArgument(
        f"{type(transformer).__name__} has no list of blocks {path!r}, which its adapter names",
        field="block_adapters",
        allowed=f"lists of {type(transformer).__name__}: {', '.join(lists) or 'none'}",
    )


def _is_block_list(module: nn.Module) -> bool:
    return isinstance(module, nn.ModuleList) and len(module) > 0


class _BranchNames:
    """Names the guidance branch of every call: as the pipeline says, else by order in the step."""

    def __init__(self, state: BlockCacheState, names: Sequence[str]) -> None:
        self._state = state
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

    @property
    def leader(self) -> str:
        return self._names[0]

    def of_call(self, calls: Counter[str | None]) -> str:
        """The branch of a call, given how often each context called in this step."""
        context = self._context
        calls[context] += 1
        count = calls[context]
        if context is not None:
            return context if count == 1 else f"{context} {count}"
        return self._names[count - 1] if count <= len(self._names) else f"call {count}"


class _Cache:
    """What the passes through one chain share."""

    def __init__(
        self, state: BlockCacheState, transformer: str, label: str, branches: _BranchNames
    ) -> None:
        self._state = state
        self._transformer = transformer
        self._label = label
        self._branches = branches
        self._calls: Counter[str | None] = Counter()
        self._epoch = -1

    @property
    def settings(self) -> DBCacheSettings:
        return self._state.settings_of(self._transformer)

    def begin(self, chain: BlockChain, names: list[str]) -> tuple[ChainPass, str]:
        """Begins a pass in the branch of the current call."""
        state = self._state
        if self._epoch != state.epoch:
            self._epoch = state.epoch
            self._calls.clear()
        branch = self._branches.of_call(self._calls)
        states = state.states_of(self._transformer, self._label, branch)
        step = state.local_step(self._transformer)
        return ChainPass(state, states, step, chain, names), branch

    def decide(self, this: ChainPass, branch: str, start: Streams, front: Streams) -> None:
        """Decides, shares the difference if asked to, and counts."""
        leads = not self.settings.share_branch_diff or branch == self._branches.leader
        this.decide(start.hidden, front, f"{self._transformer}.{self._label}", leads)

    def count(self, this: ChainPass, always: int, middle: int) -> None:
        """Counts the blocks of a pass."""
        requests, computing = max(self._state.sample_groups) + 1, this.computing_requests
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
        _set_path(mine, chain.lists[0], [_FusedBlocks(blocks, chain, cache)])
        for path in chain.lists[1:]:
            _set_path(mine, path, [])
        return
    wrapped = _WrappedBlocks(blocks, chain, cache)
    start = 0
    for path, own in zip(chain.lists, lists, strict=True):
        _set_path(mine, path, [wrapped.block(start + index) for index in range(len(own))])
        start += len(own)


def _set_path(module: nn.Module, path: str, value: object) -> None:
    # Not registered as a submodule: parameters, device moves and the like see the shared blocks.
    *parents, last = path.split(".")
    for parent in parents:
        child = module.__dict__.get(parent) or copy.copy(getattr(module, parent))
        module.__dict__[parent] = child
        module = child
    module.__dict__[last] = value


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
        this, branch = cache.begin(self._chain, self._names)
        front = call.run(self._front, start)
        cache.decide(this, branch, start, front)
        if this.computes:
            this.run_middle(call, self._middle)
        streams = call.run(self._back, this.finish())
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
        self._pass: tuple[ChainPass, str] | None = None
        self._start: Streams | None = None

    def block(self, index: int) -> Callable[..., Any]:
        """The stand-in for one block."""

        def call_block(*args: Any, **kwargs: Any) -> Any:
            call = BlockArguments(self._chain.pattern, args, kwargs)
            return self._chain.pattern.pack(self._run(index, call))

        return call_block

    def _run(self, index: int, call: BlockArguments) -> Streams:
        streams = call.streams
        if index == 0:
            self._pass, self._start = self._cache.begin(self._chain, self._names), streams
        assert self._pass is not None
        assert self._start is not None
        this, branch = self._pass
        if index < self._front_end:
            streams = call.run([self._blocks[index]], streams)
            if index == self._front_end - 1:
                self._cache.decide(this, branch, self._start, streams)
        elif index < self._back_start:
            if this.computes:
                this.run_middle(call, [self._blocks[index]])
        else:
            return call.run([self._blocks[index]], streams)
        if index == self._back_start - 1:
            streams = this.finish()
            middle = self._back_start - self._front_end
            self._cache.count(this, len(self._blocks) - middle, middle)
        return streams


def argument_names(block: Block) -> list[str]:
    """Names of a block's positional arguments."""
    forward = getattr(block, "forward", block)
    return list(inspect.signature(forward).parameters)


def _keep_forward(original: nn.Module, mine: nn.Module, adapter: TransformerAdapter) -> None:
    """Makes the copy's calls pass the hooks of the original, and checks their arguments.

    accelerate and diffusers put hooks into an attribute `forward` that ends in the original's own
    method, so the copy would run the original's blocks.
    """
    plain = type(original).forward.__get__(mine)
    hooks = _hooks_of(original)
    refused = adapter.refused_inputs
    mine.__dict__.pop("forward", None)
    if not hooks and not refused:
        return

    def forward(*args: Any, **kwargs: Any) -> Any:
        for name in refused:
            if kwargs.get(name) is not None:
                raise InvalidArgument(
                    f"{name} changes {adapter.family} block by block, which can't be cached",
                    field="params.block_cache",
                    allowed="preset none for this request",
                )
        # Hooks move weights of the original, which has all of them; the copy shares them.
        for hook in reversed(hooks):
            args, kwargs = hook.pre_forward(original, *args, **kwargs)
        output = plain(*args, **kwargs)
        for hook in hooks:
            output = hook.post_forward(original, output)
        return output

    mine.__dict__["forward"] = forward


def _hooks_of(module: nn.Module) -> list[Any]:
    """Hooks on a module's forward method, innermost first.

    Raises:
        TypeError: one replaces the method, or its kind is not known.
    """
    if "forward" not in module.__dict__:
        return []
    hooks = []
    if (hook := getattr(module, "_hf_hook", None)) is not None:
        hooks.append(hook)
    if (registry := getattr(module, "_diffusers_hook", None)) is not None:
        hooks += [registry.hooks[name] for name in registry._hook_order]
    replacing = [type(hook).__name__ for hook in hooks if hasattr(hook, "new_forward")]
    if replacing or not hooks:
        raise TypeError(
            f"{type(module).__name__}.forward was replaced "
            f"({', '.join(replacing) or 'by hand'}), so block caching can't tell what it does"
        )
    return hooks
