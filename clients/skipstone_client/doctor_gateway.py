"""Asks the gateway over HTTP whether it serves, its version, and when its certificate ends."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from typing import Any
from urllib.parse import SplitResult, urlsplit

from skipstone_client.doctor_facts import Condition, ServiceFacts
from skipstone_shared.certificate_dates import ends_at
from skipstone_shared.credentials import AUTHORIZATION_KEY, BEARER, Credentials, read_token
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.tls_files import read_tls

SERVICE = "gateway"

_PORTS = {"http": 80, "https": 443}
_PATH = "/healthz"
_MOST_BYTES = 65_536
"""Of an answer; a healthy one has a hundred."""


def checked_url(url: str) -> SplitResult:
    """The parts of a gateway's URL.

    Raises:
        InvalidArgument: It is none.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in _PORTS or not parts.hostname or port == 0:
        raise InvalidArgument(
            f"{url!r} is no URL of a gateway",
            field="gateway_url",
            allowed="http://HOST:PORT or https://HOST:PORT",
        )
    return parts


def probe_gateway(url: str, credentials: Credentials | None, timeout_s: float) -> ServiceFacts:
    """Asks for its health. Takes `timeout_s` at most, whatever it does.

    Args:
        url: Where it is; a path in front of its own is kept.
        credentials: Authorities that its certificate must come from, else those of the system;
            the certificate to show, where it asks for one; the name that its own must carry; the
            token, without which it tells no version where there are tokens.
        timeout_s: Seconds.

    Raises:
        InvalidArgument: `url` is none, or a file of the credentials cannot be used.
    """
    parts = checked_url(url)
    context = _tls_context(credentials) if parts.scheme == "https" else None
    name = credentials.tls_server_name if credentials else ""
    deadline = time.monotonic() + timeout_s
    asked = _Asked(parts, context, name or str(parts.hostname), _headers(credentials), deadline)
    try:
        return asked.facts(url)
    except (OSError, http.client.HTTPException, ValueError) as error:
        is_late = isinstance(error, TimeoutError) or asked.is_late()
        if is_late:  # whatever the connection says that was closed then
            return ServiceFacts(SERVICE, url, Condition.HANGING, f"no answer in {timeout_s:g} s")
        return ServiceFacts(SERVICE, url, _condition(error), f"{type(error).__name__}: {error}")


class _Asked:
    """One question."""

    def __init__(
        self,
        parts: SplitResult,
        context: ssl.SSLContext | None,
        name: str,
        headers: dict[str, str],
        deadline: float,
    ) -> None:
        self._parts = parts
        self._context = context
        self._name = name
        self._headers = headers
        self._deadline = deadline

    def is_late(self) -> bool:
        return time.monotonic() >= self._deadline

    def facts(self, url: str) -> ServiceFacts:
        host, port = str(self._parts.hostname), self._parts.port or _PORTS[self._parts.scheme]
        self._connection = socket.create_connection((host, port), self._left_s())
        # A timeout of a socket begins anew with every byte; this one does not.
        watch = threading.Timer(self._left_s(), self._end)
        watch.daemon = True
        watch.start()
        try:
            left_s = self._secured()
            began = time.monotonic()
            status, told = self._answer(host)
            answer_s = time.monotonic() - began
        finally:
            watch.cancel()
            self._connection.close()
        error = told.get("error")
        message = error.get("message", "") if isinstance(error, dict) else ""
        if status == http.HTTPStatus.OK:
            condition = Condition.SERVING
        elif status == http.HTTPStatus.SERVICE_UNAVAILABLE:
            condition, message = Condition.NOT_SERVING, f"it cannot serve: {message}"
        else:
            condition, message = Condition.FAILING, f"HTTP {status} {message}".rstrip()
        return ServiceFacts(
            SERVICE,
            url,
            condition,
            "" if condition is Condition.SERVING else message,
            version=str(told.get("version", "")),
            answer_s=answer_s,
            certificates_left_s=left_s,
        )

    def _secured(self) -> dict[str, float]:
        """Shakes hands, where it speaks TLS; returns the seconds that its certificate has left."""
        if self._context is None:
            return {}
        secure = self._context.wrap_socket(
            self._connection, server_hostname=self._name, do_handshake_on_connect=False
        )
        self._connection = secure
        secure.do_handshake()
        shown = secure.getpeercert(binary_form=True) or b""
        pem = ssl.DER_cert_to_PEM_cert(shown).encode("ascii")
        return {"tls_cert_file": ends_at(pem) - time.time()}

    def _end(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _answer(self, host: str) -> tuple[int, dict[str, Any]]:
        asking = http.client.HTTPConnection(host)
        asking.sock = self._connection
        asking.request("GET", self._parts.path.rstrip("/") + _PATH, headers=self._headers)
        answer = asking.getresponse()
        data = answer.read(_MOST_BYTES)
        try:
            told = json.loads(data)
        except ValueError:  # of something else that speaks HTTP
            told = None
        return answer.status, told if isinstance(told, dict) else {}

    def _left_s(self) -> float:
        return max(self._deadline - time.monotonic(), 0.001)


def _tls_context(credentials: Credentials | None) -> ssl.SSLContext:
    """Checks certificates by the given authorities, else by those of the system."""
    files = credentials.tls_files() if credentials else None
    if files is None:
        return ssl.create_default_context()
    read_tls(files)  # says which file is wrong, and why
    context = ssl.create_default_context(cafile=files.ca_file)
    if files.cert_file is not None:
        context.load_cert_chain(files.cert_file, files.key_file)
    return context


def _headers(credentials: Credentials | None) -> dict[str, str]:
    token = credentials.token if credentials else None
    if credentials and credentials.token_file:
        token = read_token(credentials.token_file, f"{credentials.prefix}token_file")
    return {AUTHORIZATION_KEY: BEARER + token} if token else {}


def _condition(error: Exception) -> Condition:
    if isinstance(error, ssl.SSLError):
        return Condition.TLS
    if isinstance(error, ConnectionResetError | http.client.HTTPException | ValueError):
        return Condition.FAILING
    return Condition.UNREACHABLE
