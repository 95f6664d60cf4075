"""The pages of models say what the code has, and their arithmetic is right."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import diffusers
import pytest
import torch

from skipstone_denoise.config import DenoiseSettings
from skipstone_denoise.model_families import FAMILIES, ModelFamily
from skipstone_shared.config import resolve_settings

FOLDER = Path(__file__).parents[3] / "docs" / "models"
PAGES = {family.page: (FOLDER / f"{family.page}.md").read_text("utf-8") for family in FAMILIES}
SUM = re.compile(r"2 bytes × \(([\d. +]+)\) billion (?:\| )?= ([\d.]+) GB")
PRODUCT = re.compile(r"((?:[\d]+ × )+)([\d]) bytes = ([\d.]+) MB")
COUNTED = {
    "wan": "WanTransformer3DModel",
    "qwen-image": "QwenImageTransformer2DModel",
    "flux1": "FluxTransformer2DModel",
    "flux2": "Flux2Transformer2DModel",
    "z-image": "ZImageTransformer2DModel",
    "hunyuan-video": "HunyuanVideoTransformer3DModel",
    "ltx": "LTXVideoTransformer3DModel",
}
"""Classes whose default configuration is that of published weights."""


def row_of(family: ModelFamily) -> str:
    pipelines, guidance = zip(*family.pipelines.items(), strict=True)
    told = [each.value for each in dict.fromkeys(guidance)]
    cells = (
        f"[{family.title}]({family.page}.md)",
        ", ".join(f"`{name}`" for name in pipelines),
        "; or ".join(told),
        "videos" if family.frame_rate is not None else "pictures",
        "yes" if family.block_cache else "no: a UNet",
    )
    return f"| {' | '.join(cells)} |"


def test_the_table_of_families_is_that_of_the_code() -> None:
    text = (FOLDER / "README.md").read_text("utf-8")
    table = text.split("<!-- families: begin -->\n")[1].split("<!-- families: end -->")[0]
    assert table.splitlines()[2:] == [row_of(family) for family in FAMILIES]


def test_every_page_belongs_to_a_family() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == {"README", *PAGES}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.page)
def test_a_page_names_its_pipelines_and_its_commands_are_valid(family: ModelFamily) -> None:
    text = PAGES[family.page]
    assert all(f"`{name}`" in text for name in family.pipelines)
    commands = re.findall(r"^skipstone-denoise (.*)$", text, re.MULTILINE)
    assert commands
    for command in commands:
        settings, _ = resolve_settings(DenoiseSettings, shlex.split(command), {})
        assert settings.allow_download


@pytest.mark.parametrize("page", PAGES)
def test_the_arithmetic_of_a_page_is_right(page: str) -> None:
    sums = SUM.findall(PAGES[page])
    assert sums
    for parts, total in sums:
        assert 2 * sum(map(float, parts.split("+"))) == pytest.approx(float(total), abs=0.05)
    products = PRODUCT.findall(PAGES[page])
    assert products
    for factors, width, total in products:
        size = int(width)
        for factor in factors.split("×")[:-1]:
            size *= int(factor)
        assert size / 1e6 == pytest.approx(float(total), abs=0.06)


@pytest.mark.parametrize("page", COUNTED)
def test_parameters_of_a_denoiser_are_counted(page: str) -> None:
    with torch.device("meta"):
        denoiser = getattr(diffusers, COUNTED[page])()
    count = sum(parameter.numel() for parameter in denoiser.parameters()) / 1e9
    assert f"{count:.1f} + " in PAGES[page]


def test_a_default_negative_prompt_may_be_a_space() -> None:
    """Qwen-Image's page says so, and settings often lose their white space."""
    settings, _ = resolve_settings(DenoiseSettings, ["--default-negative-prompt", " "], {})
    assert settings.default_negative_prompt == " "
