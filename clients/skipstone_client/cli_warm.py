"""``skipstone warm``: fills the cache ahead of time and says what was there and what it cost."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import TimeRemainingColumn
from rich.text import Text

from skipstone_client.batch.rows import Row, read_rows
from skipstone_client.batch.running import Failed, run_rows
from skipstone_client.batch.warming import Warmed, Warming, without_repeated
from skipstone_client.cli_batch import (
    DEFAULT_CONCURRENCY,
    DEFAULT_RETRY_FOR_S,
    ConcurrencyOption,
    RetryForOption,
    polite_ends,
    stopped_in_one_line,
)
from skipstone_client.cli_credentials import credentials
from skipstone_client.cli_output import (
    DEFAULT_TARGET,
    EXIT_FAILED,
    JsonOption,
    NamespaceOption,
    TargetOption,
    TimeoutOption,
    bytes_text,
    errors_in_one_line,
    print_facts,
    print_json,
    seconds_text,
    share_text,
    stdout,
)
from skipstone_client.cli_progress import RateColumn, progress_bar
from skipstone_client.cli_request import KeyStepsOption, RequestOptions
from skipstone_client.json_values import plain
from skipstone_client.option_groups import with_option_groups
from skipstone_client.orchestrator import OrchestratorClient
from skipstone_client.request_texts import key_steps_of
from skipstone_shared.generation import MAX_SEED
from skipstone_shared.orchestration import CacheOptions

_SAVE_S = 30.0
_CHECK_TIMEOUT_S = 30.0


@with_option_groups
def warm(
    *,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A prompt a line, or .jsonl or .csv as for `generate --file`.",
        ),
    ],
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=MAX_SEED, help="Seed of rows that give none.")
    ] = 0,
    asked: RequestOptions,
    key_steps: KeyStepsOption = "",
    concurrency: ConcurrencyOption = DEFAULT_CONCURRENCY,
    retry_for: RetryForOption = DEFAULT_RETRY_FOR_S,
    namespace: NamespaceOption = "",
    target: TargetOption = DEFAULT_TARGET,
    timeout: TimeoutOption = 600.0,
    as_json: JsonOption = False,
) -> None:
    """Fills the cache ahead of time, and says how much was there and what the rest cost.

    Every row is stored as a full run: whoever asks for the same again is answered at once, whoever
    asks for the like may start from it. What is there is not run again, so that the command can be
    stopped and repeated. Ends with 1 where a row failed.
    """
    with errors_in_one_line(), polite_ends():
        cache = CacheOptions(key_steps=key_steps_of(key_steps, "--key-steps"))
        params = asked.params("", seed)
        rows = read_rows(file, params, cache, namespace, asked.references())
        alone = without_repeated(rows)
        told = _Telling(len(rows), len(rows) - len(alone), as_json=as_json)
        with OrchestratorClient(
            target, generate_timeout_s=timeout, credentials=credentials()
        ) as client:
            warming = Warming(client, namespace, check_timeout_s=_CHECK_TIMEOUT_S, save_s=_SAVE_S)
            ending = run_rows(
                alone,
                warming.warm,
                concurrency=concurrency,
                retry_for_s=retry_for,
                cancel=client.close,
            )
            with stopped_in_one_line(), closing(ending), told.progress:
                for row in ending:
                    if isinstance(row, Failed):
                        told.add_failure(row)
                    else:
                        told.add(row.row, row.made)
    told.say_end()
    if told.failed:
        raise typer.Exit(EXIT_FAILED)


class _Telling:
    """Tells of the rows as they end, and of all of them in the end."""

    def __init__(self, total: int, repeated: int, *, as_json: bool) -> None:
        self.failed = 0
        self.progress = progress_bar(RateColumn(), TimeRemainingColumn(), quiet=as_json)
        self._task = self.progress.add_task("", total=total - repeated)
        self._as_json = as_json
        self._total = total
        self._repeated = repeated
        self._there = 0
        self._warmed: list[Warmed] = []

    def add(self, row: Row, warmed: Warmed) -> None:
        """Tells of a row that is in the cache now."""
        if warmed.was_there:
            self._there += 1
        else:
            self._warmed.append(warmed)
        if self._as_json:
            print_json({"row": row.number, "prompt": row.params.prompt, **plain(warmed)})
        self._advance()

    def add_failure(self, failed: Failed) -> None:
        """Tells of a row that is not."""
        self.failed += 1
        number, error = failed.row.number, failed.error
        line = Text(f"skipstone: row {number}: {error}")
        self.progress.console.print(line, soft_wrap=True)
        if self._as_json:
            prompt = failed.row.params.prompt
            print_json(
                {"row": number, "prompt": prompt, "error": str(error), "reason": error.reason}
            )
        self._advance()

    def say_end(self) -> None:
        """Tells of all rows."""
        steps = sum(warmed.steps for warmed in self._warmed)
        denoise_s = sum(warmed.denoise_s for warmed in self._warmed)
        size = sum(warmed.stored_bytes for warmed in self._warmed)
        if self._as_json:
            print_json(
                {
                    "rows": self._total,
                    "there": self._there,
                    "warmed": len(self._warmed),
                    "repeated": self._repeated,
                    "failed": self.failed,
                    "steps": steps,
                    "denoise_s": denoise_s,
                    "stored_bytes": size,
                }
            )
            return
        again = f", {self._repeated} are said again in the file" if self._repeated else ""
        there = f"{self._there} of {self._total} ({share_text(self._there, self._total)})"
        cost = f"{steps} steps, {seconds_text(denoise_s)} of executors, {bytes_text(size)} stored"
        rows: dict[str, str | Text] = {
            "there before": there + again,
            "warmed": f"{len(self._warmed)}",
            "cost": cost if self._warmed else "",
            "failed": Text(f"{self.failed}", style="red") if self.failed else "",
        }
        print_facts(stdout(), rows)

    def _advance(self) -> None:
        text = f"{self._there} there, {len(self._warmed)} warmed"
        self.progress.update(self._task, advance=1, description=text)
