"""Which models there are: one, the executor's, under its own name and as `skipstone`."""

from __future__ import annotations

from typing import Any

from skipstone_client.aio import AsyncOrchestratorClient
from skipstone_shared.errors import NotFound
from skipstone_shared.orchestration import OrchestratorCapabilities

ALIAS = "skipstone"


async def list_models(client: AsyncOrchestratorClient) -> dict[str, Any]:
    """The models in OpenAI's form."""
    names = _names(await client.get_capabilities())
    return {
        "object": "list",
        "data": [
            {"id": name, "object": "model", "created": 0, "owned_by": "skipstone"} for name in names
        ],
    }


async def check_model(client: AsyncOrchestratorClient, model: str) -> None:
    """Checks that a model that a request names is the one that is served; asks nobody for none.

    Raises:
        NotFound: It is another: a picture of the wrong model is worse than none.
        Unavailable: The orchestrator cannot be reached.
    """
    if model not in ("", ALIAS):
        check_named(await client.get_capabilities(), model)


def check_named(served: OrchestratorCapabilities, model: str) -> None:
    """The same for a caller who knows what is served.

    Raises:
        NotFound: It is another.
    """
    names = ["", *_names(served)]
    if model not in names:
        raise NotFound(
            f"there is no model {model!r}", field="model", allowed=" or ".join(names[1:])
        )


def _names(served: OrchestratorCapabilities) -> list[str]:
    return [*([served.model_id] if served.model_id else []), ALIAS]
