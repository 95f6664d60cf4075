"""What docs/configuration.md says of the settings is what the services have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.service_settings import SETTINGS

from skipstone_shared.config import ServiceSettings, resolve_settings
from skipstone_shared.ports import DEFAULT_PORTS

TEXT = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text(encoding="utf-8")
ONE_ROW = re.compile(r"^\| `(\w+)` \| `([^`]*)` \|", re.MULTILINE)


@pytest.mark.parametrize("cls", SETTINGS)
def test_every_default_in_the_tables_is_the_services_own(cls: type[ServiceSettings]) -> None:
    section = TEXT.split(f"### {cls.service_name}\n")[1].split("### ")[0]
    told = ONE_ROW.findall(section)
    assert len(told) >= 6
    defaults = cls()
    for name, text in told:
        settings, _ = resolve_settings(
            cls, [], {f"SKIPSTONE_{cls.service_name}_{name}".upper(): text}
        )
        assert getattr(settings, name) == getattr(defaults, name), name


@pytest.mark.parametrize("cls", SETTINGS)
def test_every_service_accepts_the_example_file(cls: type[ServiceSettings], tmp_path: Path) -> None:
    example = TEXT.split("```toml\n")[1].split("```")[0]
    path = tmp_path / "skipstone.toml"
    path.write_text(example, encoding="utf-8")
    _, sources = resolve_settings(cls, ["--config", str(path)], {})
    assert "host" in sources


def test_the_default_targets_are_the_default_ports() -> None:
    assert "`127.0.0.1:50051` to `50054`" in TEXT
    ports = [DEFAULT_PORTS[n] for n in ("embedding", "vector_index", "latent_kv", "denoise")]
    assert ports == [50051, 50052, 50053, 50054]
