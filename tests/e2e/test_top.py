"""`skipstone top` over real services: for programs, and on a real terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.deploy.pods import require_mounts, with_hosts
from tests.e2e.generations import STEPS, generate
from tests.e2e.processes import (
    BY_TABLE,
    Cluster,
    running_service,
    service_environment,
    wait_until,
)
from tests.e2e.test_command_line import CommandLine

from skipstone_client import OrchestratorClient
from skipstone_shared.orchestration import BreakerState

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@contextmanager
def running_top(cluster: Cluster, *words: str, **pipes: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "skipstone_client", "top", *words]
    process = subprocess.Popen(
        [*command, "--target", cluster.targets["orchestrator"]],
        text=True,
        env=service_environment(TERM="xterm", COLUMNS="120", LINES="40"),
        **pipes,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_programs_get_a_line_for_every_interval_that_counts_what_happened(
    cluster: Cluster, namespace: str
) -> None:
    with running_top(
        cluster, "--json", "--interval", "0.2", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as top:
        assert top.stdout is not None
        first = json.loads(top.stdout.readline())
        assert (first["error"], first["lately"]) == ("", None)
        generate(cluster.client, namespace, seed=1)
        generate(cluster.client, namespace, seed=1)
        seen = {"exact": 0, "miss": 0}
        steps = 0
        for line in top.stdout:
            view = json.loads(line)
            seen = {tier: seen[tier] + view["lately"]["tiers"][tier] for tier in seen}
            steps += view["lately"]["executed_steps"]
            if sum(seen.values()) == 2:
                break
        assert seen == {"exact": 1, "miss": 1}
        assert steps == STEPS
        assert {s["service"]: s["breaker"] for s in view["services"]}["denoise"] == "closed"
        assert (view["running"], view["queued"]) == (0, 0)
        top.send_signal(signal.SIGINT)
        assert top.wait(20) == 0


def test_all_orchestrators_behind_a_name_are_shown_those_that_leave_too(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """As a headless Service: one name, a pod for each address, and pods that come and go."""
    require_mounts()
    hosts = tmp_path / "hosts"
    addresses = [f"127.{64 + os.getpid() % 64}.251.{number}" for number in (1, 2, 3)]

    def publish(*known: str) -> None:
        # In place, since the file is mounted elsewhere.
        hosts.write_text("".join(f"{address} orchestrators\n" for address in known))

    flags = (*cluster.backend_flags(), *BY_TABLE)
    with ExitStack() as running:
        first = running_service("orchestrator", f"--host={addresses[0]}", *flags)
        port = running.enter_context(first).rpartition(":")[2]
        others = [running.enter_context(ExitStack()) for _ in addresses[1:]]
        for stack, address in zip(others, addresses[1:], strict=True):
            same_port = (f"--host={address}", f"--port={port}")
            stack.enter_context(running_service("orchestrator", *same_port, *flags))
        publish(*addresses)
        target = ("--target", f"dns:///orchestrators:{port}", "--namespace", namespace)
        views = running.enter_context(json_views(hosts, *target))

        def states() -> list[str]:
            return [replica["state"] for replica in next(views)["replicas"]]

        assert states() == ["serving"] * 3
        for seed, address in enumerate(addresses):
            with OrchestratorClient(f"{address}:{port}") as client:
                generate(client, namespace, seed=seed, steps=1)
        # Requests are each replica's own, entries are in the store of all.
        view = next(v for v in views if (sum(v["tiers"].values()), v["entry_count"]) == (3, 3))
        assert view["executed_steps"] == 3
        assert [replica["address"] for replica in view["replicas"]] == [
            f"{address}:{port}" for address in addresses
        ]

        others[1].close()
        wait_until(lambda: states() == ["serving", "serving", "no answer"], "one is silent")
        publish(*addresses[:2])
        wait_until(lambda: states() == ["serving", "serving", "gone"], "one is gone")
        view = next(views)
        assert (view["error"], sum(view["tiers"].values())) == ("", 2)


@contextmanager
def json_views(hosts: Path, *words: str) -> Iterator[Iterator[Any]]:
    """What `skipstone top` tells programs, by the names in a file."""
    command = [sys.executable, "-m", "skipstone_client", "top", "--json", "--interval", "0.2"]
    process = subprocess.Popen(
        with_hosts(hosts, [*command, *words]),
        stdout=subprocess.PIPE,
        text=True,
        env=service_environment(),
    )
    try:
        assert process.stdout is not None
        yield map(json.loads, process.stdout)
    finally:
        process.kill()
        process.wait()


def test_one_look_shows_a_service_that_is_gone(cluster: Cluster, namespace: str) -> None:
    cluster.kill("embedding")

    def is_open() -> bool:
        generate(cluster.client, namespace, seed=None, steps=1)
        states = {s.service: s.breaker for s in cluster.client.get_stats().services}
        return states["embedding"] is BreakerState.OPEN

    wait_until(is_open, "the breaker of embedding opens")
    ended = CommandLine(cluster, namespace).run("top", "--once", "--interval", "0.1")
    assert ended.returncode == 0, ended.stderr
    (line,) = [line for line in ended.stdout.splitlines() if line.startswith("embedding")]
    assert "open" in line


def test_without_an_orchestrator_one_look_ends_with_1() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "skipstone_client", "top", "--once", "--target", "127.0.0.1:1"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=service_environment(),
    )
    assert ended.returncode == 1
    assert "no answer" in ended.stdout


def test_a_terminal_shows_it_until_ctrl_c_and_is_left_as_it_was(cluster: Cluster) -> None:
    terminal, other_end = pty.openpty()
    with running_top(
        cluster, "--interval", "0.1", stdin=other_end, stdout=other_end, stderr=other_end
    ) as top:
        os.close(other_end)
        seen = b""
        while b"requests" not in seen or b"latent_kv" not in seen:
            seen += os.read(terminal, 4096)
        top.send_signal(signal.SIGINT)
        try:
            while piece := os.read(terminal, 4096):
                seen += piece
        except OSError:
            pass  # how the end of a terminal reads
        assert top.wait(20) == 0
    os.close(terminal)
    enter, leave = b"\x1b[?1049h", b"\x1b[?1049l"
    assert seen.index(enter) < seen.rindex(leave)
    assert b"Traceback" not in seen
