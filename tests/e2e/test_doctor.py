"""`skipstone doctor` against deployments that are well, half dead, and not to be talked to."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import Authority
from tests.e2e.faults.disks import small_disk
from tests.e2e.generations import generate, wait_saved
from tests.e2e.processes import SERVICES, Cluster, running_service, service_environment

from skipstone_client.doctor import examine
from skipstone_client.doctor_facts import Condition, Severity
from skipstone_shared.credentials import Credentials

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

BY_HISTORY = {"saves", "disk"}
"""Findings about what tests before did to the shared services, and about the machine's own disk."""


def doctor(*words: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Runs the doctor; it must end within its bound, whatever the services do."""
    return subprocess.run(
        [sys.executable, "-m", "skipstone_client", *before, "doctor", *words],
        capture_output=True,
        text=True,
        timeout=60.0,
        env=service_environment(),
        check=False,
    )


def examined(*words: str, before: tuple[str, ...] = (), code: int) -> dict[str, Any]:
    ended = doctor(*words, "--json", before=before)
    assert ended.returncode == code, ended.stderr + ended.stdout
    found: dict[str, Any] = json.loads(ended.stdout)
    assert found["healthy"] is (code == 0)
    return found


def conditions(report: dict[str, Any]) -> dict[str, str]:
    return {service["service"]: service["condition"] for service in report["services"]}


def checks(report: dict[str, Any]) -> set[tuple[str, str]]:
    return {(finding["check"], finding["service"]) for finding in report["findings"]}


def test_a_deployment_that_is_well_is_found_well(cluster: Cluster, namespace: str) -> None:
    wait_saved(cluster, namespace, generate(cluster.client, namespace))
    target = ("--target", cluster.targets["orchestrator"], "--namespace", namespace)

    report = examined(*target, "--direct", code=0)

    assert conditions(report) == dict.fromkeys(SERVICES, "serving")
    assert {check for check, _ in checks(report)} <= BY_HISTORY
    versions = {service["version"] for service in report["services"]}
    assert len(versions) == 1
    assert versions != {""}
    assert all(abs(service["clock_offset_s"]) < 1.0 for service in report["services"])


def test_without_targets_the_orchestrator_is_asked_alone(cluster: Cluster) -> None:
    report = examined("--target", cluster.targets["orchestrator"], code=0)
    assert conditions(report) == {"orchestrator": "serving"}


def test_a_killed_and_a_hung_service_are_named_and_the_others_are_asked_all_the_same(
    cluster: Cluster, namespace: str
) -> None:
    cluster.kill("latent_kv")
    cluster.hang("vector_index")
    target = ("--target", cluster.targets["orchestrator"], "--namespace", namespace)

    report = examined(*target, "--direct", "--timeout", "6", code=1)

    wrong = {"latent_kv": "unreachable", "vector_index": "hanging"}
    assert conditions(report) == {**dict.fromkeys(SERVICES, "serving"), **wrong}
    found = checks(report)
    assert {("unreachable", "latent_kv"), ("hanging", "vector_index")} <= found
    assert ("breaker", "latent_kv") in found

    told = doctor(*target, "--direct", "--timeout", "2")
    assert told.returncode == 1
    assert "problem: latent_kv at " in told.stdout
    assert "start it" in told.stdout


def test_a_hung_orchestrator_ends_in_time_and_the_targets_given_are_asked(
    cluster: Cluster,
) -> None:
    cluster.hang("orchestrator")
    targets = ("--target", cluster.targets["orchestrator"])
    store = ("--latent-kv-target", cluster.targets["latent_kv"])

    report = examined(*targets, *store, "--timeout", "2", code=1)

    assert conditions(report) == {"orchestrator": "hanging", "latent_kv": "serving"}


def test_a_target_where_nobody_listens_is_told_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        target = f"127.0.0.1:{taken.getsockname()[1]}"
    report = examined("--target", target, code=1)
    assert conditions(report) == {"orchestrator": "unreachable"}
    (finding,) = report["findings"]
    assert target in finding["message"]
    assert finding["action"]


def test_a_store_that_another_authority_has_signed_is_trouble_with_tls(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    files = ours.write("store")
    flags = (f"--tls-cert-file={files.cert_file}", f"--tls-key-file={files.key_file}")
    with running_service("latent_kv", "--store", "memory", *flags) as target:

        def examined_with(credentials: Credentials | None) -> tuple[Condition, str]:
            return latent_kv_and_what_to_do(target, credentials)

        assert examined_with(Credentials(ours.file))[0] is Condition.SERVING
        assert examined_with(Credentials(theirs.file))[0] is Condition.TLS
        condition, action = examined_with(None)
        assert condition is Condition.UNREACHABLE  # from outside it looks like a closed door
        assert "--tls-ca-file" in action


def test_a_store_that_wants_a_token_says_so(tmp_path: Path) -> None:
    token, access = tmp_path / "token", tmp_path / "access.toml"
    create = ("token", "create", "doctor", "--out", str(token), "--right", "read")
    made = subprocess.run(
        [sys.executable, "-m", "skipstone_client", *create, "--namespace", "*"],
        capture_output=True,
        text=True,
        timeout=60.0,
        check=True,
        env=service_environment(),
    )
    access.write_text(made.stdout, encoding="utf-8")
    flags = ("--store", "memory", f"--access-file={access}")
    with running_service("latent_kv", *flags) as target:
        refused, action = latent_kv_and_what_to_do(target, None)
        let_in, _ = latent_kv_and_what_to_do(target, Credentials(token_file=token))
    assert refused is Condition.REFUSED
    assert "--token-file" in action
    assert let_in is Condition.SERVING


def latent_kv_and_what_to_do(target: str, credentials: Credentials | None) -> tuple[Condition, str]:
    """How a store meets the doctor, and what that says to do; there is no orchestrator."""
    nobody = "127.0.0.1:1"
    report = examine(nobody, {"latent_kv": target}, timeout_s=20.0, credentials=credentials)
    (facts,) = [s for s in report.services if s.service == "latent_kv"]
    actions = [f.action for f in report.findings if f.service == "latent_kv"]
    return facts.condition, "".join(actions)


def test_a_full_disk_and_a_certificate_that_ends_are_told_from_outside(tmp_path: Path) -> None:
    authority = Authority(tmp_path)  # what it signs ends within a day
    files = authority.write("store")
    flags = (f"--tls-cert-file={files.cert_file}", f"--tls-key-file={files.key_file}")
    with (
        small_disk("disk", tmp_path / "disk", 64 << 20) as disk,
        running_service("latent_kv", "--data-dir", str(disk / "kv"), *flags) as target,
    ):
        usage = shutil.disk_usage(disk)
        (disk / "other").write_bytes(bytes(usage.free - usage.total // 100))
        nobody = "127.0.0.1:1"
        report = examine(
            nobody,
            {"latent_kv": target},
            timeout_s=20.0,
            credentials=Credentials(authority.file),
        )
    found = {(f.check, f.service): f.severity for f in report.findings}
    assert found["disk", "latent_kv"] is Severity.PROBLEM
    assert found["certificate", "latent_kv"] is Severity.WARNING
    assert found["certificate", ""] is Severity.WARNING
    (store,) = [s for s in report.services if s.service == "latent_kv"]
    assert store.disk_size_bytes == usage.total
    assert 0 < store.certificates_left_s["tls_cert_file"] <= 86_400
