"""A proxy in front of an S3 server, which spoils some of the answers."""

from __future__ import annotations

import http.client
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import urlsplit

Fault = Literal["damaged", "short", "cut", "refused"]
"""Other bytes, fewer bytes, a connection that ends within the bytes, or 503 without asking S3."""

Choose = Callable[[str, str], Fault | None]


class S3Proxy:
    """Passes requests on; the signature holds, since it is of the host that the client names."""

    def __init__(self, endpoint: str) -> None:
        """Starts on a free port.

        Args:
            endpoint: URL of the server behind it.
        """
        self.spoiled = 0
        """Answers that were spoilt."""
        self._behind = urlsplit(endpoint).netloc
        self._choose: Choose = _nothing
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def spoil(self, method: str, part: str, *faults: Fault, times: int = 1) -> None:
        """Spoils the next answers to requests with a method and a part of a URL, only these.

        Args:
            method: Of the requests.
            part: Of their URLs.
            faults: One after the other.
            times: How often all of them; 0 for ever.
        """
        rounds = itertools.repeat(faults, times) if times else itertools.repeat(faults)
        left = itertools.chain.from_iterable(rounds)
        self.spoil_as(lambda m, path: next(left, None) if m == method and part in path else None)

    def spoil_as(self, choose: Choose) -> None:
        """Spoils what a function of method and URL says; it is asked one request at a time."""
        self._choose = choose

    def heal(self) -> None:
        """Spoils nothing any more."""
        self._choose = _nothing

    def close(self) -> None:
        """Ends it."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _next_fault(self, method: str, path: str) -> Fault | None:
        with self._lock:
            fault = self._choose(method, path)
            self.spoiled += fault is not None
            return fault

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                fault = proxy._next_fault(self.command, self.path)
                if fault == "refused":
                    self.send_response(503)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                behind = http.client.HTTPConnection(proxy._behind)
                behind.request(self.command, self.path, body, dict(self.headers.items()))
                answer = behind.getresponse()
                data = answer.read()
                behind.close()
                told = len(data)
                if fault == "damaged":
                    data = bytes(byte ^ 0x55 for byte in data)
                elif fault is not None:
                    data = data[: len(data) // 2]
                self.send_response_only(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(data) if fault == "short" else told))
                self.end_headers()
                self.wfile.write(data)
                self.close_connection = fault == "cut"

            do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815

            def handle_expect_100(self) -> bool:
                self.send_response_only(100)
                self.end_headers()
                return True

            def log_message(self, *_: object) -> None:
                """Nothing: the faults are what tests want."""

        return Handler


def _nothing(method: str, path: str) -> Fault | None:
    return None


@contextmanager
def running_s3_proxy(endpoint: str) -> Iterator[S3Proxy]:
    """A proxy of one test's own."""
    proxy = S3Proxy(endpoint)
    try:
        yield proxy
    finally:
        proxy.close()
