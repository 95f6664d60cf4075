"""``skipstone generate``: one picture or a file of them, a progress bar, where they come from."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress, TaskID, TimeElapsedColumn
from rich.text import Text

from skipstone_client._orchestrator_requests import ResultBuilder
from skipstone_client.artifact_names import next_free
from skipstone_client.batch.changes import IfChanged
from skipstone_client.cli_batch import (
    DEFAULT_CONCURRENCY,
    DEFAULT_RETRY_FOR_S,
    BatchOptions,
    ConcurrencyOption,
    FileOption,
    IfChangedOption,
    RetryForOption,
    run_batch,
)
from skipstone_client.cli_block_cache import block_cache_facts
from skipstone_client.cli_credentials import credentials
from skipstone_client.cli_output import (
    DEFAULT_TARGET,
    EXIT_BAD_INPUT,
    JsonOption,
    NamespaceOption,
    TargetOption,
    TimeoutOption,
    bytes_text,
    errors_in_one_line,
    fail,
    print_facts,
    print_json,
    seconds_text,
    share_text,
    stdout,
)
from skipstone_client.cli_progress import progress_bar
from skipstone_client.cli_request import CacheChoices, RequestOptions, SeedOption, told_options
from skipstone_client.json_values import plain
from skipstone_client.option_groups import with_option_groups
from skipstone_client.orchestrator import OrchestratorClient
from skipstone_shared.generation import GenerationParams, StepProgress
from skipstone_shared.orchestration import (
    CacheOptions,
    Fallback,
    GenerateEvent,
    GenerateResult,
    GenerateStarted,
    HitTier,
    Provenance,
)

_STAGES = ("build_query", "lookup", "rerank", "resume", "denoise", "decode", "save", "total")
TIER_STYLES = {HitTier.EXACT: "bold green", HitTier.APPROXIMATE: "bold cyan", HitTier.MISS: "bold"}


@with_option_groups
def generate(
    *,
    prompt: Annotated[str | None, typer.Argument(help="What to show; or give --file.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="File to write, over what is there; else the next free picture.png or video.mp4.",
        ),
    ] = None,
    file: FileOption = None,
    concurrency: ConcurrencyOption = DEFAULT_CONCURRENCY,
    retry_for: RetryForOption = DEFAULT_RETRY_FOR_S,
    if_changed: IfChangedOption = IfChanged.STOP,
    seed: SeedOption = None,
    asked: RequestOptions,
    choices: CacheChoices,
    namespace: NamespaceOption = "",
    target: TargetOption = DEFAULT_TARGET,
    timeout: TimeoutOption = 600.0,
    as_json: JsonOption = False,
) -> None:
    """Generates one picture and says where it comes from, or those of all rows of a file.

    What is not given is what the model and the orchestrator are configured with. A batch that was
    stopped, by whatever, goes on with the same command; it ends with 1 where a row failed.
    """
    if (prompt is None) == (file is None):
        fail("give a prompt, or --file with one a line", EXIT_BAD_INPUT)
    with errors_in_one_line():
        params, references = asked.params(prompt or "", seed), asked.references()
        cache = choices.options()
    if file is not None:
        told = told_options(asked, choices)
        told |= {"seed": seed} if seed is not None else {}
        told |= {"namespace": namespace} if namespace else {}
        how = BatchOptions(
            target, namespace, timeout, concurrency, retry_for, if_changed, as_json, told
        )
        run_batch(file, out, params, references, cache, how)
        return
    _check_out(out or Path("picture"))
    with (
        errors_in_one_line(),
        OrchestratorClient(target, generate_timeout_s=timeout, credentials=credentials()) as client,
    ):
        params = dataclasses.replace(params, reference_inputs=tuple(f.read() for f in references))
        result = _follow(client, params, cache, namespace, quiet=as_json)
    out = out or next_free(result.artifact.media_type)
    try:
        out.write_bytes(result.artifact.data)
    except OSError as error:
        fail(f"--out: cannot write {out}: {error.strerror}")
    if as_json:
        print_json({"out": str(out), **plain(result)})
        return
    print_facts(stdout(), _picture_facts(out, result) | provenance_facts(result.provenance))


def _check_out(out: Path) -> None:
    """Finds out before the picture is made whether it can be written."""
    folder = out.parent
    try:
        if out.is_dir():
            fail(f"--out: {out} is a directory", EXIT_BAD_INPUT)
        if not folder.is_dir():
            fail(f"--out: there is no directory {folder}", EXIT_BAD_INPUT)
        if not os.access(out if out.exists() else folder, os.W_OK):
            fail(f"--out: {out} may not be written", EXIT_BAD_INPUT)
    except OSError as error:  # such as a name that is too long
        fail(f"--out: {out}: {error.strerror}", EXIT_BAD_INPUT)


def _follow(
    client: OrchestratorClient,
    params: GenerationParams,
    cache: CacheOptions,
    namespace: str,
    *,
    quiet: bool,
) -> GenerateResult:
    """Runs the generation under a progress bar on stderr, if that is a terminal."""
    result = ResultBuilder(None)
    progress = progress_bar(TimeElapsedColumn(), quiet=quiet)
    with progress, closing(client.generate_stream(params, cache, namespace)) as events:
        task = progress.add_task("looking up", total=None)
        for event in events:
            result.add(event)
            _show_progress(progress, task, event)
    return result.finish()


def _show_progress(progress: Progress, task: TaskID, event: GenerateEvent) -> None:
    if isinstance(event, GenerateStarted):
        progress.update(
            task,
            description=event.tier.value,
            total=event.num_inference_steps,
            completed=event.skip_steps,
        )
    elif isinstance(event, StepProgress):
        progress.update(task, completed=event.step_index + 1, total=event.num_inference_steps)


def _picture_facts(out: Path, result: GenerateResult) -> dict[str, str | Text]:
    artifact = result.artifact
    frames = f", {artifact.num_frames} frames" if artifact.num_frames > 1 else ""
    size = f"{artifact.width}x{artifact.height}{frames}, {bytes_text(len(artifact.data))}"
    return {"picture": f"{out} ({size})", "seed": str(result.provenance.seed)}


def provenance_facts(provenance: Provenance) -> dict[str, str | Text]:
    """A provenance for people, one row per question."""
    tier = Text(provenance.tier.value, style=TIER_STYLES[provenance.tier])
    tier.append(f" ({provenance.reason})", style="not bold dim")
    rows: dict[str, str | Text] = {
        "tier": tier,
        "steps": _steps_text(provenance),
        "donor": _donor_text(provenance),
        "joined": provenance.joined_request_id,
        "similarity": _scores_text(provenance),
        **block_cache_facts(provenance.block_cache),
        "times": times_text(provenance.stage_times_s),
        "cache mode": provenance.cache_mode.value,
        "saved as": provenance.saved_entry_id,
        "policy": provenance.policy_version,
        "request": provenance.request_id,
    }
    rows |= fallback_facts(provenance.fallbacks)
    for step, reason in provenance.snapshot_failures.items():
        rows[f"snapshot {step}"] = Text(f"not stored: {reason}", style="yellow")
    return rows


def times_text(stage_times_s: Mapping[str, float]) -> str:
    """Times per stage for people, in the order of the stages; their map has none."""
    times = sorted(stage_times_s.items(), key=lambda item: _place_of_stage(item[0]))
    return ", ".join(f"{name} {seconds_text(seconds)}" for name, seconds in times)


def fallback_facts(fallbacks: Sequence[Fallback]) -> dict[str, str | Text]:
    """What went wrong, one row each."""
    return {
        f"fallback {number}": Text(_fallback_text(fallback), style="yellow")
        for number, fallback in enumerate(fallbacks, 1)
    }


def _place_of_stage(name: str) -> tuple[int, str]:
    return (_STAGES.index(name) if name in _STAGES else _STAGES.index("total"), name)


def _steps_text(provenance: Provenance) -> str:
    total = provenance.num_inference_steps
    text = f"{provenance.executed_steps} of {total} run"
    if provenance.skip_steps:
        text += f", {provenance.skip_steps} skipped ({share_text(provenance.skip_steps, total)})"
    if provenance.start_sigma:  # 0 where nothing was left to run
        text += f", from sigma {provenance.start_sigma:.3f}"
    if provenance.reuse_kind is not None:
        text += f" by {provenance.reuse_kind.value}"
    if provenance.reuse_tier:
        over = f"; no deeper: {provenance.passed_over}" if provenance.passed_over else ""
        text += f" (tier {provenance.reuse_tier}{over})"
    return text


def _donor_text(provenance: Provenance) -> str:
    if not provenance.donor_entry_id:
        return ""
    prompt = f' "{provenance.donor_prompt}"' if provenance.donor_prompt else ""
    choices = provenance.donor_choices
    drawn = f", drawn among {choices}" if choices > 1 else ""
    return provenance.donor_entry_id + prompt + drawn


def _scores_text(provenance: Provenance) -> str:
    scores = []
    if provenance.similarity is not None:
        scores.append(f"{provenance.similarity:.3f}")
    if provenance.rerank_score is not None:
        scores.append(f"gate {provenance.rerank_score:.3f}")
    return ", ".join(scores)


def _fallback_text(fallback: Fallback) -> str:
    text = f"{fallback.stage}: {fallback.service} {fallback.reason}"
    if fallback.message:
        text += f" - {fallback.message}"
    return f"{text} (+{seconds_text(fallback.delay_s)})"
