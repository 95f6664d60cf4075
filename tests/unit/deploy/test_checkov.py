"""What `make checkov` leaves out is what the documentation gives reasons for."""

from __future__ import annotations

import re

import yaml
from tests.unit.deploy.rendered import REPOSITORY


def test_every_check_that_is_left_out_has_its_reason_in_the_docs() -> None:
    config = yaml.safe_load((REPOSITORY / ".checkov.yaml").read_text(encoding="utf-8"))
    page = (REPOSITORY / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    assert sorted(config["skip-check"]) == sorted(set(re.findall(r"CKV2?_[A-Z0-9]+_[0-9]+", page)))
