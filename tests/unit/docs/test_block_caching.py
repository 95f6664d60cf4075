"""What docs/block-caching.md says of settings and reports is what the product has."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from skipstone_denoise.blockcache.dbcache import Reason
from skipstone_denoise.blockcache.families import adapter_from_declaration
from skipstone_denoise.blockcache.known_adapters import KNOWN_ADAPTERS
from skipstone_denoise.blockcache.patterns import ForwardPattern
from skipstone_denoise.blockcache.presets import PRESETS
from skipstone_denoise.blockcache.settings import DBCacheSettings
from skipstone_denoise.config import DenoiseSettings
from skipstone_shared.block_cache_json import block_cache_from_text, parse_block_cache
from skipstone_shared.config import resolve_settings
from skipstone_shared.generation import BlockCacheConfig

TEXT = (Path(__file__).parents[3] / "docs" / "block-caching.md").read_text(encoding="utf-8")
SETTINGS = TEXT.split("## Settings\n")[1].split("## ")[0]
CELLS = [line.strip("|").split("|") for line in SETTINGS.splitlines() if line.startswith("| `")]
ROWS = [(cells[0], cells[1], cells[2].strip()) for cells in CELLS]


def names_of(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_setting_has_a_row() -> None:
    told = [name.lower() for cell, _, _ in ROWS for name in names_of(cell)]
    assert sorted(told) == sorted(field.name for field in dataclasses.fields(BlockCacheConfig))


def test_every_number_in_the_table_is_the_default() -> None:
    defaults = DBCacheSettings()
    told = {names_of(cell)[0].lower(): text for cell, _, text in ROWS}
    numbers = {name: float(text) for name, text in told.items() if re.fullmatch(r"-?[\d.]+", text)}
    assert len(numbers) == 8
    order = numbers.pop("taylorseer_order")
    assert order == defaults.taylor_order
    assert numbers == {name: getattr(defaults, name) for name in numbers}


def test_every_sglang_name_in_the_table_means_that_setting() -> None:
    values = {
        ("FN", "BN", "WARMUP", "MC", "TS_ORDER"): "2",
        ("RDT",): "0.5",
        ("TAYLORSEER",): "true",
        ("SCM_COMPUTE_BINS", "SCM_CACHE_BINS"): "2,1",
        ("SCM_PRESET",): "slow",
        ("SCM_POLICY",): "static",
    }
    told: dict[str, str] = {}
    for cell, variables, _ in ROWS:
        told |= dict(zip(names_of(variables), names_of(cell), strict=False))
    assert told.pop("SECONDARY_...") == "secondary"
    assert set(told) == {name for names in values for name in names}
    for names, value in values.items():
        for name in names:
            field = told[name].lower()
            config = parse_block_cache({f"SGLANG_CACHE_DIT_{name}": value})
            assert getattr(config, field) != getattr(BlockCacheConfig(), field)


def test_the_second_transformers_variables_are_understood() -> None:
    config = parse_block_cache({"SGLANG_CACHE_DIT_SECONDARY_RDT": "0.12"})
    assert config.secondary == BlockCacheConfig(residual_diff_threshold=0.12)


def test_the_presets_are_told_as_they_are() -> None:
    told = re.findall(r"^\| `(\w+)` \| `(\{.*?\})` \|", TEXT, re.MULTILINE)
    assert {name: parse_block_cache(text) for name, text in told} == {
        preset.value: config for preset, config in PRESETS.items()
    }


def test_every_family_is_named() -> None:
    part = TEXT.split("<!-- families: begin -->")[1].split("<!-- families: end -->")[0]
    for adapter in KNOWN_ADAPTERS:
        assert adapter.family in part


def test_every_reason_is_explained() -> None:
    table = TEXT.split("| reason |")[1].split("\n\n")[0]
    assert set(names_of(table)) == {reason.value for reason in Reason}


def test_every_pattern_is_named() -> None:
    named = [f"`{pattern.value}`" for pattern in ForwardPattern]
    assert ", ".join(named) in TEXT


def test_the_declaration_in_the_page_can_be_used_as_it_is(tmp_path: Path) -> None:
    example = TEXT.split("```toml\n")[1].split("```")[0]
    path = tmp_path / "skipstone.toml"
    path.write_text(example, encoding="utf-8")
    settings, _ = resolve_settings(DenoiseSettings, ["--config", str(path)], {})
    ((name, declaration),) = settings.block_adapters.items()
    adapter = adapter_from_declaration(name, declaration)
    assert adapter.transformer_class == "MyTransformer2DModel"
    assert len(example.splitlines()) <= 10


@pytest.mark.parametrize("text", re.findall(r"--cache-config (\w+|'.*?')", TEXT))
def test_every_example_on_the_command_line_is_understood(text: str) -> None:
    plain = text.strip("'")
    assert block_cache_from_text(plain) != BlockCacheConfig()
    if plain.startswith("{"):
        assert json.loads(plain)
