"""A server of remote embedding APIs around real models, and with every fault a remote can have.

It speaks OpenAI's ``/v1/embeddings`` and Text-Embeddings-Inference's ``/embed``, ``/rerank`` and
``/info``. That the real servers speak it the same way is tested apart, against those servers.
"""

from __future__ import annotations

import http.server
import json
import math
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from skipstone_embedding.encoder import Encoder
from skipstone_embedding.reranker import Reranker
from skipstone_shared.embeddings import Embedding, EmbeddingInput
from skipstone_shared.tls_files import TlsFiles

Answer = tuple[int, dict[str, str], bytes]
"""Status, headers, body."""

Fault = Callable[[str, Any], Answer | None]
"""Gets path and body; answers in place of the server, or lets it answer."""


class RemoteModels:
    """What the server serves and what it saw. Tests change it while it runs."""

    def __init__(self, encoder: Encoder, reranker: Reranker | None = None) -> None:
        self.encoder = encoder
        self.reranker = reranker
        self.url = ""
        self.api_key = ""
        self.info: dict[str, Any] = {
            "model_id": "tests/tiny",
            "model_sha": "0123456789abcdef",
            "model_dtype": "float32",
            "model_type": {"embedding": {"pooling": "mean"}},
            "max_input_length": 32,
            "max_client_batch_size": 32,
        }
        self.model_name = "tiny"
        self.max_batch = 32
        self.max_words = 1_000_000
        self.ignores_raw_scores = False
        self.fault: Fault = lambda path, body: None
        self.stalled = threading.Event()
        self.let_go = threading.Event()
        self.drips = False
        self.requests: list[tuple[str, Any]] = []

    def count(self, path: str) -> int:
        """Requests of a path so far."""
        return sum(seen == path for seen, _ in self.requests)

    def answer(self, path: str, body: Any, token: str) -> Answer:
        """The answer of one request."""
        self.requests.append((path, body))
        fault = self.fault(path, body)
        if fault is not None:
            return fault
        if token != self.api_key:
            return as_json({"error": {"message": f"Incorrect API key: {token}"}}, 401)
        if path == "/v1/embeddings":
            return self._openai(body)
        if path == "/info":
            return as_json(self.info)
        if path == "/embed":
            return self._tei_embed(body)
        if path == "/rerank" and self.reranker is not None:
            return self._tei_rerank(self.reranker, body)
        return as_json({"error": "not found"}, 404)

    def _openai(self, body: Any) -> Answer:
        texts = body["input"]
        if body["model"] != self.model_name:
            return as_json({"error": {"message": "The model does not exist"}}, 404)
        if len(texts) > self.max_batch or self._has_long(texts):
            return as_json({"error": {"message": "too much input"}}, 400)
        rows = [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in enumerate(self._vectors(texts))
        ]
        # Nothing says that they come in order.
        return as_json({"object": "list", "model": self.model_name, "data": rows[::-1]})

    def _tei_embed(self, body: Any) -> Answer:
        texts = body["inputs"]
        if len(texts) > self.max_batch:
            return as_json({"error": "batch size > maximum", "error_type": "Validation"}, 413)
        if self._has_long(texts) and not body["truncate"]:
            told = {"error": "must have less tokens", "error_type": "Validation"}
            return as_json(told, 413)
        return as_json(self._vectors(texts))

    def _tei_rerank(self, reranker: Reranker, body: Any) -> Answer:
        texts = body["texts"]
        if len(texts) > self.max_batch or self._has_long([body["query"], *texts]):
            return as_json({"error": "too much input", "error_type": "Validation"}, 413)
        query = EmbeddingInput(text=body["query"])
        scores = reranker.rerank(query, [EmbeddingInput(text=text) for text in texts])
        raw = body["raw_scores"] or self.ignores_raw_scores
        ranks = [
            {"index": index, "score": logit(score) if raw else score}
            for index, score in enumerate(scores)
        ]
        return as_json(sorted(ranks, key=lambda rank: -rank["score"]))

    def _has_long(self, texts: Sequence[str]) -> bool:
        return any(len(text.split()) > self.max_words for text in texts)

    def _vectors(self, texts: Sequence[str]) -> list[list[float]]:
        found = self.encoder.encode([EmbeddingInput(text=text) for text in texts])
        # Not of norm 1: services need not scale.
        return [[3.0 * x for x in item.vector.tolist()] for item in found if is_vector(item)]


def is_vector(item: object) -> bool:
    assert isinstance(item, Embedding), item
    return True


def as_json(document: Any, status: int = 200, **headers: str) -> Answer:
    """An answer in JSON, also of what JSON has no word for (NaN)."""
    return status, headers, json.dumps(document).encode()


def logit(score: float) -> float:
    """The number whose sigmoid is the score."""
    score = min(max(score, 1e-12), 1 - 1e-12)
    return math.log(score / (1 - score))


@contextmanager
def serve_remote_models(
    models: RemoteModels, certificate: TlsFiles | None = None
) -> Iterator[RemoteModels]:
    """Serves on a free loopback port until the block ends; `models.url` says where.

    With a certificate of `localhost` it speaks TLS.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            self._answer(json.loads(self.rfile.read(length)))

        def _answer(self, body: Any) -> None:
            token = self.headers.get("authorization", "").removeprefix("Bearer ")
            status, headers, content = models.answer(self.path, body, token)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            if models.drips:
                models.stalled.set()
                for byte in content:
                    if models.let_go.wait(0.01):
                        return
                    self.wfile.write(bytes([byte]))
            self.wfile.write(content)

        def handle(self) -> None:
            # A client that goes away is what some tests are about.
            try:
                super().handle()
            except OSError:
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    models.url = f"http://127.0.0.1:{server.server_port}"
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.cert_file, certificate.key_file)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        models.url = f"https://localhost:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield models
    finally:
        models.let_go.set()
        server.shutdown()
        thread.join()
        server.server_close()
