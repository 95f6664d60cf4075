"""``skipstone entries delete-prompt``, ``delete-namespace`` and ``verify-deleted``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skipstone_client.cli_credentials import credentials
from skipstone_client.cli_output import (
    DEFAULT_TARGET,
    EXIT_BAD_INPUT,
    EXIT_FAILED,
    JsonOption,
    NamespaceOption,
    TargetOption,
    TimeoutOption,
    errors_in_one_line,
    fail,
    print_json,
    stdout,
)
from skipstone_client.orchestrator import OrchestratorClient
from skipstone_shared.deletion import Leftovers

_SHOWN_IDS = 20

PromptOption = Annotated[
    str, typer.Option("--prompt", help="The prompt; others on this machine can see it.")
]
PromptFileOption = Annotated[
    Path | None, typer.Option("--prompt-file", help="File that holds the prompt.")
]
PromptHashOption = Annotated[
    str, typer.Option("--prompt-hash", help="Hash of the prompt, as delete-prompt tells it.")
]


def delete_prompt(
    prompt: PromptOption = "",
    prompt_file: PromptFileOption = None,
    prompt_hash: PromptHashOption = "",
    namespace: NamespaceOption = "",
    target: TargetOption = DEFAULT_TARGET,
    timeout: TimeoutOption = 120.0,
    as_json: JsonOption = False,
) -> None:
    """Deletes every entry of a prompt from both stores; case and white space do not count."""
    prompt = _prompt_of(prompt, prompt_file)
    with errors_in_one_line(), _client(target, timeout) as client:
        deleted = client.delete_prompt(prompt, namespace, prompt_hash=prompt_hash)
    if as_json:
        print_json(deleted)
        return
    stdout().print(f"deleted {deleted.count} entries with the prompt hash {deleted.prompt_hash}")


def delete_namespace(
    namespace: Annotated[str, typer.Argument(help="The namespace.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    target: TargetOption = DEFAULT_TARGET,
    timeout: TimeoutOption = 120.0,
    as_json: JsonOption = False,
) -> None:
    """Deletes everything of a namespace from both stores."""
    if not yes:
        typer.confirm(f"Delete everything in the namespace {namespace!r}?", abort=True, err=True)
    with errors_in_one_line(), _client(target, timeout) as client:
        deleted = client.delete_namespace(namespace)
    if as_json:
        print_json(deleted)
        return
    stdout().print(
        f"deleted {deleted.vectors} entries of vector_index, {deleted.latents} of latent_kv"
    )


def verify_deleted(
    entry_ids: Annotated[list[str] | None, typer.Argument(help="Ids of entries.")] = None,
    prompt: PromptOption = "",
    prompt_file: PromptFileOption = None,
    prompt_hash: PromptHashOption = "",
    whole_namespace: Annotated[
        bool, typer.Option("--whole-namespace", help="Everything of the namespace.")
    ] = False,
    namespace: NamespaceOption = "",
    target: TargetOption = DEFAULT_TARGET,
    timeout: TimeoutOption = 120.0,
    as_json: JsonOption = False,
) -> None:
    """Proves that nothing is left of entries, a prompt or a namespace; else ends with 1.

    Both stores are asked, not what the orchestrator remembers.
    """
    prompt = _prompt_of(prompt, prompt_file)
    given = [bool(entry_ids), bool(prompt), bool(prompt_hash), whole_namespace]
    if sum(given) != 1:
        fail(
            "give ids, or one of --prompt, --prompt-file, --prompt-hash and --whole-namespace",
            EXIT_BAD_INPUT,
        )
    with errors_in_one_line(), _client(target, timeout) as client:
        left = client.verify_deleted(
            namespace, entry_ids=entry_ids or (), prompt=prompt, prompt_hash=prompt_hash
        )
    if as_json:
        print_json({"proved": left.is_proof, **_as_dict(left)})
    else:
        _tell(left)
    if not left.is_proof:
        raise typer.Exit(EXIT_FAILED)


def _client(target: str, timeout_s: float) -> OrchestratorClient:
    return OrchestratorClient(target, timeout_s=timeout_s, credentials=credentials())


def _prompt_of(prompt: str, path: Path | None) -> str:
    if path is None:
        return prompt
    if prompt:
        fail("give one of --prompt and --prompt-file", EXIT_BAD_INPUT)
    try:
        return path.read_text(encoding="utf-8").rstrip("\n")
    except OSError as error:
        fail(f"--prompt-file: cannot read {path}: {error.strerror}", EXIT_BAD_INPUT)
    except UnicodeDecodeError:
        fail(f"--prompt-file: {path} is not valid UTF-8", EXIT_BAD_INPUT)


def _as_dict(left: Leftovers) -> dict[str, object]:
    return {
        "vector_entry_ids": left.vector_entry_ids,
        "latent_entry_ids": left.latent_entry_ids,
        "checked_count": left.checked_count,
        "unattributed_count": left.unattributed_count,
    }


def _tell(left: Leftovers) -> None:
    console = stdout()
    if left.is_proof:
        console.print(f"nothing is left; {left.checked_count} entries of both stores were checked")
        return
    for store, ids in (
        ("vector_index", left.vector_entry_ids),
        ("latent_kv", left.latent_entry_ids),
    ):
        if ids:
            more = " ..." if len(ids) > _SHOWN_IDS else ""
            console.print(f"{store} still has {' '.join(ids[:_SHOWN_IDS])}{more}", soft_wrap=True)
    if left.unattributed_count:
        console.print(
            f"{left.unattributed_count} entries of latent_kv have no vector, so nobody knows their "
            "prompt; they go when their lease ends or a reconcile pass removes them"
        )
