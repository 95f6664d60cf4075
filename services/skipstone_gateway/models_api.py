"""Which models there are: one, the executor's, under its own name and as `skipstone`."""

from __future__ import annotations

from typing import Any

from skipstone_client.aio import AsyncOrchestratorClient
from skipstone_shared.errors import NotFound

ALIAS = "skipstone"


async def list_models(client: AsyncOrchestratorClient) -> dict[str, Any]:
    """The models in OpenAI's form."""
    names = await _names(client)
    return {
        "object": "list",
        "data": [
            {"id": name, "object": "model", "created": 0, "owned_by": "skipstone"} for name in names
        ],
    }


async def check_model(client: AsyncOrchestratorClient, model: str) -> None:
    """Checks that a model that a request names is the one that is served.

    Raises:
        NotFound: It is another: a picture of the wrong model is worse than none.
        Unavailable: The orchestrator cannot be reached.
    """
    if model in ("", ALIAS):
        return
    names = await _names(client)
    if model not in names:
        raise NotFound(f"there is no model {model!r}", field="model", allowed=" or ".join(names))


async def _names(client: AsyncOrchestratorClient) -> list[str]:
    capabilities = await client.get_capabilities()
    return [*([capabilities.model_id] if capabilities.model_id else []), ALIAS]
