"""Finds how the blocks of a transformer are cached: by its class, or as declared."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import nn

from skipstone_denoise.blockcache.adapters import BlockChain, TransformerAdapter
from skipstone_denoise.blockcache.known_adapters import KNOWN_ADAPTERS
from skipstone_denoise.blockcache.patterns import ForwardPattern
from skipstone_shared.errors import InvalidArgument

__all__ = [
    "KNOWN_ADAPTERS",
    "adapter_for",
    "adapter_from_declaration",
    "block_lists",
    "unwrapped",
]

_REQUEST_FIELD = "params.block_cache"
_SETTING = "block_adapters"
_PATTERNS = {pattern.value: pattern for pattern in ForwardPattern}
_CHAIN_KEYS = ("lists", "pattern", "own_arguments", "unbatched")
_ADAPTER_KEYS = ("chains", "branches", "refused_inputs")
_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)


def adapter_for(
    transformer: nn.Module, declared: Iterable[TransformerAdapter] = ()
) -> TransformerAdapter:
    """The adapter of a transformer, by the name of its class or of a class it derives from.

    A class that derives from a known one counts as known if it has not replaced `forward`.

    Args:
        transformer: A denoiser of a pipeline, maybe wrapped by `torch.compile`.
        declared: Adapters of the configuration; they come before the known ones.

    Raises:
        InvalidArgument: nothing is known of the class, or the transformer lacks blocks that its
            adapter names. Running without caching would be slower than what the caller counts on.
    """
    module = unwrapped(transformer)
    classes = type(module).__mro__
    adapter = _adapter_of(classes, declared)
    if adapter is None:
        # A class with a loop of its own may call its blocks in another way.
        same_loop = [c for c in classes if getattr(c, "forward", None) is type(module).forward]
        adapter = _adapter_of(same_loop, KNOWN_ADAPTERS)
    if adapter is None:
        raise InvalidArgument(_how_to_declare(module), field=_REQUEST_FIELD)
    for chain in adapter.chains:
        block_lists(module, chain)
    return adapter


def block_lists(module: nn.Module, chain: BlockChain) -> list[nn.ModuleList]:
    """The block lists of a chain.

    Raises:
        InvalidArgument: the module lacks one, or one that is there cannot be replaced.
    """
    return [_block_list(module, path) for path in chain.lists]


def _block_list(module: nn.Module, path: str) -> nn.ModuleList:
    holders: list[Any] = []
    found: Any = module
    for name in path.split("."):
        holders.append(found)
        found = getattr(found, name, None)
    if not isinstance(found, nn.ModuleList):
        problem = "is not there"
    elif len(found) == 0:
        problem = "has no blocks"
    elif any(isinstance(holder, _CONTAINERS) for holder in holders):
        # What holds a list must look it up as an attribute for it to be replaced.
        problem = "lies inside another list"
    else:
        return found
    name = type(module).__name__
    raise InvalidArgument(
        f"the adapter of {name} names the block list {path}, which {problem}; its lists are "
        f"{_described(_lists_of(module))}",
        field=_REQUEST_FIELD,
    )


def _adapter_of(
    classes: Iterable[type], adapters: Iterable[TransformerAdapter]
) -> TransformerAdapter | None:
    by_class = {adapter.transformer_class: adapter for adapter in adapters}
    return next((by_class[c.__name__] for c in classes if c.__name__ in by_class), None)


def unwrapped(transformer: nn.Module) -> nn.Module:
    """The transformer itself, without what `torch.compile` puts around a module."""
    original = getattr(transformer, "_orig_mod", transformer)
    assert isinstance(original, nn.Module)
    return original


def adapter_from_declaration(class_name: str, declaration: Mapping[str, Any]) -> TransformerAdapter:
    """Reads an entry of the setting `block_adapters`.

    Args:
        class_name: The transformer's class, the key of the entry.
        declaration: `lists` (attribute names of block lists that run one after another as one
            chain), `pattern` (`"(h,e)->(h,e)"`, ...) and optionally `own_arguments` and
            `unbatched`, as in `BlockChain`; or `chains`, a list of such tables, where each keeps a
            state of its own. Optional beside them: `branches` and `refused_inputs`, as in
            `TransformerAdapter`.

    Raises:
        InvalidArgument: a key or value is not allowed; names it and what is.
    """
    place = f"{_SETTING}.{class_name}"
    chains = _chains(declaration, place)
    lists = [path for chain in chains for path in chain.lists]
    if len(set(lists)) < len(lists):
        raise InvalidArgument(
            f"the chains {lists} share a list",
            field=f"{place}.chains",
            allowed="each list in one chain",
        )
    adapter = TransformerAdapter(class_name, class_name, chains)
    return dataclasses.replace(
        adapter,
        branches=_names(declaration, "branches", place, adapter.branches, least=1),
        refused_inputs=_names(declaration, "refused_inputs", place, ()),
    )


def _chains(declaration: Mapping[str, Any], place: str) -> tuple[BlockChain, ...]:
    if "chains" not in declaration:
        _check_keys(declaration, (*_CHAIN_KEYS, *_ADAPTER_KEYS), place)
        own = {key: value for key, value in declaration.items() if key in _CHAIN_KEYS}
        return (_chain(own, place),)
    _check_keys(declaration, _ADAPTER_KEYS, place)
    tables = declaration["chains"]
    if not isinstance(tables, Sequence) or isinstance(tables, str) or not tables:
        raise InvalidArgument(
            "is not a list of chains", field=f"{place}.chains", allowed="at least one table"
        )
    return tuple(_chain(t, f"{place}.chains[{i}]") for i, t in enumerate(tables))


def _chain(table: Any, place: str) -> BlockChain:
    if not isinstance(table, Mapping):
        raise InvalidArgument("is not a table", field=place, allowed=", ".join(_CHAIN_KEYS))
    _check_keys(table, _CHAIN_KEYS, place)
    pattern = table.get("pattern")
    if not isinstance(pattern, str) or pattern not in _PATTERNS:
        raise InvalidArgument(
            f"{pattern!r} is not a pattern of blocks" if "pattern" in table else "is missing",
            field=f"{place}.pattern",
            allowed=", ".join(_PATTERNS),
        )
    own_arguments = table.get("own_arguments", False)
    if not isinstance(own_arguments, bool):
        raise InvalidArgument(
            f"{own_arguments!r} is neither true nor false",
            field=f"{place}.own_arguments",
            allowed="true or false",
        )
    return BlockChain(
        lists=_names(table, "lists", place, (), least=1),
        pattern=_PATTERNS[pattern],
        own_arguments=own_arguments,
        unbatched=_names(table, "unbatched", place, ()),
    )


def _names(
    table: Mapping[str, Any], key: str, place: str, default: tuple[str, ...], least: int = 0
) -> tuple[str, ...]:
    names = table.get(key, default)
    is_list = isinstance(names, Sequence) and not isinstance(names, str)
    if not is_list or len(names) < least or not all(isinstance(n, str) and n for n in names):
        allowed = "a list of names" if not least else "a list of at least one name"
        raise InvalidArgument(
            f"{names!r} is not {allowed}" if key in table else "is missing",
            field=f"{place}.{key}",
            allowed=allowed,
        )
    if len(set(names)) < len(names):
        raise InvalidArgument(
            f"{list(names)} has a name twice", field=f"{place}.{key}", allowed="different names"
        )
    return tuple(names)


def _check_keys(table: Mapping[str, Any], known: Sequence[str], place: str) -> None:
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.0)[0]
            raise InvalidArgument(
                f"unknown key {key}, did you mean {near}?", field=place, allowed=", ".join(known)
            )


def _lists_of(module: nn.Module) -> dict[str, int]:
    """Block lists by name, with their lengths; what is inside a block is not what one declares."""
    return {
        name: len(found)
        for name, found in module.named_modules()
        if isinstance(found, nn.ModuleList) and len(found) and not re.search(r"\.\d+\.", name)
    }


def _described(lists: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count} blocks)" for name, count in lists.items()) or "none"


def _how_to_declare(module: nn.Module) -> str:
    name = type(module).__name__
    families = ", ".join(adapter.family for adapter in KNOWN_ADAPTERS)
    lists = _lists_of(module)
    largest = max(lists, key=lists.__getitem__, default="transformer_blocks")
    known = _adapter_of(type(module).__mro__, KNOWN_ADAPTERS)
    why = (
        f"it replaces the forward method of {known.transformer_class}"
        if known
        else f"it is none of the known families ({families})"
    )
    return f"""\
cannot cache the blocks of {name}: {why}.
Its block lists are: {_described(lists)}.
Declare how its blocks run in the configuration file of the denoise service:
    [denoise.{_SETTING}.{name}]
    # Attributes; several lists where they run on as one chain.
    lists = ["{largest}"]
    # What a block takes and returns, h the image stream, e the text stream; one of
    # {", ".join(_PATTERNS)}
    pattern = "(h,e)->(h,e)"
    own_arguments = false  # true if the loop gives every block its own arguments"""
