"""Starts the five services, sends the demo's prompts and writes pictures and a report.

Files, under out/demo: report.html, contact_sheet.png, highlights.png (the first hit of each kind),
one PNG per prompt, results.jsonl.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import track
from rich.table import Column, Table

from demo.contact_sheet import contact_sheet
from demo.outcome import Outcome, Totals, highlights
from demo.prompts import demo_prompts
from demo.report import report_html
from demo.sending import Sender
from skipstone_client import OrchestratorClient
from skipstone_client.local_cluster import ClusterError, LocalCluster
from skipstone_shared.errors import SkipstoneError

OUT = Path("out/demo")

# Audits run full generations in idle time, which the demo's own full runs would wait for.
FLAGS = {"orchestrator": ["--drift-audit-share", "0"]}


def main() -> int:
    """Runs the demo; returns the exit status."""
    console = Console()
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    console.print("Starting the five services ...")
    try:
        with LocalCluster(OUT / "data", free_ports=True, flags=FLAGS) as cluster:
            outcomes = _send_all(cluster.targets["orchestrator"], console)
    except (ClusterError, SkipstoneError) as error:
        console.print(f"The demo stopped: {error}", style="red", markup=False)
        return 1
    except KeyboardInterrupt:
        console.print("The demo was interrupted; its services are stopped.")
        return 130
    _write_files(outcomes)
    console.print(_table(outcomes))
    _print_totals(outcomes, console)
    return 0


def _send_all(target: str, console: Console) -> list[Outcome]:
    prompts = demo_prompts()
    with OrchestratorClient(target) as client:
        outcomes: Iterable[Outcome] = Sender(client).send(prompts)
        return list(track(outcomes, "Sending prompts", total=len(prompts), console=console))


def _write_files(outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        outcome.picture.save(OUT / outcome.file_name)
    contact_sheet(outcomes).save(OUT / "contact_sheet.png")
    contact_sheet(highlights(outcomes)).save(OUT / "highlights.png")
    (OUT / "report.html").write_text(report_html(outcomes))
    lines = [json.dumps(outcome.as_json()) for outcome in outcomes]
    (OUT / "results.jsonl").write_text("\n".join(lines) + "\n")


def _table(outcomes: list[Outcome]) -> Table:
    prompt = Column("prompt", no_wrap=True, overflow="ellipsis", ratio=1)
    columns = ("tier", "k", "steps", "s", "donor", "placed")
    table = Table("#", prompt, *columns, expand=True, box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    numbers = {o.provenance.saved_entry_id: o.number for o in outcomes}
    for outcome in outcomes:
        provenance = outcome.provenance
        table.add_row(
            str(outcome.number),
            f"[dim]{outcome.prompt.kind.value}:[/dim] {outcome.prompt.text}",
            provenance.tier.value,
            str(provenance.skip_steps),
            f"{provenance.executed_steps}/{provenance.num_inference_steps}",
            f"{outcome.seconds:.2f}",
            _donor(outcome, numbers),
            f"{outcome.judgement.placed}/{outcome.judgement.objects}",
        )
    return table


def _donor(outcome: Outcome, numbers: dict[str, int]) -> str:
    if not outcome.provenance.donor_entry_id:
        return ""
    return f"#{numbers.get(outcome.provenance.donor_entry_id, '?')}"


def _print_totals(outcomes: list[Outcome], console: Console) -> None:
    totals = Totals.of(outcomes)
    console.print(
        f"{totals.hits} of {totals.requests} requests reused something; "
        f"{totals.executed_steps} of {totals.full_steps} denoising steps were run: "
        f"[bold]{100 * totals.saved_share:.0f} % saved[/bold]. "
        f"Of the {totals.objects} objects in reused pictures {totals.placed} have the right colour "
        f"and place; in full runs of the same requests, {totals.full_placed}."
    )
    console.print(
        "k: steps skipped; placed: objects with the right colour at the right place. The model is "
        "tiny: compare a result with its full run, not with perfection."
    )
    console.print(
        f"Look at {OUT / 'report.html'}, {OUT / 'contact_sheet.png'} and {OUT / 'highlights.png'}."
    )


if __name__ == "__main__":
    sys.exit(main())
