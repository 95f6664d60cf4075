"""``skipstone calibrate``: measures what reuse costs and writes the file that the policy reads."""

from __future__ import annotations

import importlib
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from skipstone_client.calibrate.fit import (
    MAX_DRIFT,
    MAX_WRONG,
    MAX_WRONG_BOUND,
    Bars,
    losses_by_relation,
    unit_of,
)
from skipstone_client.calibrate.measure import Checker
from skipstone_client.calibrate.pairs import pairs_of, read_rows
from skipstone_client.calibrate.records import Records
from skipstone_client.calibrate.report import bounds, draw, markdown, seed_word
from skipstone_client.calibrate.scoring import Fitted, Scorer, fitted, measurement
from skipstone_client.calibrate.session import Session, Wanted
from skipstone_client.cli_credentials import credentials
from skipstone_client.cli_output import (
    EXIT_BAD_INPUT,
    JsonOption,
    TimeoutOption,
    errors_in_one_line,
    fail,
    print_json,
    stdout,
    table_of,
)
from skipstone_client.denoise import DenoiseClient
from skipstone_client.embedding import EmbeddingClient
from skipstone_client.latent_kv import LatentKVClient
from skipstone_shared.calibration import Calibration
from skipstone_shared.ports import default_target

RECORDS_FILE = "records.jsonl"
CALIBRATION_FILE = "calibration.json"
REPORT_FILE = "calibration.md"
PLOT_FILE = "calibration.png"

_NEEDED = ("matplotlib", "PIL")

_OF_A_MACHINE = frozenset(
    {"prompts", "out", "by", "refit", "embedding", "denoise", "latent_kv", "timeout", "as_json"}
    | {"budget_minutes"}
)


