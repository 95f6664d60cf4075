"""The shared transformer is left as it is: compiled, hooked or nested."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import accelerate
import pytest
import torch
from accelerate.hooks import AlignDevicesHook, add_hook_to_module, remove_hook_from_module
from diffusers.hooks import HookRegistry, ModelHook
from tests.unit.denoise.blockcache.tiny_chain import (
    Amount,
    Request,
    adapter_of,
    amounts,
    cached,
    seeded,
    tiny_transformer,
)
from torch import Tensor, nn

from skipstone_denoise.blockcache.adapters import TransformerAdapter
from skipstone_denoise.blockcache.cached_transformer import with_block_cache
from skipstone_denoise.blockcache.patterns import ForwardPattern
from skipstone_denoise.blockcache.settings import DBCacheSettings
from skipstone_denoise.blockcache.state import BlockCacheState
from skipstone_shared.errors import FailedPrecondition, InvalidArgument

SETTINGS = DBCacheSettings(max_warmup_steps=1, residual_diff_threshold=0.5, bn_compute_blocks=1)
NUMBERS: list[Amount] = [1.0, 1.1, 1.2, 2.0, 2.1, 9.0]
COMPUTED, STEPS = 3, len(NUMBERS)


def expected() -> list[Tensor]:
    return Request(*cached(tiny_transformer(), SETTINGS)).run(NUMBERS)


def contents(module: nn.Module) -> dict[str, dict[str, Any]]:
    """Every attribute of every module, and what is in its tables."""
    return {
        name: {
            key: dict(value) if isinstance(value, dict) else value
            for key, value in vars(child).items()
            if key != "rows_seen"
        }
        for name, child in module.named_modules()
    }


@pytest.mark.parametrize("own_arguments", [False, True])
def test_the_shared_transformer_is_not_changed(own_arguments: bool) -> None:
    shared = tiny_transformer()
    add_hook_to_module(shared, Passing())
    before, weights = contents(shared), {k: v.clone() for k, v in shared.state_dict().items()}
    mine, state = cached(shared, SETTINGS, own_arguments=own_arguments)
    Request(mine, state).run(NUMBERS)
    assert contents(shared) == before
    assert all(torch.equal(value, weights[key]) for key, value in shared.state_dict().items())
    assert {id(p) for p in mine.parameters()} == {id(p) for p in shared.parameters()}


class Passing(ModelHook, accelerate.hooks.ModelHook):
    """A hook of both libraries that counts, and scales what goes in and comes out."""

    def __init__(self, name: str = "hook", log: list[Any] | None = None) -> None:
        super().__init__()
        self.name = name
        self.log: list[Any] = [] if log is None else log

    def pre_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        self.log.append(("before", self.name, module))
        return args, kwargs

    def post_forward(self, module: nn.Module, output: Tensor) -> Tensor:
        self.log.append(("after", self.name, module))
        return output


def test_hooks_run_once_per_call_around_it_with_the_module_they_were_hung_on() -> None:
    shared, log = tiny_transformer(), []
    add_hook_to_module(shared, Passing("accelerate", log))
    registry = HookRegistry.check_if_exists_or_initialize(shared)
    registry.register_hook(Passing("inner", log), "inner")
    registry.register_hook(Passing("outer", log), "outer")
    mine, state = cached(shared, SETTINGS)
    assert all(map(torch.equal, Request(mine, state).run(NUMBERS), expected()))
    names = ["outer", "inner", "accelerate"]
    call = [("before", name, shared) for name in names]
    call += [("after", name, shared) for name in reversed(names)]
    assert log == call * STEPS
    assert shared.calls == [STEPS, *[COMPUTED] * 3, STEPS]


class Doubling(ModelHook):
    """Changes what goes in and what comes out."""

    def pre_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return (2 * args[0], *args[1:]), kwargs

    def post_forward(self, module: nn.Module, output: Tensor) -> Tensor:
        return 3 * output


def test_what_hooks_make_of_arguments_and_output_counts() -> None:
    shared = tiny_transformer()
    HookRegistry.check_if_exists_or_initialize(shared).register_hook(Doubling(), "doubling")
    never = DBCacheSettings(residual_diff_threshold=0.0)
    mine, state = cached(shared, never)
    plain = Request(shared).run(NUMBERS)
    assert all(map(torch.equal, Request(mine, state).run(NUMBERS), plain))


def _cpu_offload(module: nn.Module) -> Any:
    return accelerate.cpu_offload_with_hook(module, execution_device="cpu")[1]


def _align_devices(module: nn.Module) -> None:
    hook = AlignDevicesHook(execution_device="cpu", offload=True, io_same_device=True)
    add_hook_to_module(module, hook)


@pytest.mark.parametrize("offload", [_cpu_offload, _align_devices])
def test_transformers_that_are_offloaded_are_cached(offload: Callable[[nn.Module], Any]) -> None:
    shared = tiny_transformer()
    offload(shared)
    mine, state = cached(shared, SETTINGS)
    assert all(map(torch.equal, Request(mine, state).run(NUMBERS), expected()))
    assert shared.calls[1] == COMPUTED


def test_weights_that_a_hook_loads_for_a_call_are_seen_by_the_copy() -> None:
    """With offload, the top module's own parameters are on the meta device between calls."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0, dtype=torch.float64), requires_grad=False)
            self.blocks = tiny_transformer().blocks
            self.pattern = ForwardPattern.H_H
            self.rotary = (torch.zeros(2, 4), torch.zeros(2, 4))

        def forward(self, hidden: Tensor, amount: Tensor, text: None = None) -> Tensor:
            for block in self.blocks:
                hidden = block(hidden, amount, self.rotary)
            return hidden * self.scale

    def run(shared: nn.Module) -> list[Tensor]:
        return Request(*cached(shared, SETTINGS)).run(NUMBERS)

    shared = Scaled()
    _align_devices(shared)
    assert shared.scale.is_meta
    assert all(map(torch.equal, run(shared), run(Scaled())))
    assert shared.scale.is_meta


