"""The HTTP front: OpenAI's own client, server-sent progress, jobs, the cache, and errors."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from tests.e2e.generations import PROMPT, REWORDED, STEPS, generate_saved, picture
from tests.e2e.processes import Cluster, running_gateway, running_service, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PNG = b"\x89PNG"
TOKEN = "a-key-that-openais-client-insists-on"
AUTHORIZATION = {"Authorization": f"Bearer {TOKEN}"}
"""These services ask for none and so take any."""


@pytest.fixture(scope="module")
def gateway(_shared_cluster: Cluster) -> Iterator[str]:
    """Address of a gateway over the shared services."""
    with running_gateway(_shared_cluster.targets, "--max-body-bytes=100000") as address:
        yield address


@pytest.fixture
def http(gateway: str, cluster: Cluster) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway, timeout=60.0, headers=AUTHORIZATION) as client:
        yield client


@pytest.fixture
def client(gateway: str, cluster: Cluster) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{gateway}/v1", api_key=TOKEN, max_retries=0) as made:
        yield made


def options(namespace: str, seed: int = 1, **more: Any) -> dict[str, Any]:
    return {"skipstone": {"namespace": namespace, "seed": seed, "steps": STEPS, **more}}


def digest(encoded: str) -> str:
    return hashlib.sha256(base64.b64decode(encoded)).hexdigest()


def told_of(picture_: Any) -> dict[str, Any]:
    told: dict[str, Any] = picture_.model_extra["skipstone"]
    return told


def test_openais_client_gets_the_pictures_of_the_orchestrator_and_where_they_come_from(
    cluster: Cluster, client: openai.OpenAI, namespace: str
) -> None:
    own = generate_saved(cluster, namespace)
    again = client.images.generate(prompt=PROMPT, extra_body=options(namespace))
    assert again.data
    assert digest(again.data[0].b64_json or "") == picture(own)
    assert told_of(again.data[0])["tier"] == "exact"
    near = client.images.generate(prompt=REWORDED, n=2, extra_body=options(namespace, seed=5))
    assert near.data
    told = [told_of(made) for made in near.data]
    assert [t["seed"] for t in told] == [5, 6]
    assert {t["tier"] for t in told} == {"approximate"}
    assert {t["donor_entry_id"] for t in told} == {own.provenance.saved_entry_id}
    assert len({digest(made.b64_json or "") for made in near.data}) == 2


def test_a_link_gives_the_picture(
    client: openai.OpenAI, http: httpx.Client, namespace: str
) -> None:
    made = client.images.generate(
        prompt=PROMPT, response_format="url", extra_body=options(namespace)
    )
    assert made.data
    url = made.data[0].url or ""
    fetched = http.get(url)
    assert fetched.headers["content-type"] == "image/png"
    assert fetched.content.startswith(PNG)
    assert http.get(url[:-5] + "0.png").status_code == 404


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    lines = response.read().decode().splitlines()
    return [json.loads(line[5:]) for line in lines if line.startswith("data:")]


def test_progress_comes_as_server_sent_events(http: httpx.Client, namespace: str) -> None:
    body = {"prompt": PROMPT, "stream": True, **options(namespace)}
    with http.stream("POST", "/v1/images/generations", json=body) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        events = events_of(response)
    kinds = [event["type"].rpartition(".")[2] for event in events]
    assert kinds == ["accepted", "started", *["progress"] * STEPS, "completed"]
    assert [e["step_index"] for e in events[2:-1]] == list(range(STEPS))
    assert base64.b64decode(events[-1]["b64_json"]).startswith(PNG)
    assert events[-1]["skipstone"]["tier"] == "miss"


def test_who_leaves_stops_the_generation(
    cluster: Cluster, http: httpx.Client, namespace: str
) -> None:
    def finished() -> int:
        return sum(cluster.client.get_stats().tiers.values())

    before = finished()
    body = {"prompt": PROMPT, **options(namespace, steps=1000)}
    with pytest.raises(httpx.ReadTimeout):
        http.post("/v1/images/generations", json=body, timeout=0.3)

    def is_idle() -> bool:
        stats = cluster.denoise.get_stats()
        return stats.running_count + stats.queued_count == 0

    wait_until(is_idle, "the run is stopped")
    assert finished() == before


def test_a_clip_is_a_job(client: openai.OpenAI, http: httpx.Client, namespace: str) -> None:
    body = {"prompt": PROMPT, **options(namespace)}
    job = http.post("/v1/videos", json=body).json()
    assert (job["object"], job["status"]) == ("video", "queued")
    with http.stream("GET", f"/v1/videos/{job['id']}/events") as response:
        events = events_of(response)
    assert events[-1]["status"] == "completed"
    assert [event["progress"] for event in events] == sorted(e["progress"] for e in events)
    found = client.videos.retrieve(job["id"])
    assert (found.status, found.progress) == ("completed", 100)
    content = client.videos.download_content(job["id"]).read()
    assert content.startswith(PNG), "the model of the tests makes pictures"
    assert job["id"] in [listed.id for listed in client.videos.list()]
    other = {"Authorization": "Bearer somebody-else"}
    assert http.get(f"/v1/videos/{job['id']}", headers=other).status_code == 404
    assert client.videos.delete(job["id"]).deleted
    assert http.get(f"/v1/videos/{job['id']}").status_code == 404


def test_a_form_as_openais_client_sends_it_starts_a_job_too(
    client: openai.OpenAI, namespace: str
) -> None:
    job = client.videos.create(prompt=PROMPT, extra_body=options(namespace))
    wait_until(lambda: client.videos.retrieve(job.id).status == "completed", "the job is done")
    told = client.videos.retrieve(job.id).model_extra or {}
    assert told["skipstone"]["seed"] == 1


def test_the_cache_is_listed_shown_explained_pinned_and_emptied(
    cluster: Cluster, http: httpx.Client, namespace: str
) -> None:
    body = {"prompt": PROMPT, **options(namespace)}
    made = http.post("/v1/images/generations", json=body).json()["data"][0]
    entry_id = made["skipstone"]["saved_entry_id"]
    scope = {"namespace": namespace}
    wait_until(
        lambda: http.get(f"/api/entries/{entry_id}", params=scope).status_code == 200, "it is saved"
    )
    (listed,) = http.get("/api/entries", params=scope).json()["entries"]
    assert (listed["entry_id"], listed["prompt"], listed["has_picture"]) == (entry_id, PROMPT, True)
    shown = http.get(f"/api/entries/{entry_id}/picture", params=scope)
    assert base64.b64encode(shown.content).decode() == made["b64_json"]
    told = http.post("/api/explain", json={"prompt": REWORDED, **options(namespace, 9)}).json()
    assert told["decision"]["candidates"][0]["entry"]["entry_id"] == entry_id
    pinned = http.put(f"/api/entries/{entry_id}/pin", params=scope)
    assert pinned.json() == {"entry_id": entry_id, "pinned": True}
    assert cluster.store.get_entry(namespace, entry_id).pinned
    http.delete(f"/api/entries/{entry_id}/pin", params=scope).raise_for_status()
    assert http.delete(f"/api/entries/{entry_id}", params=scope).json()["existed"]
    assert http.get("/api/entries", params=scope).json()["entries"] == []
    assert http.get(f"/api/entries/{entry_id}/picture", params=scope).status_code == 404
    assert http.get("/api/stats", params=scope).json()["can_pin"] is True


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"prompt": ""}, "prompt", "at least 1"),
        ({"size": "big"}, "size", "WIDTHxHEIGHT"),
        ({"n": 11}, "n", "10"),
        ({"sized": "64x64"}, "sized", "did you mean size?"),
        ({"skipstone": {"sed": 1}}, "skipstone.sed", "did you mean seed?"),
        ({"skipstone": {"steps": 10**6}}, "params.num_inference_steps", "allowed"),
        ({"skipstone": {"cache_mode": "sometimes"}}, "skipstone.cache_mode", "read_only"),
        ({"skipstone": {"block_cache": {"Fn_compute_blocks": "x"}}}, None, "Fn_compute_blocks"),
        ({"output_format": "webp"}, "output_format", "png"),
    ],
)
def test_bad_input_names_the_field_and_what_is_allowed(
    http: httpx.Client, change: dict[str, Any], field: str | None, words: str
) -> None:
    answer = http.post("/v1/images/generations", json={"prompt": PROMPT, **change})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert field is None or error["param"] == field
    assert words in error["message"]


def test_errors_are_those_of_openais_client(client: openai.OpenAI, http: httpx.Client) -> None:
    with pytest.raises(openai.NotFoundError, match="there is no model"):
        client.images.generate(prompt=PROMPT, model="dall-e-3")
    with pytest.raises(openai.BadRequestError, match="WIDTHxHEIGHT"):
        client.images.generate(prompt=PROMPT, size="huge")  # type: ignore[call-overload]
    assert "skipstone" in [model.id for model in client.models.list()]
    assert http.get("/v1/nothing").status_code == 404
    assert http.post("/v1/images/generations", content=b"x" * 200_000).status_code == 413
    not_json = http.post(
        "/v1/images/generations", content=b"{", headers={"Content-Type": "application/json"}
    )
    assert not_json.status_code == 400
    basic = http.get("/api/stats", headers={"Authorization": "Basic eDp5"})
    assert basic.json()["error"]["param"] == "authorization"


def test_health_metrics_page_and_request_ids_are_there(http: httpx.Client) -> None:
    assert http.get("/healthz").json()["status"] == "ok"
    page = http.get("/")
    assert "<title>Skipstone</title>" in page.text
    assert "default-src 'self'" in page.headers["content-security-policy"]
    told = http.get("/livez", headers={"x-skipstone-request-id": "mine"})
    assert told.headers["x-skipstone-request-id"] == "mine"
    metrics = http.get("/metrics").text
    assert 'skipstone_gateway_requests_total{code="200",method="GET",route="/healthz"}' in metrics


def test_without_an_orchestrator_it_says_so_and_lives(cluster: Cluster) -> None:
    with (
        running_service("gateway", "--orchestrator-target=127.0.0.1:1") as address,
        httpx.Client(base_url=f"http://{address}", timeout=30.0) as http,
    ):
        assert http.get("/livez").status_code == 200
        health = http.get("/healthz")
        assert health.status_code == 503
        assert health.headers["retry-after"] == "1"
        made = http.post("/v1/images/generations", json={"prompt": PROMPT})
        assert made.status_code == 503
        assert "orchestrator" in made.json()["error"]["message"]
