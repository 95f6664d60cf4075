"""``skipstone generate --file``: a picture for every row, a manifest, and going on after a stop."""

from __future__ import annotations

import dataclasses
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import TimeRemainingColumn
from rich.text import Text

from skipstone_client.batch.outputs import MANIFEST, BatchFolder, Outcome
from skipstone_client.batch.rows import Row, read_rows
from skipstone_client.batch.running import BatchStopped, Failed, run_rows
from skipstone_client.cli_credentials import credentials
from skipstone_client.cli_output import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    errors_in_one_line,
    fail,
    print_facts,
    print_json,
    share_text,
    stdout,
)
from skipstone_client.cli_progress import RateColumn, progress_bar
from skipstone_client.orchestrator import OrchestratorClient
from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import CacheOptions, HitTier

FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "-f",
        help="Batch: a prompt a line, or .jsonl or .csv with a column prompt and perhaps name, "
        "seed, steps, ... of each row. --out is a folder then.",
    ),
]
ConcurrencyOption = Annotated[
    int, typer.Option("--concurrency", "-c", min=1, max=256, help="Rows at a time.")
]
RetryForOption = Annotated[
    float,
    typer.Option(
        "--retry-for", min=0.0, help="Seconds a row goes on asking when Skipstone is away or full."
    ),
]
DEFAULT_CONCURRENCY = 4
DEFAULT_RETRY_FOR_S = 60.0
_GO_ON = "the same command goes on with what is not done"


@dataclasses.dataclass(frozen=True, slots=True)
class BatchOptions:
    """How a batch runs; the values of the options of these names."""

    target: str
    namespace: str
    timeout_s: float
    concurrency: int
    retry_for_s: float
    as_json: bool


def run_batch(
    file: Path, out: Path | None, params: GenerationParams, cache: CacheOptions, how: BatchOptions
) -> None:
    """Generates what is not done yet; ends the program with 1 where a row failed.

    Args:
        file: The rows.
        out: Folder of the pictures; None: named like the file.
        params: What a row does not say.
        cache: Likewise.
        how: The other options.
    """
    folder_path = Path(f"{file.stem}-pictures") if out is None else out
    with errors_in_one_line(), polite_ends():
        rows = read_rows(file, params, cache, how.namespace)
        with BatchFolder(folder_path) as folder:
            told = _Telling(len(rows), as_json=how.as_json)
            left = [row for row in rows if not told.was_done(folder.done(row))]
            _run(left, folder, told, how)
    told.say_end(folder_path)
    if told.failed:
        raise typer.Exit(EXIT_FAILED)


def _run(left: Sequence[Row], folder: BatchFolder, told: _Telling, how: BatchOptions) -> None:
    with OrchestratorClient(
        how.target, generate_timeout_s=how.timeout_s, credentials=credentials()
    ) as client:

        def make(row: Row) -> Outcome:
            return folder.keep(row, client.generate(row.params, row.cache, how.namespace))

        ending = run_rows(
            left,
            make,
            concurrency=how.concurrency,
            retry_for_s=how.retry_for_s,
            cancel=client.close,
        )
        with stopped_in_one_line(f"--out: cannot write to {folder.path}"), closing(ending):
            with told.progress:
                for row in ending:
                    if isinstance(row, Failed):
                        told.add(folder.note_failure(row.row, row.error))
                    else:
                        told.add(row.made)


@contextmanager
def stopped_in_one_line(when_the_disk_fails: str = "") -> Iterator[None]:
    """Ends the program when its rows end before their time, and says that it can go on."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write(f"skipstone: stopped; {_GO_ON}\n")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except BatchStopped as stopped:
        sys.stderr.write(f"skipstone: the other rows would fail too; {_GO_ON}\n")
        raise stopped.error from None
    except OSError as error:
        fail(f"{when_the_disk_fails}: {error.strerror}")


@contextmanager
def polite_ends() -> Iterator[None]:
    """Lets a polite kill and the end of the terminal stop the rows like Ctrl-C does."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Telling:
    """Tells of the rows as they end, and of all of them in the end."""

    def __init__(self, total: int, *, as_json: bool) -> None:
        self.failed = 0
        self.progress = progress_bar(RateColumn(), TimeRemainingColumn(), quiet=as_json)
        self._task = self.progress.add_task("", total=total)
        self._as_json = as_json
        self._total = total
        self._before = 0
        self._tiers: Counter[str] = Counter()
        self._run_steps = 0
        self._all_steps = 0

    def was_done(self, outcome: Outcome | None) -> bool:
        """Counts a row that an earlier run has done."""
        if outcome is None:
            return False
        self._before += 1
        # Not as an advance, which would count as fast.
        self.progress.update(self._task, completed=self._before)
        return True

    def add(self, outcome: Outcome) -> None:
        """Tells of a row that ended."""
        if outcome.status == "failed":
            self.failed += 1
            line = f"skipstone: row {outcome.row}: {outcome.error}"
            self.progress.console.print(Text(line), soft_wrap=True)
        else:
            self._tiers[outcome.provenance["tier"]] += 1
            self._run_steps += outcome.provenance["executed_steps"]
            self._all_steps += outcome.provenance["num_inference_steps"]
        if self._as_json:
            print_json(outcome)
        self.progress.update(self._task, advance=1, description=self._tiers_text())

    def say_end(self, folder: Path) -> None:
        """Tells of all rows."""
        done = self._total - self.failed
        if self._as_json:
            summary = {"rows": self._total, "done": done, "failed": self.failed}
            print_json(summary | {"done_before": self._before, "out": str(folder)})
            return
        before = f", {self._before} of them before" if self._before else ""
        skipped = self._all_steps - self._run_steps
        steps = f"{self._run_steps} run, {skipped} skipped ({share_text(skipped, self._all_steps)})"
        rows: dict[str, str | Text] = {
            "rows": f"{done} of {self._total} done{before}",
            "failed": Text(f"{self.failed}; {_GO_ON}", style="red") if self.failed else "",
            "tiers": self._tiers_text(),
            "steps": steps if self._all_steps else "",
            "pictures": f"{folder}, told of in {folder / MANIFEST}",
        }
        print_facts(stdout(), rows)

    def _tiers_text(self) -> str:
        return ", ".join(f"{self._tiers[t.value]} {t.value}" for t in HitTier)
