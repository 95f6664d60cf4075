"""A shallow copy of a module, in which parts can be replaced without changing the shared one."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from skipstone_shared.errors import FailedPrecondition

ArgumentCheck = Callable[[tuple[Any, ...], Mapping[str, Any]], None]


def own_copy(original: nn.Module, check: ArgumentCheck | None = None) -> nn.Module:
    """A copy that shares parameters, buffers, submodules and hooks, but not its attributes.

    It runs uncompiled if the original was compiled as a whole, since what is replaced in it is not
    part of the graph. Hooks that accelerate and diffusers put around `forward` run for the copy,
    too, and are given the original: it has all weights that they move, and the copy shares them.

    Args:
        original: Any module; it is not changed.
        check: Called with the arguments of every call, before the hooks.

    Raises:
        FailedPrecondition: its forward method was replaced by something that can't be followed.
    """
    hooks = _hooks_of(original)
    mine = copy.copy(original)
    mine.__dict__["_compiled_call_impl"] = None
    # Hooks end in a method bound to the original, which would run what the copy has replaced.
    mine.__dict__.pop("forward", None)
    if not hooks and check is None:
        return mine
    plain: Callable[..., Any] = type(original).forward
    # A strong reference would be a cycle: what a request holds must go with it, not with the
    # next garbage collection.
    this = weakref.ref(mine)

    def forward(*args: Any, **kwargs: Any) -> Any:
        if check is not None:
            check(args, kwargs)
        for hook in reversed(hooks):
            args, kwargs = hook.pre_forward(original, *args, **kwargs)
        output = plain(this(), *args, **kwargs)
        for hook in hooks:
            output = hook.post_forward(original, output)
        return output

    mine.__dict__["forward"] = forward
    return mine


def replace_at(mine: nn.Module, path: str, value: object) -> None:
    """Replaces a submodule of a module's own copy by anything its code can work with.

    Not registered as a submodule: parameters, device moves and the like see the shared one.

    Args:
        mine: What `own_copy` made.
        path: Attribute names joined by dots. Modules in between become copies of their own.
        value: Takes the place.
    """
    *parents, last = path.split(".")
    for parent in parents:
        if parent not in mine.__dict__:
            mine.__dict__[parent] = own_copy(getattr(mine, parent))
        mine = mine.__dict__[parent]
    mine.__dict__[last] = value


def _hooks_of(module: nn.Module) -> list[Any]:
    """Hooks around a module's forward method, innermost first."""
    forward = module.__dict__.get("forward")
    if forward is None:
        return []
    layers = 0
    while getattr(forward, "__func__", None) is not type(module).forward:
        layers += 1
        forward = getattr(forward, "__wrapped__", None)
        if forward is None:
            raise _replaced(module, "by hand")
    hooks = [module._hf_hook] if "_hf_hook" in module.__dict__ else []
    if (registry := module.__dict__.get("_diffusers_hook")) is not None:
        hooks += [registry.hooks[name] for name in registry._hook_order]
    replacing = [type(hook).__name__ for hook in hooks if hasattr(hook, "new_forward")]
    if replacing or len(hooks) != layers:
        raise _replaced(module, f"by {', '.join(replacing)}" if replacing else "by hand")
    return hooks


def _replaced(module: nn.Module, how: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"the forward method of {type(module).__name__} was replaced {how}, so block caching can't "
        "tell what it does; undo that, or use preset none"
    )
