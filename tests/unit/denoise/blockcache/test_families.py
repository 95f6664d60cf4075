"""Which adapter a transformer gets: by its class, as declared, or an error that says what to do."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
import torch
from tests.unit.denoise.blockcache.families.picture_families import COGVIEW4, FLUX
from tests.unit.denoise.blockcache.families.video_families import WAN
from torch import nn

from skipstone_denoise.blockcache.adapters import BlockChain, TransformerAdapter
from skipstone_denoise.blockcache.families import (
    KNOWN_ADAPTERS,
    adapter_for,
    adapter_from_declaration,
)
from skipstone_denoise.blockcache.patterns import ForwardPattern
from skipstone_shared.errors import InvalidArgument

DECLARATION: dict[str, Any] = {"lists": ["layers"], "pattern": "h->h"}


class Backbone(nn.Module):
    """A part with blocks of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Identity()] * 2)


class NewTransformer(nn.Module):
    """Of a class that nobody has told us of."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.ModuleDict({"steps": nn.ModuleList([nn.Identity()])}) for _ in range(4)]
        )
        self.refiner = nn.ModuleList([nn.Identity()])
        self.backbone = Backbone()
        self.parts = nn.ModuleDict({"blocks": nn.ModuleList([nn.Identity()])})
        self.unused = nn.ModuleList()


def declared(class_name: str = "NewTransformer", **changes: Any) -> TransformerAdapter:
    return adapter_from_declaration(class_name, {**DECLARATION, **changes})


def test_no_class_has_two_adapters() -> None:
    names = [adapter.transformer_class for adapter in KNOWN_ADAPTERS]
    assert len(set(names)) == len(names)


def test_all_families_of_the_promise_are_known() -> None:
    promised = (
        "Wan Flux.1 Flux.2 Qwen-Image Diffusion PixArt Z-Image HunyuanVideo CogVideoX LTX Mochi "
        "Sana Chroma Lumina CogView4"
    )
    families = " ".join(adapter.family for adapter in KNOWN_ADAPTERS)
    assert [word for word in promised.split() if word not in families] == []


def test_a_class_that_derives_from_a_known_one_is_cached_like_it() -> None:
    transformer = WAN.transformer()
    transformer.__class__ = type("MyWan", (type(transformer),), {})
    assert adapter_for(transformer).family == "Wan 2.1 and 2.2"


def test_a_class_that_replaces_the_loop_of_a_known_one_must_be_declared() -> None:
    transformer = WAN.transformer()
    own_loop = {"forward": lambda self, hidden_states: hidden_states}
    transformer.__class__ = type("MyWan", (type(transformer),), own_loop)
    with pytest.raises(InvalidArgument, match=r"forward method of Wan.*(\n.*)*adapters\.MyWan"):
        adapter_for(transformer)
    own = declared("WanTransformer3DModel", lists=["blocks"])
    assert adapter_for(transformer, [own]) is own


def test_a_transformer_compiled_as_a_whole_is_still_known() -> None:
    assert adapter_for(torch.compile(COGVIEW4.transformer())).family == "CogView4"


def test_a_declaration_comes_before_what_is_known() -> None:
    own = declared("FluxTransformer2DModel", lists=["transformer_blocks"], pattern="(h,e)->(e,h)")
    assert adapter_for(FLUX.transformer(), [own]) is own


def test_a_declared_list_may_lie_deeper() -> None:
    own = declared(lists=["backbone.blocks"])
    assert adapter_for(NewTransformer(), [own]) is own


def test_an_unknown_transformer_is_an_error_that_shows_how_to_declare_it() -> None:
    with pytest.raises(InvalidArgument) as raised:
        adapter_for(NewTransformer())

    assert raised.value.field == "params.block_cache"
    message = str(raised.value)
    assert all(adapter.family in message for adapter in KNOWN_ADAPTERS)
    assert all(pattern.value in message for pattern in ForwardPattern)
    # What is inside the blocks is no list of blocks.
    assert "layers (4 blocks), refiner (1 blocks), backbone.blocks (2 blocks), " in message
    assert len(message.splitlines()) <= 10


def test_the_declaration_in_that_error_can_be_used_as_it_is() -> None:
    with pytest.raises(InvalidArgument) as raised:
        adapter_for(NewTransformer())
    example = str(raised.value).partition("configuration file of the denoise service:")[2]

    table = tomllib.loads(example)["denoise"]["block_adapters"]
    adapter = adapter_from_declaration("NewTransformer", table["NewTransformer"])
    assert adapter.chains == (BlockChain(("layers",), ForwardPattern.HE_HE),)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("transformer_blocks", "is not there"),
        ("layers.blocks", "is not there"),
        ("backbone", "is not there"),
        ("unused", "has no blocks"),
        ("parts.blocks", "lies inside another list"),
    ],
)
def test_blocks_that_are_not_there_are_an_error(path: str, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{path}, which {problem}.*layers") as raised:
        adapter_for(NewTransformer(), [declared(lists=[path])])
    assert raised.value.field == "params.block_cache"


@pytest.mark.parametrize("pattern", list(ForwardPattern))
def test_every_pattern_can_be_declared(pattern: ForwardPattern) -> None:
    adapter = declared(pattern=pattern.value, own_arguments=True, unbatched=["rope"])
    assert adapter.chains == (BlockChain(("layers",), pattern, True, ("rope",)),)
    assert adapter.branches == ("cond", "uncond")


def test_several_chains_can_be_declared() -> None:
    adapter = adapter_from_declaration(
        "NewTransformer",
        {
            "chains": [DECLARATION, {"lists": ["refiner"], "pattern": "h->(e,h)"}],
            "branches": ["cond_uncond"],
            "refused_inputs": ["control"],
        },
    )
    assert [chain.lists for chain in adapter.chains] == [("layers",), ("refiner",)]
    assert adapter.branches == ("cond_uncond",)
    assert adapter.refused_inputs == ("control",)


@pytest.mark.parametrize(
    ("declaration", "place", "allowed"),
    [
        ({}, ".pattern", "(h,e)->(h,e), (h,e)->(e,h)"),
        ({"pattern": "h->h"}, ".lists", "at least one name"),
        ({**DECLARATION, "lists": []}, ".lists", "at least one name"),
        ({**DECLARATION, "lists": "layers"}, ".lists", "list"),
        ({**DECLARATION, "lists": ["layers", 3]}, ".lists", "at least one name"),
        ({**DECLARATION, "lists": ["layers", "layers"]}, ".lists", "different names"),
        ({**DECLARATION, "pattern": "e->h"}, ".pattern", "h->(e,h)"),
        ({**DECLARATION, "pattern": ["h->h"]}, ".pattern", "h->(e,h)"),
        ({**DECLARATION, "own_arguments": "yes"}, ".own_arguments", "true or false"),
        ({**DECLARATION, "branches": []}, ".branches", "at least one name"),
        ({**DECLARATION, "unbatched": [""]}, ".unbatched", "names"),
        ({**DECLARATION, "list": ["layers"]}, "", "lists, pattern"),
        ({"chains": []}, ".chains", "at least one"),
        ({"chains": ["layers"]}, ".chains[0]", "lists, pattern"),
        ({"chains": [DECLARATION], "pattern": "h->h"}, "", "chains, branches"),
        ({"chains": [DECLARATION, DECLARATION]}, ".chains", "each list in one chain"),
        ({"chains": [DECLARATION, {"lists": ["a"]}]}, ".chains[1].pattern", "h->h"),
    ],
    ids=str,
)
def test_a_wrong_declaration_names_the_place_and_what_is_allowed(
    declaration: dict[str, Any], place: str, allowed: str
) -> None:
    with pytest.raises(InvalidArgument) as raised:
        adapter_from_declaration("NewTransformer", declaration)
    assert raised.value.field == f"block_adapters.NewTransformer{place}"
    assert allowed in (raised.value.allowed or "")
