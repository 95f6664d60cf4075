"""`skipstone doctor` of a gateway: well, alone, hanging, and behind a certificate."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.certificates import Authority
from tests.e2e.processes import Cluster, running_gateway, running_service
from tests.e2e.test_doctor import conditions, examined

from skipstone_client.doctor_facts import Condition
from skipstone_client.doctor_gateway import probe_gateway
from skipstone_shared.credentials import Credentials
from skipstone_shared.errors import InvalidArgument

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


def test_a_gateway_is_one_of_the_services_of_a_report(cluster: Cluster) -> None:
    with running_gateway(cluster.targets) as url:
        report = examined("--target", cluster.targets["orchestrator"], "--gateway-url", url, code=0)
    orchestrator, gateway = report["services"]
    assert gateway["service"] == "gateway"
    assert gateway["target"] == url
    assert gateway["condition"] == "serving"
    assert gateway["version"] == orchestrator["version"] != ""
    assert "versions" not in {finding["check"] for finding in report["findings"]}


def test_a_gateway_that_has_ended_is_a_problem(cluster: Cluster) -> None:
    with running_gateway(cluster.targets) as url:
        pass
    report = examined("--target", cluster.targets["orchestrator"], "--gateway-url", url, code=1)
    assert conditions(report)["gateway"] == "unreachable"


def test_a_gateway_without_its_orchestrator_does_not_serve(tmp_path: Path) -> None:
    """Over TLS, with a certificate that ends in a day."""
    authority = Authority(tmp_path)
    files = authority.write("gateway")
    flags = (f"--tls-cert-file={files.cert_file}", f"--tls-key-file={files.key_file}")
    known = Credentials(tls_ca_file=authority.file)
    with running_service("gateway", "--orchestrator-target=127.0.0.1:1", *flags) as address:
        found = probe_gateway(f"https://{address}", known, 10.0)
        stranger = probe_gateway(f"https://{address}", None, 10.0)
        plain = probe_gateway(f"http://{address}", None, 10.0)
    assert found.condition is Condition.NOT_SERVING
    assert "orchestrator" in found.error
    assert 0.9 < found.certificates_left_s["tls_cert_file"] / 86_400 <= 1
    assert stranger.condition is Condition.TLS
    assert "certificate" in stranger.error
    assert plain.condition is Condition.FAILING


@contextmanager
def server(answer: bytes) -> Iterator[str]:
    """Something that accepts a connection, sends a byte now and then, and does not end."""

    def trickle() -> None:
        connection, _ = listening.accept()
        with connection:
            try:
                for byte in answer * 1000:
                    connection.sendall(bytes([byte]))
                    time.sleep(0.05)
            except OSError:
                return  # the doctor has gone

    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as threads:
        threads.submit(trickle)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_a_gateway_that_sends_byte_by_byte_costs_the_timeout_and_no_more() -> None:
    with server(b"HTTP/1.1 200 OK\r\nX-More: ") as url:
        found = probe_gateway(url, None, 0.5)
    assert found.condition is Condition.HANGING


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "dns:///gateway:8080", "http://", "http://a:b"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument, match="gateway"):
        probe_gateway(url, None, 1.0)
