"""``skipstone generate --file``: a picture for every row, a manifest, and going on after a stop."""

from __future__ import annotations

import dataclasses
import functools
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.progress import TimeRemainingColumn
from rich.text import Text

from skipstone_client.batch.changes import IfChanged, Models, changes, refuse_changed
from skipstone_client.batch.outputs import MANIFEST, BatchFolder, Maker, Outcome
from skipstone_client.batch.rows import Row, read_rows
from skipstone_client.batch.running import BatchStopped, Failed, patiently, run_rows
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
from skipstone_client.reference_files import ReferenceFile
from skipstone_shared.errors import PermissionDenied, Unauthenticated, Unavailable
from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import CacheOptions, HitTier

T = TypeVar("T")

FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "-f",
        help="Batch: a prompt a line, or .jsonl or .csv with a column prompt and perhaps name, "
        "seed, steps, image, ... of each row. --out is a folder then.",
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
IfChangedOption = Annotated[
    IfChanged,
    typer.Option(
        "--if-changed",
        help="What becomes of pictures of a batch that another server, another model or other "
        "options made: stop, keep (they count as done), again (they are made anew).",
    ),
]
DEFAULT_CONCURRENCY = 4
DEFAULT_RETRY_FOR_S = 60.0
_CHANGED = "changed on the way: {} rows were made otherwise; --if-changed again makes all alike"
_GO_ON = "the same command goes on with what is not done"


@dataclasses.dataclass(frozen=True, slots=True)
class BatchOptions:
    """How a batch runs: the values of the options of these names, and what was told of all rows."""

    target: str
    namespace: str
    timeout_s: float
    concurrency: int
    retry_for_s: float
    if_changed: IfChanged
    as_json: bool
    told: Mapping[str, Any]


def run_batch(
    file: Path,
    out: Path | None,
    params: GenerationParams,
    references: Sequence[ReferenceFile],
    cache: CacheOptions,
    how: BatchOptions,
) -> None:
    """Generates what is not done yet; ends the program with 1 where a row failed.

    Args:
        file: The rows.
        out: Folder of the pictures; None: named like the file.
        params: What a row does not say.
        references: Files of rows that name none of the same role.
        cache: As params.
        how: The other options.
    """
    folder_path = Path(f"{file.stem}-pictures") if out is None else out
    with errors_in_one_line(), polite_ends():
        rows = read_rows(file, params, cache, how.namespace, references)
        with BatchFolder(folder_path) as folder:
            told = _Telling(len(rows), as_json=how.as_json)
            _run(rows, folder, told, how)
    told.say_end(folder_path)
    if told.failed:
        raise typer.Exit(EXIT_FAILED)


def _run(rows: Sequence[Row], folder: BatchFolder, told: _Telling, how: BatchOptions) -> None:
    client = OrchestratorClient(
        how.target, generate_timeout_s=how.timeout_s, credentials=credentials()
    )
    with client, stopped_in_one_line(f"--out: cannot write to {folder.path}"):
        model_id = _patiently(lambda: client.get_capabilities().model_id, how)
        maker = Maker(how.target, model_id, how.told)
        models = Models(client, how.namespace)
        left = _left(rows, folder, models, maker, how)
        told.were_done(len(rows) - len(left))

        def make(row: Row) -> Outcome:
            result = client.generate(row.whole_params(), row.cache, how.namespace)
            return folder.keep(row, result, maker)

        ending = run_rows(
            left,
            make,
            concurrency=how.concurrency,
            retry_for_s=how.retry_for_s,
            cancel=client.close,
        )
        with closing(ending), told.progress:
            for row in ending:
                if isinstance(row, Failed):
                    told.add(folder.note_failure(row.row, row.error, maker))
                else:
                    key = row.made.provenance["compatibility_key"]
                    told.add(row.made, as_before=models.is_as_before(row.row, key))


def _left(
    rows: Sequence[Row], folder: BatchFolder, models: Models, maker: Maker, how: BatchOptions
) -> list[Row]:
    """The rows that have to run.

    Raises:
        FailedPrecondition: rows were done otherwise, and nothing is said of such.
    """
    before = [(row, folder.done(row)) for row in rows]
    changed: dict[str, list[str]] = {}
    if how.if_changed is not IfChanged.KEEP:
        for row, outcome in before:
            if outcome is not None:
                ask = functools.partial(changes, outcome, row, maker, models)
                changed[row.key] = _patiently(ask, how)
    if how.if_changed is IfChanged.STOP:
        refuse_changed(str(folder.path), list(changed.values()))
    return [row for row, outcome in before if outcome is None or changed.get(row.key)]


def _patiently(call: Callable[[], T], how: BatchOptions) -> T:
    """Calls before any row runs; a server that stays away ends the batch as it does later."""
    try:
        return patiently(call, how.retry_for_s, threading.Event())
    except (Unavailable, Unauthenticated, PermissionDenied) as error:
        raise BatchStopped(error) from None


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
        self._otherwise = 0
        self._tiers: Counter[str] = Counter()
        self._run_steps = 0
        self._all_steps = 0

    def were_done(self, count: int) -> None:
        """Counts rows that an earlier run has done."""
        self._before = count
        # Not as an advance, which would count as fast.
        self.progress.update(self._task, completed=count)

    def add(self, outcome: Outcome, *, as_before: bool = True) -> None:
        """Tells of a row that ended, and whether the model is that of the rows before."""
        self._otherwise += not as_before
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
            summary |= {"done_before": self._before, "made_otherwise": self._otherwise}
            print_json({**summary, "out": str(folder)})
            return
        before = f", {self._before} of them before" if self._before else ""
        otherwise = Text(_CHANGED.format(self._otherwise), style="yellow")
        skipped = self._all_steps - self._run_steps
        steps = f"{self._run_steps} run, {skipped} skipped ({share_text(skipped, self._all_steps)})"
        rows: dict[str, str | Text] = {
            "rows": f"{done} of {self._total} done{before}",
            "failed": Text(f"{self.failed}; {_GO_ON}", style="red") if self.failed else "",
            "model": otherwise if self._otherwise else "",
            "tiers": self._tiers_text(),
            "steps": steps if self._all_steps else "",
            "pictures": f"{folder}, told of in {folder / MANIFEST}",
        }
        print_facts(stdout(), rows)

    def _tiers_text(self) -> str:
        return ", ".join(f"{self._tiers[t.value]} {t.value}" for t in HitTier)
