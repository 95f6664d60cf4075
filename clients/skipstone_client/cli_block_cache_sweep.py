"""``skipstone blockcache sweep``: one prompt over many block-cache settings, to choose one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.progress import TimeRemainingColumn

from skipstone_client.block_cache_sweep.choice import PSNR_BARS_DB, Choice, choose, pareto_front
from skipstone_client.block_cache_sweep.measure import Measured, Refused, Sweep, rows_of
from skipstone_client.block_cache_sweep.settings import (
    SHARES_OF_FEWER_STEPS,
    Grid,
    Kind,
    Setting,
    fewer_steps,
    full_run_again,
    preset_settings,
)
from skipstone_client.block_cache_sweep.tables import (
    choice_lines,
    document,
    note_lines,
    picture_name,
    refusal_lines,
    screen_table,
    write_csv,
    write_json,
)
from skipstone_client.cli_block_cache import block_cache_config
from skipstone_client.cli_credentials import credentials
from skipstone_client.cli_output import (
    DEFAULT_TARGET,
    EXIT_BAD_INPUT,
    JsonOption,
    NamespaceOption,
    TargetOption,
    TimeoutOption,
    errors_in_one_line,
    fail,
    print_json,
    stdout,
)
from skipstone_client.cli_progress import progress_bar
from skipstone_client.orchestrator import OrchestratorClient
from skipstone_shared.errors import SkipstoneError
from skipstone_shared.generation import GenerationParams

_FORECASTS = ("off", "1", "2", "dd1", "dd2")
_MASKS = ("none", *(f"{name}{end}" for name in ("slow", "medium", "fast", "ultra")
                    for end in ("", "-static")))  # fmt: skip
_DRAWING = ("matplotlib", "PIL")
_T = TypeVar("_T", int, float, str)


def sweep(
    prompt: Annotated[str, typer.Argument(help="What to show.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")] = Path(
        "out/blockcache-sweep"
    ),
    steps: Annotated[int | None, typer.Option(help="Denoising steps; else the model's.")] = None,
    seed: Annotated[
        str, typer.Option(help="Seed, or several such as 0,1,2: figures are then medians.")
    ] = "0",
    thresholds: Annotated[
        str, typer.Option(help="residual_diff_threshold, 0 to 1, with commas between.")
    ] = "0.04,0.08,0.16,0.24,0.32,0.5",
    fn: Annotated[str, typer.Option(help="Fn_compute_blocks, with commas between.")] = "1",
    bn: Annotated[str, typer.Option(help="Bn_compute_blocks.")] = "",
    warmup: Annotated[str, typer.Option(help="max_warmup_steps.")] = "",
    max_continuous: Annotated[
        str, typer.Option(help="max_continuous_cached_steps; -1 for no limit.")
    ] = "3,6",
    taylorseer: Annotated[
        str, typer.Option(help=f"Forecast of the residual: {', '.join(_FORECASTS)}.")
    ] = "off,1",
    scm: Annotated[str, typer.Option(help=f"Step masks: {', '.join(_MASKS)}.")] = "none",
    presets: Annotated[bool, typer.Option(help="Try the presets too.")] = True,
    configs: Annotated[
        list[str] | None,
        typer.Option(
            "--cache-config", "--config", metavar="JSON|@FILE|PRESET",
            help="One setting more, as `skipstone generate` takes it; repeatable.",
        ),
    ] = None,
    fewer: Annotated[
        bool, typer.Option("--fewer-steps/--no-fewer-steps", help="Compare with fewer steps.")
    ] = True,
    guidance: Annotated[float | None, typer.Option(help="Guidance scale.")] = None,
    height: Annotated[int | None, typer.Option(help="Height in pixels.")] = None,
    width: Annotated[int | None, typer.Option(help="Width in pixels.")] = None,
    num_frames: Annotated[int | None, typer.Option(help="Frames, for video models.")] = None,
    negative_prompt: Annotated[str, typer.Option(help="What to avoid.")] = "",
    namespace: NamespaceOption = "",
    target: TargetOption = DEFAULT_TARGET,
    timeout: TimeoutOption = 600.0,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Runs one prompt with many block-cache settings and shows what each saves and changes.

    Every run has the same seed and uses nothing stored. Writes a plot, a table (CSV and JSON) and
    the results; ends with the settings to paste. An empty list leaves an option at its default.
    """
    _check_drawing()
    _make_folder(out)
    seeds = _values("--seed", seed, int) or [0]
    with errors_in_one_line():
        grid = Grid(
            thresholds=_values("--thresholds", thresholds, float),
            fn=_values("--fn", fn, int),
            bn=_values("--bn", bn, int),
            warmup=_values("--warmup", warmup, int),
            max_continuous=_values("--max-continuous", max_continuous, int),
            forecasts=_words("--taylorseer", taylorseer, _FORECASTS) or ["off"],
            masks=_words("--scm", scm, _MASKS) or ["none"],
        )
        cached = [
            *grid.settings(),
            *(preset_settings() if presets else ()),
            *(_given(text) for text in configs or ()),
        ]
    params = GenerationParams(
        prompt=prompt,
        negative_prompt=negative_prompt,
        num_inference_steps=steps,
        guidance_scale=guidance,
        height=height,
        width=width,
        num_frames=num_frames,
    )
    shares = SHARES_OF_FEWER_STEPS if fewer else ()
    with (
        errors_in_one_line(),
        OrchestratorClient(target, generate_timeout_s=timeout, credentials=credentials()) as client,
    ):
        model = Path(client.get_capabilities().model_id).name
        runs = Sweep(client, params, seeds, namespace)
        outcomes: list[Measured | Refused] = []
        try:
            _follow(runs, cached, shares, outcomes, quiet=as_json)
        except (SkipstoneError, KeyboardInterrupt):
            # What was measured before a failure or Ctrl-C is worth as much as ever.
            if rows_of(outcomes, Kind.BLOCK_CACHE):
                Report(out, _facts(params, seeds, runs, model), outcomes).write(as_json)
            raise
    Report(out, _facts(params, seeds, runs, model), outcomes).write(as_json)


