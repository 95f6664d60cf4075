"""``skipstone doctor``: checks a deployment and says what is wrong and what to do."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from skipstone_client.cli_credentials import credentials
from skipstone_client.cli_output import (
    DEFAULT_TARGET,
    EXIT_FAILED,
    JsonOption,
    NamespaceOption,
    TargetOption,
    TimeoutOption,
    errors_in_one_line,
    print_json,
    seconds_text,
    stdout,
    table_of,
)
from skipstone_client.doctor import examine
from skipstone_client.doctor_facts import Condition, Finding, Report, ServiceFacts, Severity

DirectOption = Annotated[
    bool,
    typer.Option(
        "--direct", help="Ask every service directly too, where the orchestrator says it is."
    ),
]
EmbeddingOption = Annotated[
    str, typer.Option("--embedding-target", help="Ask this embedding service directly.")
]
VectorIndexOption = Annotated[
    str, typer.Option("--vector-index-target", help="Ask this vector_index directly.")
]
LatentKVOption = Annotated[
    str, typer.Option("--latent-kv-target", help="Ask this latent_kv directly.")
]
DenoiseOption = Annotated[str, typer.Option("--denoise-target", help="Ask this executor directly.")]
GatewayOption = Annotated[
    str,
    typer.Option("--gateway-url", help="Ask this gateway too, such as http://127.0.0.1:8080."),
]


def doctor(
    target: TargetOption = DEFAULT_TARGET,
    direct: DirectOption = False,
    embedding_target: EmbeddingOption = "",
    vector_index_target: VectorIndexOption = "",
    latent_kv_target: LatentKVOption = "",
    denoise_target: DenoiseOption = "",
    gateway_url: GatewayOption = "",
    namespace: NamespaceOption = "",
    timeout: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Checks a deployment and says what is wrong and what to do.

    Ends with 1 when there is a problem; warnings alone end with 0. A service that is dead or hangs
    costs at most four times the timeout, which is that of one answer.
    """
    given = {
        "embedding": embedding_target,
        "vector_index": vector_index_target,
        "latent_kv": latent_kv_target,
        "denoise": denoise_target,
    }
    with errors_in_one_line():
        report = examine(
            target,
            {name: found for name, found in given.items() if found},
            direct=direct,
            gateway_url=gateway_url,
            namespace=namespace,
            timeout_s=timeout,
            credentials=credentials(),
        )
    if as_json:
        print_json(report)
    else:
        _print(stdout(), report)
    if not report.healthy:
        raise typer.Exit(EXIT_FAILED)


def _print(console: Console, report: Report) -> None:
    console.print(_services_table(report.services))
    for finding in report.findings:
        console.print()
        _print_finding(console, finding)
    if not report.findings:
        console.print()
        console.print("nothing is wrong", style="green")


def _print_finding(console: Console, finding: Finding) -> None:
    is_problem = finding.severity is Severity.PROBLEM
    line = Text(finding.severity.value, style="bold red" if is_problem else "yellow")
    console.print(line.append(f": {finding.message}", style="not bold default"), soft_wrap=True)
    console.print(Text(f"  {finding.action}", style="dim"), soft_wrap=True)


def _services_table(services: tuple[ServiceFacts, ...]) -> Table:
    table = table_of("service", "target", "state", "version", "answered in")
    for service in services:
        serves = service.condition is Condition.SERVING
        table.add_row(
            service.service,
            service.target,
            Text(service.condition.value, style="green" if serves else "red"),
            service.version,
            seconds_text(service.answer_s) if serves else "",
        )
    return table