def calibrate(
    context: typer.Context,
    prompts: Annotated[
        Path,
        typer.Argument(
            help="CSV file: a log with a column prompt, or pairs: donor, prompt, relation."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")] = Path(
        "out/calibration"
    ),
    pairs: Annotated[int, typer.Option(min=1, help="Pairs of prompts to measure.")] = 150,
    budget_minutes: Annotated[
        float, typer.Option(min=0.0, help="Stop after it; the next call goes on.")
    ] = 60.0,
    steps: Annotated[
        int | None, typer.Option(help="Steps of resumed runs; else the model's.")
    ] = None,
    full_steps: Annotated[
        int | None, typer.Option(help="Steps of full runs; else the model's.")
    ] = None,
    levels: Annotated[
        str, typer.Option(help="Noise levels to resume at, with commas between.")
    ] = "0.9,0.8,0.7,0.6,0.5",
    plain_steps: Annotated[
        str, typer.Option(help="Steps of plain runs to compare with; empty: by the full run's.")
    ] = "",
    seeds: Annotated[int, typer.Option(min=2, help="Seeds per prompt, for diversity.")] = 6,
    seed_prompts: Annotated[int, typer.Option(min=1, help="Prompts for diversity.")] = 6,
    guidance: Annotated[
        float | None, typer.Option(help="Guidance scale; else the model's.")
    ] = None,
    checker: Annotated[
        str,
        typer.Option(metavar="MODULE:FUNCTION", help="(picture bytes, prompt) -> right or not."),
    ] = "",
    max_wrong: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Largest share of wrong pictures at any score.")
    ] = MAX_WRONG,
    max_wrong_bound: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Largest upper bound of it in a tier.")
    ] = MAX_WRONG_BOUND,
    max_drift: Annotated[
        float, typer.Option(min=0.0, help="Most drift of a tier, in pixels; 1: another seed's.")
    ] = MAX_DRIFT,
    min_score: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="No pair of a lower score is run.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the sample and of the runs.")] = 1,
    by: Annotated[
        str, typer.Option(help="Who measures; stands in the file.")
    ] = "skipstone calibrate",
    refit: Annotated[
        bool, typer.Option("--refit", help="Run nothing: score and fit what --out has.")
    ] = False,
    embedding: Annotated[
        str, typer.Option(help="Target of embedding.")
    ] = default_target("embedding"),
    denoise: Annotated[str, typer.Option(help="Target of denoise.")] = default_target("denoise"),
    latent_kv: Annotated[
        str, typer.Option(help="Target of latent_kv; else the executor's own.")
    ] = "",
    timeout: TimeoutOption = 600.0,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Runs donor, resumed and full runs for pairs of prompts and fits a calibration file.

    Goes on where it was stopped. Set the orchestrator's calibration_file to the result.
    """
    _check_drawing()
    judge = _checker(checker)
    wanted = Wanted(
        prompts=prompts,
        pairs=pairs,
        steps=steps,
        full_steps=full_steps,
        levels=_levels(levels),
        plain_steps=_steps(plain_steps),
        guidance=guidance,
        seeds=seeds,
        seed_prompts=seed_prompts,
        seed=seed,
        budget_s=budget_minutes * 60,
        command=_command(context, prompts),
    )
    me = credentials()
    with errors_in_one_line():
        rows = read_rows(prompts)
    with errors_in_one_line(), EmbeddingClient(embedding, credentials=me) as embedder:
        records = Records(out / RECORDS_FILE)
        scorer = Scorer(embedder)
        sample = pairs_of(rows, seed, scorer.embed)
        if refit:
            setup = records.read()
        else:
            _make_folder(out)
            with DenoiseClient(denoise, run_timeout_s=timeout, credentials=me) as executor:
                store = latent_kv or executor.get_capabilities().latent_kv_target
                with LatentKVClient(store, credentials=me) as latents:
                    session = Session(executor, latents, wanted, judge)
                    setup = session.run(records, scorer.above(sample, min_score), quiet=as_json)
        fit = fitted(
            scorer,
            sample,
            records,
            setup,
            Bars(max_wrong, max_wrong_bound, max_drift, min_score),
            measurement(records, setup, by, wanted.command, checker),
        )
        _write(out, fit, records)
    _tell(fit.calibration, out, len(records.pairs), wanted.pairs, as_json)


def _write(out: Path, fit: Fitted, records: Records) -> None:
    found = fit.calibration
    try:
        (out / CALIBRATION_FILE).write_text(found.as_json(), encoding="utf-8")
        losses = losses_by_relation(fit.scored, unit_of(records))
        report = markdown(found, losses, fit.unrelated)
        (out / REPORT_FILE).write_text(report, encoding="utf-8")
        draw(found, out / PLOT_FILE)
    except OSError as error:
        fail(f"--out: cannot write to {out}: {error.strerror}")


def _tell(found: Calibration, out: Path, measured: int, wanted: int, as_json: bool) -> None:
    if as_json:
        tiers = [tier.model_dump(mode="json") for tier in found.tiers]
        print_json({"out": str(out), "pairs": measured, "tiers": tiers})
        return
    console = stdout()
    table = table_of("kind", "seed", "level", "above", "drift", "wrong", "open")
    for tier in found.tiers:
        table.add_row(
            tier.kind.value,
            seed_word(tier.same_seed),
            f"{tier.level:.3f}",
            f"{tier.above:.3f}",
            bounds(tier.drift),
            bounds(tier.wrong),
            "yes" if tier.open else f"no: {tier.closed_because}",
        )
    console.print(table)
    if measured < wanted:
        console.print(f"{measured} of {wanted} pairs; the same command goes on")
    console.print(f"written: {out}/{CALIBRATION_FILE}, {REPORT_FILE}, {PLOT_FILE}")


def _command(context: typer.Context, prompts: Path) -> str:
    """The command as it was given, without what belongs to a machine, for the file."""
    words = ["skipstone calibrate", prompts.name]
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        given = source is not None and source.name == "COMMANDLINE"
        if given and option.name not in _OF_A_MACHINE:
            words.append(option.opts[0])
            if not getattr(option, "is_flag", False):
                words.append(shlex.quote(str(context.params[option.name or ""])))
    return " ".join(words)


def _check_drawing() -> None:
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        fail(
            f"a calibration needs {' and '.join(missing)}; "
            "install with: pip install 'skipstone[cli]'"
        )


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"--out: cannot make {out}: {error.strerror}", EXIT_BAD_INPUT)


def _numbers(flag: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        fail(f"{flag}: {text!r} is not a list of numbers with commas between", EXIT_BAD_INPUT)


def _levels(text: str) -> tuple[float, ...]:
    found = _numbers("--levels", text)
    for level in found:
        if not 0.0 < level < 1.0:
            fail(f"--levels: {level:g} is no noise level between 0 and 1", EXIT_BAD_INPUT)
    if not found:
        fail("--levels: give at least one noise level between 0 and 1", EXIT_BAD_INPUT)
    return found


def _steps(text: str) -> tuple[int, ...]:
    found = _numbers("--plain-steps", text)
    for count in found:
        if not (count.is_integer() and count >= 1):
            fail(f"--plain-steps: {count:g} is no whole number from 1", EXIT_BAD_INPUT)
    return tuple(int(count) for count in found)


def _checker(name: str) -> Checker | None:
    if not name:
        return None
    module, _, function = name.partition(":")
    try:
        found: Checker = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        fail(f"--checker: {name} cannot be found: {error}", EXIT_BAD_INPUT)
    return found
