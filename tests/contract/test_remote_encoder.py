"""Whatever a remote encoder does, callers get right vectors or an error that says why not."""

from __future__ import annotations

import dataclasses
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.certificates import Authority
from tests.servers.remote_models import Answer, RemoteModels, as_json, serve_remote_models
from tests.unit.embedding.conftest import write_tiny_model

from skipstone_embedding.batching import BatchingEncoder
from skipstone_embedding.config import EmbeddingSettings
from skipstone_embedding.loading import load_encoder
from skipstone_embedding.model_files import find_model
from skipstone_embedding.remote_apis import OpenAIApi, TeiApi
from skipstone_embedding.remote_encoder import RemoteEncoder, RemoteEncoderOptions
from skipstone_embedding.remote_service import RemoteOptions, RemoteService
from skipstone_embedding.remote_watch import CHECK_INTERVAL_S
from skipstone_embedding.transformers_encoder import TransformersEncoder
from skipstone_shared.config import resolve_settings
from skipstone_shared.embeddings import Embedding, EmbeddingInput
from skipstone_shared.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    ResourceExhausted,
    SkipstoneError,
    Unavailable,
)

LONG_S = 30.0
SHORT_S = 0.2
KEY = "sk-secret-of-the-tests"
PATHS = {"openai": "/v1/embeddings", "tei": "/embed"}


def tiny(directory: Path, seed: int = 0) -> TransformersEncoder:
    name = f"tiny-{seed}"
    return TransformersEncoder(find_model(str(write_tiny_model(directory, name, seed=seed))))


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> list[TransformersEncoder]:
    directory = tmp_path_factory.mktemp("models")
    return [tiny(directory, seed) for seed in (0, 1)]


def join_questions() -> None:
    """Until no remote service is asked for its model any more."""
    for thread in threading.enumerate():
        if thread.name == "remote-watch":
            thread.join(LONG_S)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclasses.dataclass
class Rig:
    """A server, and what connects encoders to it."""

    models: RemoteModels
    engine: str
    stack: ExitStack
    clock: Clock

    def connect(
        self,
        timeout_s: float = LONG_S,
        attempts: int = 3,
        options: RemoteEncoderOptions | None = None,
    ) -> RemoteEncoder:
        url = self.models.url + ("/v1" if self.engine == "openai" else "")
        key = self.models.api_key
        service = RemoteService(
            RemoteOptions(url, (lambda: key) if key else None, timeout_s, attempts)
        )
        self.stack.callback(service.close)
        api = OpenAIApi("tiny") if self.engine == "openai" else TeiApi()
        return RemoteEncoder(service, api, options, self.clock)

    @property
    def path(self) -> str:
        return PATHS[self.engine]

    def answer_always(self, answer: Answer) -> None:
        self.models.fault = lambda path, body: answer if path == self.path else None

    def answer_once(self, answer: Answer) -> None:
        answers = [answer]
        self.models.fault = lambda path, body: (
            answers.pop() if answers and path == self.path else None
        )

    def change_rows(self, change: Callable[[Any], Any], place: int = 0) -> None:
        """Lets a change come over the vector of one text of each request."""
        models = self.models

        def fault(path: str, body: Any) -> Answer | None:
            if path != self.path:
                return None
            models.fault = lambda path, body: None
            status, headers, content = models.answer(path, body, models.api_key)
            models.fault = fault
            document = json.loads(content)
            if self.engine == "openai":
                (item,) = [item for item in document["data"] if item["index"] == place]
                item["embedding"] = change(item["embedding"])
            else:
                document[place] = change(document[place])
            return status, headers, json.dumps(document).encode()

        models.fault = fault


@pytest.fixture(params=["openai", "tei"])
def rig(request: pytest.FixtureRequest, encoders: list[TransformersEncoder]) -> Iterator[Rig]:
    with ExitStack() as stack:
        models = stack.enter_context(serve_remote_models(RemoteModels(encoders[0])))
        yield Rig(models, request.param, stack, Clock())


def texts(*words: str) -> list[EmbeddingInput]:
    return [EmbeddingInput(text=word) for word in words]


def vectors(encoder: RemoteEncoder | TransformersEncoder, *words: str) -> list[np.ndarray]:
    found = encoder.encode(texts(*words))
    return [item.vector for item in found if isinstance(item, Embedding)]


def test_vectors_are_those_of_the_model_at_the_other_side(
    rig: Rig, encoders: list[TransformersEncoder]
) -> None:
    words = ["a red fox", "snow", "a blue fox in snow"]
    found = vectors(rig.connect(), *words)
    np.testing.assert_allclose(found, vectors(encoders[0], *words), atol=1e-5)


