"""The bundled gate, read once."""

from __future__ import annotations

import pytest

from skipstone_embedding.gate.prompt_gate import PromptGate
from skipstone_embedding.model_files import find_bundled_gate


@pytest.fixture(scope="session")
def gate() -> PromptGate:
    return PromptGate(find_bundled_gate())
