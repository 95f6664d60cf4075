"""One service as a child process: its log line by line, its address, its end."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from skipstone_client._channel import proxy_options


@dataclasses.dataclass(frozen=True, slots=True)
class LogLine:
    """One line that a service wrote; ``fields`` is its JSON, None for any other text."""

    service: str
    text: str
    fields: Mapping[str, Any] | None


class ServiceProcess:
    """A running service. It leads a session of its own, so a Ctrl-C reaches only its parent."""

    def __init__(
        self,
        service: str,
        flags: Sequence[str],
        environ: Mapping[str, str],
        on_line: Callable[[LogLine], None],
        on_change: Callable[[ServiceProcess], None],
    ) -> None:
        """Starts the service.

        Args:
            service: Its short name: ``latent_kv``.
            flags: Its flags.
            environ: Its environment.
            on_line: Called with every line it writes, from a thread of this object.
            on_change: Called from that thread when it listens, and when it has ended.
        """
        self.service = service
        self.address: str | None = None
        self.health_address: str | None = None
        self.exit_code: int | None = None
        self._on_line = on_line
        self._on_change = on_change
        self._last_words = ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"skipstone_{service}", *flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            env=dict(environ),
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name=f"log of {service}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def why_it_ended(self) -> str:
        """One line: the signal, or what the service itself said last outside of its log."""
        code = self.exit_code or 0
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return introduced(self.service, self._last_words or f"ended with exit code {code}")

    def terminate(self) -> None:
        """Asks it to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it and what it started, at once."""
        self._signal(signal.SIGKILL)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until it has ended and its last line was passed on; whether that happened."""
        self._reader.join(timeout_s)
        return not self._reader.is_alive()

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                # The group, since a service may have helpers, and it is their leader.
                os.killpg(self._process.pid, number)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for raw in self._process.stdout:
            text = raw.rstrip()
            if not text:
                continue
            fields = _parsed(text)
            if fields is None:
                self._last_words = text
            self._on_line(LogLine(self.service, text, fields))
            if fields is not None and fields.get("event") == "serving":
                health = fields.get("health_address")
                self.health_address = None if health is None else str(health)
                self.address = str(fields.get("address"))
                self._on_change(self)
        self.exit_code = self._process.wait()
        self._on_change(self)


def introduced(service: str, words: str) -> str:
    """What a service said last, with its name: services introduce themselves, a traceback not."""
    return words if words.startswith("skipstone") else f"{service}: {words}"


def is_serving(target: str, full_name: str, timeout_s: float) -> bool:
    """Whether the service at a target says that it serves, waiting for the connection."""
    with grpc.insecure_channel(target, proxy_options(target)) as channel:
        request = health_pb2.HealthCheckRequest(service=full_name)
        stub: Any = health_pb2_grpc.HealthStub(channel)  # its methods are not in the type stubs
        try:
            response = stub.Check(request, timeout=timeout_s, wait_for_ready=True)
        except grpc.RpcError:
            return False
    return bool(response.status == health_pb2.HealthCheckResponse.SERVING)


def is_answering(target: str, timeout_s: float, *, tls: bool) -> bool:
    """Whether the gateway at a target answers; whose certificate it shows is not asked here."""
    connection = (
        http.client.HTTPSConnection(target, timeout=timeout_s, context=_any_certificate())
        if tls
        else http.client.HTTPConnection(target, timeout=timeout_s)
    )
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status == HTTPStatus.OK
    except ssl.SSLError:
        return tls  # it asks callers for certificates, so it answers
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _any_certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _parsed(text: str) -> Mapping[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        fields = json.loads(text)
    except json.JSONDecodeError:
        return None
    return fields if isinstance(fields, dict) else None