def test_requests_hold_no_more_texts_than_the_setting_and_the_service_allow(rig: Rig) -> None:
    rig.models.max_batch = rig.models.info["max_client_batch_size"] = 5
    encoder = rig.connect(options=RemoteEncoderOptions(batch_size=5))
    before = rig.models.count(rig.path)
    words = [f"fox {'snow ' * n}" for n in range(12)]
    assert len(vectors(encoder, *words)) == 12
    assert rig.models.count(rig.path) == before + 3


@pytest.mark.parametrize(
    "change",
    [
        lambda row: row[:-1],
        lambda row: [float("nan"), *row[1:]],
        lambda row: [float("inf"), *row[1:]],
        lambda row: [1e300 * 1e10, *row[1:]],
        lambda row: [None, *row[1:]],
        lambda row: ["1", *row[1:]],
        lambda row: [[1.0], *row[1:]],
        lambda row: [0.0] * len(row),
        lambda row: [True] * len(row),
        lambda row: None,
        lambda row: "AAAA",
        lambda row: [],
    ],
    ids=[
        *("short", "nan", "inf", "overflow", "null", "string", "ragged", "zero", "bool"),
        *("none", "base64", "empty"),
    ],
)
def test_a_vector_that_is_none_fails_its_text_alone(rig: Rig, change: Callable[[Any], Any]) -> None:
    encoder = rig.connect()
    rig.change_rows(change, place=1)
    first, bad, last = encoder.encode(texts("fox", "red fox", "snow"))
    assert isinstance(first, Embedding)
    assert isinstance(bad, Internal)
    assert isinstance(last, Embedding)


@pytest.mark.parametrize(
    "content",
    [b"", b"<html>", b"[" * 100_000, b"{}", b"[]", b'{"data": 1}', b'{"data": [1]}', b"null"],
    ids=["empty", "html", "deep", "object", "list", "number", "numbers", "null"],
)
def test_garbage_is_an_error_and_no_vector(rig: Rig, content: bytes) -> None:
    encoder = rig.connect()
    rig.answer_always((200, {}, content))
    with pytest.raises(Internal):
        encoder.encode(texts("fox"))


@pytest.mark.parametrize("rig", ["openai"], indirect=True)
def test_vectors_with_a_wrong_index_are_refused(rig: Rig) -> None:
    encoder = rig.connect()
    for indices in ([0, 0], [1, 2], [0], [0, 1, 2], [0, True], [0, "1"]):
        rows = [{"index": index, "embedding": [1.0] * 16} for index in indices]
        rig.answer_always(as_json({"data": rows, "model": "tiny"}))
        with pytest.raises(Internal, match="asked for"):
            encoder.encode(texts("fox", "snow"))


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_fault_that_passes_is_not_seen(rig: Rig, status: int) -> None:
    encoder = rig.connect()
    rig.answer_once(as_json({"error": "later"}, status, Retry_After="0"))
    assert len(vectors(encoder, "fox")) == 1


@pytest.mark.parametrize(("status", "error"), [(429, ResourceExhausted), (503, Unavailable)])
def test_a_fault_that_stays_is_tried_so_often_as_the_setting_says(
    rig: Rig, status: int, error: type[SkipstoneError]
) -> None:
    encoder = rig.connect(attempts=2)
    before = rig.models.count(rig.path)
    rig.answer_always(as_json({"error": "full"}, status))
    with pytest.raises(error, match=f"answered {status}: full"):
        encoder.encode(texts("fox"))
    assert rig.models.count(rig.path) == before + 2


def test_a_wish_to_come_back_later_than_the_deadline_is_told_at_once(rig: Rig) -> None:
    encoder = rig.connect()
    before = rig.models.count(rig.path)
    rig.answer_always(as_json({"error": "full"}, 429, Retry_After="3600"))
    with pytest.raises(ResourceExhausted) as caught:
        encoder.encode(texts("fox"))
    assert caught.value.retry_after_s == 3600
    assert rig.models.count(rig.path) == before + 1


def test_a_service_that_sends_a_byte_now_and_then_is_left_at_the_deadline(rig: Rig) -> None:
    """Its single reads are fast: only the whole answer is late."""
    encoder = rig.connect(timeout_s=SHORT_S)
    rig.models.drips = True
    with pytest.raises(DeadlineExceeded, match=f"remote_timeout_s is {SHORT_S:g}"):
        encoder.encode(texts("fox"))
    assert rig.models.stalled.is_set()


