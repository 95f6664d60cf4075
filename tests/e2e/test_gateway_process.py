"""The gateway's process: its certificate, its port of metrics, and what it refuses at its start."""

from __future__ import annotations

import signal
import socket
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest
from tests.certificates import Authority
from tests.e2e.processes import (
    running_service,
    service_command,
    service_environment,
    wait_until,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


def context(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.file))


def shown(address: str, authority: Authority) -> bytes | None:
    """The certificate that the gateway shows."""
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as plain:
        with context(authority).wrap_socket(plain, server_hostname=host) as secure:
            return secure.getpeercert(binary_form=True)


def test_the_gateway_speaks_tls_and_takes_up_a_renewed_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.write("gateway")
    flags = (f"--tls-cert-file={files.cert_file}", f"--tls-key-file={files.key_file}")
    with running_service("gateway", *flags) as address:
        with httpx.Client(base_url=f"https://{address}", verify=context(authority)) as http:
            assert http.get("/livez").json() == {"status": "ok"}
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://{address}/livez")
        before = shown(address, authority)
        authority.write("gateway")
        wait_until(lambda: shown(address, authority) != before, "the new certificate is shown")
        assert files.key_file is not None
        files.key_file.write_text("half of a key")
        assert shown(address, authority) is not None


def test_callers_without_a_certificate_are_refused_where_one_is_asked_for(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.write("gateway")
    caller = authority.write("caller")
    flags = (f"--tls-cert-file={files.cert_file}", f"--tls-key-file={files.key_file}")
    with running_service("gateway", *flags, f"--tls-ca-file={authority.file}") as address:
        with pytest.raises(httpx.TransportError):
            httpx.get(f"https://{address}/livez", verify=context(authority))
        known = context(authority)
        assert caller.cert_file is not None
        known.load_cert_chain(caller.cert_file, caller.key_file)
        assert httpx.get(f"https://{address}/livez", verify=known).status_code == 200


def test_metrics_are_served_on_a_port_of_their_own() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with running_service("gateway", f"--metrics-port={port}") as address:
        httpx.get(f"http://{address}/livez")
        told = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    assert 'skipstone_gateway_requests_total{code="200",method="GET",route="/livez"} 1.0' in told


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_polite_end_is_no_failure(number: signal.Signals) -> None:
    with subprocess.Popen(
        service_command("gateway", "--port", "0"),
        stderr=subprocess.PIPE,
        text=True,
        env=service_environment(),
    ) as process:
        assert process.stderr is not None
        assert "serving" in process.stderr.readline()
        process.send_signal(number)
        assert process.stderr.read() == ""
        assert process.wait(20) == 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--access-file=callers",), "give the file to the orchestrator"),
        (("--health-port=1",), "/livez"),
        (("--tls-cert-file=gone.crt", "--tls-key-file=gone.key"), "cannot read gone.crt"),
        (("--port=1", "--host=203.0.113.1"), "cannot listen on 203.0.113.1:1"),
    ],
)
def test_a_gateway_that_cannot_start_says_why_in_one_line(
    flags: tuple[str, ...], said: str
) -> None:
    ended = subprocess.run(
        service_command("gateway", *flags),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=service_environment(),
    )
    assert ended.returncode == 2
    assert said in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