def test_hooks_that_were_taken_off_again_do_not_matter() -> None:
    """Both libraries then leave the module's own method behind, as an attribute."""
    shared = tiny_transformer()
    add_hook_to_module(shared, Passing())
    remove_hook_from_module(shared)
    registry = HookRegistry.check_if_exists_or_initialize(shared)
    registry.register_hook(Passing(), "gone")
    registry.remove_hook("gone")
    assert "forward" in vars(shared)
    mine, state = cached(shared, SETTINGS)
    assert all(map(torch.equal, Request(mine, state).run(NUMBERS), expected()))
    assert shared.calls[1] == COMPUTED


def _by_hand(module: nn.Module) -> None:
    module.forward = lambda *args: None  # type: ignore[method-assign]


def _under_a_hook(module: nn.Module) -> None:
    _by_hand(module)
    add_hook_to_module(module, Passing())


def _around_a_hook(module: nn.Module) -> None:
    add_hook_to_module(module, Passing())
    hooked = module.forward

    def around(*args: Any) -> Any:
        return hooked(*args)

    around.__wrapped__ = hooked  # type: ignore[attr-defined]
    module.forward = around  # type: ignore[method-assign]


class Replacing(ModelHook):
    def new_forward(self, module: nn.Module, *args: Any) -> Any:
        raise AssertionError


def _by_a_hook(module: nn.Module) -> None:
    HookRegistry.check_if_exists_or_initialize(module).register_hook(Replacing(), "replacing")


@pytest.mark.parametrize(
    ("replace", "how"),
    [
        (_by_hand, "by hand"),
        (_under_a_hook, "by hand"),
        (_around_a_hook, "by hand"),
        (_by_a_hook, "by Replacing"),
    ],
)
def test_a_forward_method_that_was_replaced_is_refused(
    replace: Callable[[nn.Module], None], how: str
) -> None:
    shared = tiny_transformer()
    replace(shared)
    with pytest.raises(
        FailedPrecondition, match=f"TinyTransformer was replaced {how}.*preset none"
    ):
        cached(shared, SETTINGS)


