"""What is not as it was when rows of a batch were done: server, model or options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from skipstone_client.batch.outputs import Maker, Outcome
from skipstone_client.batch.rows import Row
from skipstone_client.orchestrator import OrchestratorClient
from skipstone_shared.errors import FailedPrecondition, InvalidArgument, PermissionDenied
from skipstone_shared.orchestration import CacheMode, CacheOptions

_PLANNED_ONLY = CacheOptions(mode=CacheMode.OFF)
"""Looks nothing up: only what a run would be is wanted."""


class IfChanged(Enum):
    """What becomes of rows that are done, when this command would make them otherwise."""

    STOP = "stop"
    KEEP = "keep"
    AGAIN = "again"


class Models:
    """Asks what a row would be run with; equal questions once."""

    def __init__(self, client: OrchestratorClient, namespace: str) -> None:
        """Has asked nothing yet.

        Args:
            client: The orchestrator.
            namespace: Where the rows run.
        """
        self._client = client
        self._namespace = namespace
        self._keys: dict[tuple[Any, ...], str | None] = {}

    def key(self, row: Row) -> str | None:
        """The compatibility key of a row's run, which prompt and seed do not change.

        Returns:
            None where no run of this server fits the row; empty where this caller may not ask.

        Raises:
            Unavailable: the orchestrator or every executor cannot be reached.
        """
        asked = _asked(row)
        if asked not in self._keys:
            self._keys[asked] = self._ask(row)
        return self._keys[asked]

    def is_as_before(self, row: Row, key: str) -> bool:
        """Whether a row was made as those before it that ask for an equal run.

        Args:
            row: The row.
            key: The compatibility key it was made with; empty: not told.
        """
        before = self._keys.get(_asked(row))
        if not before:
            self._keys[_asked(row)] = key
        return not before or not key or key == before

    def _ask(self, row: Row) -> str | None:
        try:
            told = self._client.explain(row.whole_params(), _PLANNED_ONLY, self._namespace)
        except InvalidArgument:
            return None
        except PermissionDenied:
            return ""
        return told.decision.compatibility_key


def _asked(row: Row) -> tuple[Any, ...]:
    """All that its key depends on, but for the model."""
    return dataclasses.replace(row.params, prompt="", seed=None), row.references


def changes(outcome: Outcome, row: Row, maker: Maker, models: Models) -> list[str]:
    """What is not as it was when a row was done, each as a few words.

    Raises:
        Unavailable: the orchestrator or every executor cannot be reached.
    """
    found = []
    if outcome.target != maker.target:
        found.append(f"target {maker.target}, was {outcome.target or 'not told'}")
    # Not told where no executor answered when the batch began: the key tells more.
    if outcome.model_id and maker.model_id and outcome.model_id != maker.model_id:
        found.append(f"model {maker.model_id}, was {outcome.model_id}")
    if outcome.asked != row.asked:
        found += _changed_options(outcome.options, maker.options)
    if not found:
        before = outcome.provenance.get("compatibility_key", "")
        now = models.key(row)
        if now is None or (now and before and now != before):
            found.append(
                f"what the model runs with (key {now or 'none'}, was {before}): "
                "weights, defaults, settings or versions"
            )
    return found


def _changed_options(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return [
        f"{name} {now.get(name, 'not given')}, was {before.get(name, 'not given')}"
        for name in names
    ] or ["the content of a file that options name"]


def refuse_changed(folder: str, changed: Sequence[Sequence[str]]) -> None:
    """Says what is not as it was when rows were done.

    Args:
        folder: Where they are.
        changed: The changes of every row that is done.

    Raises:
        FailedPrecondition: There are some.
    """
    rows = [words for words in changed if words]
    if not rows:
        return
    words = "; ".join(dict.fromkeys(word for row in rows for word in row))
    raise FailedPrecondition(
        f"what is done in {folder} was made otherwise ({len(rows)} of {len(changed)} rows): "
        f"{words}. Give another --out, say it all as it was, or choose: --if-changed keep counts "
        "it as done, --if-changed again makes it anew"
    )
