"""All five services with certificates and tokens, as an operator switches them on."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.certificates import Authority
from tests.e2e.processes import PATIENT, SERVICES, service_command, service_environment, wait_until

from skipstone_client import LatentKVClient, OrchestratorClient, VectorIndexClient
from skipstone_client.local_cluster import ClusterEvent, LocalCluster, LogLine
from skipstone_shared.access import Right, caller_table, token_hash
from skipstone_shared.credentials import Credentials
from skipstone_shared.errors import EntryNotFound, PermissionDenied, Unauthenticated, Unavailable
from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import CacheMode, CacheOptions, HitTier

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

ALL_RIGHTS = list(Right)
PARAMS = GenerationParams("a red circle on a blue background", num_inference_steps=6, seed=1)
CALLERS = {
    "services": (["*"], ALL_RIGHTS),
    "gallery": (["gallery"], [Right.GENERATE, Right.READ, Right.WRITE]),
    "museum": (["museum"], ALL_RIGHTS),
}


class Secured:
    """A cluster that lets in only whom its files name."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder)
        self.lines: list[str] = []
        for name in ("server", "caller"):
            self.authority.write(name)
        for name in CALLERS:
            (folder / f"{name}.token").write_text(f"sks_secret_of_{name}\n")
        (folder / "access.toml").write_text(
            "\n\n".join(
                caller_table(name, [token_hash(f"sks_secret_of_{name}")], *allowed)
                for name, allowed in CALLERS.items()
            )
        )
        self.config = folder / "skipstone.toml"
        self.config.write_text("\n".join(self._table(name) for name in SERVICES))
        self.cluster = LocalCluster(
            folder / "data",
            config=self.config,
            model=str(model),
            flags={"orchestrator": PATIENT},
            free_ports=True,
            on_event=self._note,
            environ=service_environment(),
        )

    def _table(self, service: str) -> str:
        files = {
            "tls_cert_file": "server.crt",
            "tls_key_file": "server.key",
            "tls_ca_file": "authority.pem",
            "access_file": "access.toml",
        }
        if service in ("orchestrator", "denoise"):
            files |= {
                "client_tls_ca_file": "authority.pem",
                "client_tls_cert_file": "caller.crt",
                "client_tls_key_file": "caller.key",
                "client_token_file": "services.token",
            }
        rows = [f'{setting} = "{self.folder / file}"' for setting, file in files.items()]
        return "\n".join([f"[{service}]", *rows, ""])

    def credentials(self, name: str) -> Credentials:
        return Credentials(
            self.authority.file,
            self.folder / "caller.crt",
            self.folder / "caller.key",
            token_file=self.folder / f"{name}.token",
        )

    def client(self, name: str) -> OrchestratorClient:
        return OrchestratorClient(
            self.cluster.targets["orchestrator"], credentials=self.credentials(name)
        )

    def command(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs the command line as a caller, with what it needs from the environment."""
        environ = service_environment(
            SKIPSTONE_TARGET=self.cluster.targets["orchestrator"],
            SKIPSTONE_TOKEN_FILE=str(self.folder / f"{name}.token"),
            SKIPSTONE_TLS_CA_FILE=str(self.authority.file),
            SKIPSTONE_TLS_CERT_FILE=str(self.folder / "caller.crt"),
            SKIPSTONE_TLS_KEY_FILE=str(self.folder / "caller.key"),
        )
        return subprocess.run(
            [sys.executable, "-m", "skipstone_client", *words],
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def _note(self, event: ClusterEvent) -> None:
        if isinstance(event, LogLine):
            self.lines.append(event.text)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"), tiny_model)
    made.cluster.start()
    yield made
    made.cluster.stop()


def save_one(client: OrchestratorClient, namespace: str, seed: int) -> str:
    """Generates and waits until the result can be found; its entry id."""
    params = dataclasses.replace(PARAMS, seed=seed)
    entry_id = client.generate(params, namespace=namespace).provenance.saved_entry_id

    def is_found() -> bool:
        told = client.generate(params, CacheOptions(mode=CacheMode.READ_ONLY), namespace)
        return told.provenance.tier is HitTier.EXACT

    wait_until(is_found, "the entry is saved and read by services that show who they are")
    return entry_id


def test_a_caller_who_is_let_in_generates_and_hits(secured: Secured) -> None:
    with secured.client("gallery") as client:
        told = client.generate(PARAMS, namespace="gallery").provenance
        assert (told.tier, told.fallbacks) == (HitTier.MISS, ())
        save_one(client, "gallery", 1)


def test_nobody_else_is_let_in_anywhere(secured: Secured) -> None:
    targets = secured.cluster.targets
    with OrchestratorClient(targets["orchestrator"]) as plain, pytest.raises(Unavailable):
        plain.get_capabilities(timeout_s=2.0)
    without_token = dataclasses.replace(secured.credentials("gallery"), token_file=None)
    with OrchestratorClient(targets["orchestrator"], credentials=without_token) as client:
        with pytest.raises(Unauthenticated):
            client.get_capabilities()
    with secured.client("gallery") as client:
        with pytest.raises(PermissionDenied, match="'museum'"):
            client.generate(PARAMS, namespace="museum")
        with pytest.raises(PermissionDenied, match="right admin"):
            client.delete_namespace("gallery")
    mine = secured.credentials("gallery")
    with LatentKVClient(targets["latent_kv"], credentials=mine) as store:
        with pytest.raises(PermissionDenied):
            store.list_entries("museum")
    with VectorIndexClient(targets["vector_index"], credentials=mine) as index:
        with pytest.raises(PermissionDenied):
            index.list_namespaces()


def test_certificates_are_renewed_while_callers_call_and_no_call_fails(secured: Secured) -> None:
    """New keys for every service and every caller; each takes them up within a second or so."""

    def takes_up() -> int:
        return sum('"reloaded ' in line for line in secured.lines)

    with secured.client("museum") as standing:
        standing.generate(PARAMS, namespace="museum")
        before = takes_up()
        for name in ("server", "caller"):
            secured.authority.write(name)

        def taken_up() -> bool:
            # Clients look when they call, and servers when somebody connects.
            standing.generate(PARAMS, namespace="museum")
            with secured.client("museum") as fresh:
                fresh.generate(PARAMS, namespace="museum")
            return takes_up() >= before + len(SERVICES)

        wait_until(taken_up, "the services have taken up new files")
        assert standing.generate(PARAMS, namespace="museum").provenance.fallbacks == ()


def test_a_prompt_is_deleted_and_proved_gone_from_the_command_line(secured: Secured) -> None:
    prompt = ["--prompt", PARAMS.prompt, "--namespace", "gallery"]
    with secured.client("gallery") as client:
        entry_id = save_one(client, "gallery", 7)
        left = secured.command("gallery", "entries", "verify-deleted", *prompt)
        assert (left.returncode, entry_id in left.stdout) == (1, True), left.stderr
        deleted = secured.command("gallery", "entries", "delete-prompt", *prompt)
        assert deleted.returncode == 0, deleted.stderr
        proof = secured.command("gallery", "entries", "verify-deleted", *prompt)
        assert proof.returncode == 0, proof.stdout + proof.stderr
        assert proof.stdout.startswith("nothing is left")
    root = secured.credentials("services")
    targets = secured.cluster.targets
    with LatentKVClient(targets["latent_kv"], credentials=root) as store:
        with pytest.raises(EntryNotFound):
            store.get_entry("gallery", entry_id)
    with VectorIndexClient(targets["vector_index"], credentials=root) as index:
        with pytest.raises(EntryNotFound):
            index.get_entry("gallery", entry_id)


def test_no_secret_is_in_a_log_a_process_list_or_a_print(secured: Secured) -> None:
    refused = secured.command("museum", "entries", "list", "--namespace", "gallery")
    assert refused.returncode == 1
    words = [refused.stdout, refused.stderr, *secured.lines]
    for service in SERVICES:
        pid = secured.cluster.pid(service)
        words.append(Path(f"/proc/{pid}/cmdline").read_text())
        words.append(Path(f"/proc/{pid}/environ").read_text())
    command = service_command("orchestrator", "--config", str(secured.config), "--print-config")
    words.append(subprocess.check_output(command, env=service_environment(), text=True))
    text = "\n".join(words)
    assert "access.toml" in text, "paths may be told"
    assert "sks_secret" not in text
    assert "PRIVATE KEY" not in text


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--tls-cert-file", "/nothing.crt", "--tls-key-file", "/nothing.key"], "tls_cert_file"),
        (["--tls-ca-file", "/nothing.pem"], "tls_ca_file needs tls_cert_file"),
        (["--access-file", "/nothing.toml"], "access_file: cannot read /nothing.toml"),
        (["--client-token-file", "/nothing"], "client_token_file: cannot read /nothing"),
        (["--prompt-key-file", "/nothing.key"], "prompt_key_file: cannot read /nothing.key"),
    ],
)
def test_a_file_that_cannot_be_used_stops_the_start_with_its_name(
    flags: list[str], told: str
) -> None:
    done = subprocess.run(
        service_command("orchestrator", "--port", "0", *flags),
        env=service_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert told in done.stderr.splitlines()[-1]