class Outer(nn.Module):
    """Has its blocks in a part of a part."""

    def __init__(self) -> None:
        super().__init__()
        self.pattern = ForwardPattern.H_H
        self.core = nn.Module()
        self.core.inner = tiny_transformer()
        self.other = nn.ModuleDict({"inner": self.core.inner})

    def forward(self, hidden: Tensor, amount: Tensor, text: None = None) -> Tensor:
        return self.core.inner(hidden, amount)


@pytest.mark.parametrize("hooked", [False, True])
def test_blocks_inside_a_part_of_the_transformer_are_replaced_there(hooked: bool) -> None:
    shared, hook = Outer(), Passing()
    if hooked:
        add_hook_to_module(shared.core.inner, hook)
    before = contents(shared)
    state = BlockCacheState(SETTINGS)
    mine = with_block_cache(shared, adapter_of(shared, "core.inner.blocks"), state)
    assert all(map(torch.equal, Request(mine, state).run(NUMBERS), expected()))
    assert shared.core.inner.calls[1] == COMPUTED
    assert contents(shared) == before
    assert len(hook.log) == (2 * STEPS if hooked else 0)


@pytest.mark.parametrize("path", ["nothing", "core.inner", "core.inner.rotary", "core.blocks"])
def test_a_list_that_is_not_there_is_named_with_those_that_are(path: str) -> None:
    shared = Outer()
    with pytest.raises(
        InvalidArgument, match=f"the block list {path}, which is not there"
    ) as error:
        with_block_cache(shared, adapter_of(shared, path), BlockCacheState(SETTINGS))
    assert "core.inner.blocks (5 blocks)" in str(error.value)


def test_a_list_inside_another_list_is_refused() -> None:
    """Its place in the outer list cannot be taken by something else."""
    shared, path = Outer(), "other.inner.blocks"
    with pytest.raises(InvalidArgument, match=f"{path}, which lies inside another list"):
        with_block_cache(shared, adapter_of(shared, path), BlockCacheState(SETTINGS))


@pytest.mark.parametrize("name", ["control", "skip"])
def test_inputs_that_change_blocks_one_by_one_are_refused(name: str) -> None:
    class Controlled(nn.Module):
        pattern = ForwardPattern.H_H

        def __init__(self) -> None:
            super().__init__()
            self.inner = tiny_transformer()

        def forward(
            self, hidden: Tensor, amount: Tensor, control: Any = None, skip: Any = False
        ) -> Tensor:
            return self.inner(hidden, amount)

    plain = adapter_of(Controlled(), "inner.blocks")
    adapter = TransformerAdapter("Controlled", "Tiny", plain.chains, refused_inputs=(name,))
    mine = with_block_cache(Controlled(), adapter, BlockCacheState(SETTINGS))
    hidden, amount = seeded(1, 3, 4, seed=1), amounts(1.0)
    place = ["control", "skip"].index(name)
    with pytest.raises(InvalidArgument, match=f"{name} changes Tiny block by block"):
        mine(hidden, amount, **{name: seeded(2, seed=1)})
    with pytest.raises(InvalidArgument, match=f"{name} changes Tiny block by block"):
        mine(hidden, amount, *[None] * place, seeded(2, seed=1))
    assert mine(hidden, amount, None, False).shape == hidden.shape
    assert mine(hidden, amount, **{name: None}).shape == hidden.shape


@pytest.mark.parametrize("hooked", [False, True])
def test_a_request_goes_without_a_garbage_collection(hooked: bool) -> None:
    """What a finished request holds is memory of the device."""
    shared = tiny_transformer()
    if hooked:
        add_hook_to_module(shared, Passing())
    mine, state = cached(shared, SETTINGS)
    Request(mine, state).run(NUMBERS)
    gone = [weakref.ref(mine), weakref.ref(state)]
    gc.disable()
    try:
        del mine, state
        assert [reference() for reference in gone] == [None, None]
    finally:
        gc.enable()