def _check_drawing() -> None:
    missing = [name for name in _DRAWING if find_spec(name) is None]
    if missing:
        fail(f"a sweep needs {' and '.join(missing)}; install with: pip install 'skipstone[cli]'")


def _make_folder(out: Path) -> None:
    try:
        (out / "pictures").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"--out: cannot make {out}: {error.strerror}", EXIT_BAD_INPUT)


def _values(flag: str, text: str, kind: Callable[[str], _T]) -> list[_T]:
    """The values of a list with commas between."""
    try:
        return [kind(part.strip()) for part in text.split(",") if part.strip()]
    except ValueError:
        numbers = "whole numbers" if kind is int else "numbers"
        fail(f"{flag}: {text!r} is not a list of {numbers} with commas between", EXIT_BAD_INPUT)


def _words(flag: str, text: str, allowed: Sequence[str]) -> list[str]:
    words = _values(flag, text, str)
    for word in words:
        if word not in allowed:
            fail(f"{flag}: {word!r} (allowed: {', '.join(allowed)})", EXIT_BAD_INPUT)
    return words


def _given(text: str) -> Setting:
    config = block_cache_config(text)
    assert config is not None
    return Setting(Kind.BLOCK_CACHE, text, config, text)


def _follow(
    runs: Sweep,
    cached: Sequence[Setting],
    shares: Sequence[float],
    outcomes: list[Measured | Refused],
    *,
    quiet: bool,
) -> None:
    """Makes all runs, under a progress bar on stderr if that is a terminal.

    Args:
        runs: Makes them.
        cached: Settings to try.
        shares: Shares of the steps that plain runs have.
        outcomes: Gets each outcome as it comes.
        quiet: Whether to show nothing.
    """
    with progress_bar(TimeRemainingColumn(), quiet=quiet) as progress:
        task = progress.add_task("full run", total=None)
        outcomes.append(runs.measure_full())
        settings = [*fewer_steps(runs.num_inference_steps, shares), *cached, full_run_again()]
        progress.update(task, total=len(settings))
        for setting in settings:
            progress.update(task, description=setting.label)
            outcomes.append(runs.measure(setting))
            progress.advance(task)


def _facts(
    params: GenerationParams, seeds: Sequence[int], runs: Sweep, model: str
) -> dict[str, Any]:
    return {
        "prompt": params.prompt,
        "model": model,
        "num_inference_steps": runs.num_inference_steps,
        "seeds": list(seeds),
    }


class Report:
    """What a sweep found, on disk and on the screen."""

    def __init__(
        self, out: Path, facts: dict[str, Any], outcomes: Sequence[Measured | Refused]
    ) -> None:
        """Sorts what was found.

        Args:
            out: Folder to write to.
            facts: What was run.
            outcomes: What came of it.
        """
        self._out = out
        self._facts = facts
        self._rows = rows_of(outcomes, *Kind)
        self._refused = [outcome for outcome in outcomes if isinstance(outcome, Refused)]
        self._cached = rows_of(outcomes, Kind.BLOCK_CACHE)
        self._front = pareto_front(self._cached)
        plainly = rows_of(outcomes, Kind.FEWER_STEPS)
        self._choices = [choose(self._cached, plainly, bar) for bar in PSNR_BARS_DB]

    def write(self, as_json: bool) -> None:
        """Writes the files and prints the table, or all as JSON."""
        found = document(self._facts, self._rows, self._refused, self._choices)
        try:
            self._write_files(found)
        except OSError as error:
            fail(f"--out: cannot write to {self._out}: {error.strerror}")
        if as_json:
            print_json({"out": str(self._out), **found})
        else:
            self._show(self._choices)
        if not self._cached:
            fail(f"no setting could be run: {self._refused[0].reason}", EXIT_BAD_INPUT)

    def _write_files(self, found: dict[str, Any]) -> None:
        from skipstone_client.block_cache_sweep.contact_sheet import draw_contact_sheet
        from skipstone_client.block_cache_sweep.plot import draw_plot

        for number, row in enumerate(self._rows, 1):
            (self._out / picture_name(number, row)).write_bytes(row.artifact.data)
        write_csv(self._out / "sweep.csv", self._rows)
        write_json(self._out / "sweep.json", found)
        draw_contact_sheet(self._out / "pictures.png", self._rows)
        draw_plot(self._out / "sweep.png", self._rows, self._front, self._title())

    def _title(self) -> str:
        facts = self._facts
        seeds = ", ".join(map(str, facts["seeds"]))
        return (
            f"“{facts['prompt']}”\n{facts['model']}, {facts['num_inference_steps']} steps, "
            f"seed {seeds}"
        )

    def _show(self, choices: Sequence[Choice]) -> None:
        console = stdout()
        console.print(screen_table(self._rows, self._front))
        for line in (*refusal_lines(self._refused), *note_lines(self._rows)):
            console.print(line, markup=False, soft_wrap=True)
        console.print(f"written: {self._out}/sweep.png, pictures.png, sweep.csv, sweep.json")
        for choice in choices:
            for line in choice_lines(choice):
                console.print(line, markup=False, soft_wrap=True)