def test_a_service_that_went_away_is_unavailable_and_asked_once_per_batch(rig: Rig) -> None:
    encoder = rig.connect(attempts=1)
    rig.answer_always(as_json({"error": "down"}, 503))
    batching = BatchingEncoder(encoder, max_batch_size=8, max_wait_s=0.0, max_queue_size=8)
    rig.stack.callback(batching.close)
    before = rig.models.count(rig.path)
    found = batching.encode(texts(*["fox"] * 8))
    assert all(isinstance(item, Unavailable) for item in found)
    assert rig.models.count(rig.path) <= before + 2


def test_a_service_that_is_down_at_the_start_ends_it(rig: Rig) -> None:
    with serve_remote_models(RemoteModels(rig.models.encoder)) as gone:
        pass
    argv = ["--engine", rig.engine, "--model", "tiny", "--url", gone.url, "--remote-attempts", "1"]
    with pytest.raises(Unavailable, match=gone.url):
        load_encoder(resolve_settings(EmbeddingSettings, argv, {})[0])


def test_another_path_or_model_name_ends_the_start(rig: Rig) -> None:
    rig.models.model_name = "another"
    rig.models.info["model_type"] = {"reranker": {}}
    with pytest.raises(FailedPrecondition):
        rig.connect()
    assert rig.models.count(rig.path) <= 1, "what cannot become right is not tried again"


def test_a_redirect_is_not_followed(rig: Rig) -> None:
    """The key would go wherever it points to."""
    encoder = rig.connect()
    rig.answer_always((307, {"Location": rig.models.url + rig.path}, b""))
    before = rig.models.count(rig.path)
    with pytest.raises(FailedPrecondition, match="answered 307"):
        encoder.encode(texts("fox"))
    assert rig.models.count(rig.path) == before + 1


@pytest.mark.parametrize("source", ["variable", "file"])
def test_the_key_is_sent_and_shows_nowhere(
    rig: Rig, source: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    rig.models.api_key = KEY
    (tmp_path / "key").write_text(f"{KEY}\n")
    url = rig.models.url + ("/v1" if rig.engine == "openai" else "")
    argv = ["--engine", rig.engine, "--url", url]
    argv += ["--model", "tiny" if rig.engine == "openai" else "tests/tiny"]
    argv += ["--api-key-file", str(tmp_path / "key")] if source == "file" else []
    environ = {"SKIPSTONE_EMBEDDING_API_KEY": KEY} if source == "variable" else {}
    settings, _ = resolve_settings(EmbeddingSettings, argv, environ)
    encoder = load_encoder(settings, on_stop=rig.stack.callback)
    rig.stack.callback(encoder.close)
    assert all(isinstance(item, Embedding) for item in encoder.encode(texts("fox")))
    rig.models.api_key = "another"
    (refused,) = encoder.encode(texts("fox"))
    assert isinstance(refused, FailedPrecondition)
    assert "API key" in refused.message
    assert KEY not in refused.message + caplog.text + repr(settings)


def test_a_text_that_is_too_long_for_the_service_fails_alone_or_is_cut(rig: Rig) -> None:
    encoder = rig.connect()
    rig.models.max_words = 10
    first, long, last = encoder.encode(texts("fox", "snow " * 11, "snow"))
    assert isinstance(first, Embedding)
    assert isinstance(last, Embedding)
    if rig.engine == "tei":
        assert isinstance(long, Embedding)
        assert (first.truncated, long.truncated, last.truncated) == (False, True, False)
    else:
        assert isinstance(long, InvalidArgument)
        assert long.field == "text"
        assert "too much input" in long.message


def test_the_same_model_has_the_same_id_and_another_one_another(
    rig: Rig, encoders: list[TransformersEncoder]
) -> None:
    rig.models.info.pop("model_sha")
    ids = [rig.connect().get_capabilities().model_id for _ in range(2)]
    rig.models.encoder = encoders[1]
    ids.append(rig.connect().get_capabilities().model_id)
    assert ids[0] == ids[1] != ids[2]


def test_when_the_service_gets_another_model_vectors_get_another_id(
    rig: Rig, encoders: list[TransformersEncoder]
) -> None:
    encoder = rig.connect()
    before = encoder.get_capabilities().model_id
    rig.models.encoder = encoders[1]
    rig.models.info["model_sha"] = "fedcba9876543210"
    rig.clock.now += CHECK_INTERVAL_S
    rig.answer_once(as_json({}, 503))
    with pytest.raises(Unavailable, match="another model"):
        encoder.encode(texts("fox"))
    assert encoder.get_capabilities().model_id != before
    np.testing.assert_allclose(vectors(encoder, "fox"), vectors(encoders[1], "fox"), atol=1e-5)


def test_a_model_that_stays_is_looked_at_now_and_then_and_keeps_its_id(rig: Rig) -> None:
    encoder = rig.connect()
    before = encoder.get_capabilities().model_id
    asked = rig.models.count(rig.path)
    for _ in range(3):
        rig.clock.now += CHECK_INTERVAL_S
        assert len(vectors(encoder, "fox")) == len(vectors(encoder, "snow")) == 1
    assert encoder.get_capabilities().model_id == before
    assert rig.models.count(rig.path) == asked + 6 + 3


@pytest.mark.parametrize("rig", ["openai"], indirect=True)
def test_an_answer_of_another_model_name_is_noticed_at_once(rig: Rig) -> None:
    encoder = rig.connect()
    rows = [{"index": 0, "embedding": [1.0] * 16}]
    rig.answer_once(as_json({"data": rows, "model": "another"}))
    with pytest.raises((Unavailable, FailedPrecondition)):
        encoder.encode(texts("fox"))


@pytest.mark.parametrize("rig", ["openai"], indirect=True)
def test_the_same_model_under_another_name_keeps_its_id(rig: Rig) -> None:
    """Services call a model by its alias on one day and by its version on the next."""
    encoder = rig.connect()
    before = encoder.get_capabilities().model_id

    def renamed(path: str, body: Any) -> Answer | None:
        # Not through `answer`: two requests run at the same time here.
        status, headers, content = rig.models._openai(body)
        return status, headers, json.dumps(json.loads(content) | {"model": "tiny-v2"}).encode()

    rig.models.fault = renamed
    with pytest.raises(Unavailable, match="another model"):
        encoder.encode(texts("fox"))
    with pytest.raises(Unavailable, match="another model"):
        encoder.encode(texts("fox"))
    join_questions()
    assert len(vectors(encoder, "fox")) == 1
    assert encoder.get_capabilities().model_id == before


def test_a_pinned_revision_whose_vectors_change_is_refused_until_they_are_back(
    rig: Rig, encoders: list[TransformersEncoder]
) -> None:
    encoder = rig.connect(options=RemoteEncoderOptions(revision="v1"))
    assert "@v1/" in encoder.get_capabilities().model_id
    rig.models.encoder = encoders[1]
    rig.clock.now += CHECK_INTERVAL_S
    for _ in range(2):
        with pytest.raises(FailedPrecondition, match="revision"):
            encoder.encode(texts("fox"))
    rig.models.encoder = encoders[0]
    assert len(vectors(encoder, "fox")) == 1


def test_a_service_must_show_a_certificate_of_the_named_authority(
    encoders: list[TransformersEncoder], tmp_path: Path
) -> None:
    ours, others = (Authority(tmp_path, name) for name in ("ours", "others"))
    with serve_remote_models(RemoteModels(encoders[0]), ours.write("server")) as models:

        def connect(ca_file: Path) -> BatchingEncoder:
            argv = ["--engine", "tei", "--url", models.url, "--remote-attempts", "1"]
            argv += ["--remote-ca-file", str(ca_file)]
            return load_encoder(resolve_settings(EmbeddingSettings, argv, {})[0])

        encoder = connect(ours.file)
        encoder.close()
        assert encoder.get_capabilities().dimension == 16
        with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
            connect(others.file)
        with pytest.raises(FailedPrecondition, match="remote_ca_file"):
            connect(tmp_path / "missing.pem")


def test_a_service_with_remote_models_needs_no_torch(
    encoders: list[TransformersEncoder],
) -> None:
    """The extra `embedding-remote` is enough."""
    with serve_remote_models(RemoteModels(encoders[0])) as models:
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_TORCH, models.url],
            capture_output=True,
            text=True,
            timeout=LONG_S * 2,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "16"


WITHOUT_TORCH = """
import sys
sys.modules |= dict.fromkeys(["torch", "transformers", "PIL", "safetensors"])
from skipstone_embedding.__main__ import build
from skipstone_embedding.config import EmbeddingSettings
from skipstone_embedding.loading import load_encoder
settings = EmbeddingSettings(engine="tei", url=sys.argv[1])
mounted = build(settings)
for stop in mounted.on_stop:
    stop()
encoder = load_encoder(settings)
print(encoder.get_capabilities().dimension)
encoder.close()
"""
