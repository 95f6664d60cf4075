"""TeleFuser's cache with our services really running, in the host's order, while they die."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.e2e.processes import Cluster, wait_until
from tests.e2e.telefuser_host import STEPS, Done, Host, write_pipeline_file

from skipstone_shared.stored_entries import StoredEntry

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PROMPT = "a small red circle at the top left, gray background"
KEY_STEPS = [2, 4, 6, 8]
PATIENT = {
    "skipstone_lookup_timeout_s": 30.0,
    "skipstone_read_timeout_s": 30.0,
    "skipstone_retry_pause_s": 0.0,
    "skipstone_shutdown_timeout_s": 60.0,
}
HURRIED = {
    **PATIENT,
    "skipstone_lookup_timeout_s": 0.3,
    "skipstone_read_timeout_s": 0.2,
    "skipstone_shutdown_timeout_s": 0.1,
}


class Site:
    """Pipeline files and hosts of one test."""

    def __init__(self, cluster: Cluster, namespace: str, folder: Path) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.folder = folder
        self.hosts: list[Host] = []

    def host(
        self, mode: str | None = None, ppl: dict[str, Any] | None = None, **cache: Any
    ) -> Host:
        folder = self.folder / str(len(self.hosts))
        folder.mkdir()
        file = write_pipeline_file(
            folder,
            ppl=ppl,
            **{
                "enable_latent_cache": True,
                "key_steps": KEY_STEPS,
                "skipstone_orchestrator_target": self.cluster.targets["orchestrator"],
                "skipstone_latent_kv_target": self.cluster.targets["latent_kv"],
                "skipstone_namespace": self.namespace,
                **PATIENT,
                **cache,
            },
        )
        self.hosts.append(Host(file, cache_mode=mode))
        return self.hosts[-1]

    def entries(self) -> list[StoredEntry]:
        return list(self.cluster.store.list_entries(self.namespace).entries)

    def saved(self, host: Host, prompt: str = PROMPT, seed: int = 42, **fields: Any) -> Done:
        """One request, its save included."""
        done = host.run(prompt, seed, **fields)
        assert host.service._session is not None
        assert host.service._session.flush(60.0)
        return done


@pytest.fixture
def site(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Site]:
    made = Site(cluster, namespace, tmp_path)
    yield made
    for host in made.hosts:
        host.service.shutdown()


def is_plain_miss(done: Done) -> bool:
    data = done.latent_data
    return (data["hit"], data["skip_step"], data["cached_latent"]) == (False, 0, None)


def test_a_repeated_request_skips_steps_and_ends_at_the_same_latents(site: Site) -> None:
    host = site.host("read_write")
    full = site.saved(host)
    again = site.saved(host)
    assert is_plain_miss(full)
    assert full.saved_steps == KEY_STEPS
    assert again.latent_data["hit"] is True
    assert again.skip_step in KEY_STEPS
    assert torch.equal(again.latents, full.latents)
    assert torch.equal(again.latent_data["cached_latent"], full.outputs.latents[again.skip_step])


def test_what_a_hit_stores_is_its_own_and_never_donates(site: Site) -> None:
    host = site.host("read_write", max_skip_step=4)
    site.saved(host)
    (donor,) = site.entries()
    hit = site.saved(host)
    (resumed,) = [e for e in site.entries() if e.entry_id != donor.entry_id]
    assert hit.skip_step == 4
    # The host hands over the step it began at too; that one is the donor's.
    assert hit.saved_steps == [6, 8]
    assert [s.metadata.step_index for s in resumed.snapshots] == [6, 8]
    assert {s.metadata.depth for s in resumed.snapshots} == {1}
    site.saved(host)
    (still,) = [e for e in site.entries() if e.entry_id == donor.entry_id]
    assert [s.metadata.step_index for s in still.snapshots] == KEY_STEPS
    assert {s.metadata.depth for s in still.snapshots} == {0}


def test_each_mode_does_what_it_says(site: Site) -> None:
    writer, reader = site.host("write_only"), site.host("read_only")
    assert is_plain_miss(site.saved(reader))
    assert site.entries() == []
    for _ in range(2):
        assert is_plain_miss(site.saved(writer))
    (before,) = site.entries()
    hit = site.saved(reader)
    assert hit.latent_data["hit"] is True
    (after,) = site.entries()
    assert after.snapshots == before.snapshots
    both = site.saved(site.host("read_write"))
    assert both.latent_data["hit"] is True


def test_requests_that_differ_in_what_the_host_tells_share_nothing(
    site: Site, tmp_path: Path
) -> None:
    picture = tmp_path / "first.png"
    picture.write_bytes(b"a picture")
    writer = site.host("write_only")
    site.saved(writer, first_image_path=str(picture))
    reader = site.host("read_only")
    same = {"first_image_path": str(picture)}
    assert site.saved(reader, **same).latent_data["hit"] is True
    for change in (
        {"resolution": "480p"},
        {"aspect_ratio": "1:1"},
        {"negative_prompt": "red"},
        {"target_video_length": 6},
        {"some_extra_of_the_host": 1.5},
        {"first_image_path": ""},
    ):
        assert is_plain_miss(site.saved(reader, **{**same, **change})), change
    for ppl in (
        {"num_inference_steps": STEPS + 1},
        {"cfg_scale_low": 4.0},
        {"sigma_shift": 5.0},
        {"boundary": 0.8},
        {"sample_solver": "unipc"},
        {"model_root": "/nowhere/other"},
    ):
        other = site.host("read_only", ppl=ppl)
        assert is_plain_miss(site.saved(other, **same)), ppl
    picture.write_bytes(b"another picture")
    assert is_plain_miss(site.saved(reader, **same))


@pytest.mark.parametrize(
    ("service", "place"),
    [
        ("orchestrator", "lookup"),
        ("latent_kv", "apply_resume"),
        ("latent_kv", "save"),
        pytest.param("orchestrator", "apply_resume", marks=pytest.mark.long),
        pytest.param("orchestrator", "save", marks=pytest.mark.long),
        pytest.param("latent_kv", "lookup", marks=pytest.mark.long),
    ],
)
def test_a_service_that_dies_on_the_way_costs_no_request(
    site: Site, service: str, place: str
) -> None:
    host = site.host("read_write", **HURRIED)
    patient = site.host("read_write")
    full = site.saved(patient)

    def kill(here: str) -> None:
        if here == place and site.cluster.is_running(service):
            site.cluster.kill(service)

    host.between = kill
    done = host.run(PROMPT)
    assert torch.equal(done.latents, full.latents)
    if place != "save":
        assert is_plain_miss(done)
    host.shutdown_twice()
    site.cluster.heal()
    wait_until(lambda: patient.run(PROMPT).latent_data["hit"], "the cache serves again")


@pytest.mark.parametrize(
    "service", ["vector_index", pytest.param("embedding", marks=pytest.mark.long)]
)
def test_a_service_behind_the_orchestrator_that_is_gone_is_a_miss(site: Site, service: str) -> None:
    host = site.host("read_write")
    full = site.saved(host)
    site.cluster.kill(service)
    done = site.saved(host)
    assert is_plain_miss(done)
    assert torch.equal(done.latents, full.latents)


def test_a_save_returns_while_the_store_hangs_and_is_done_when_it_goes_on(site: Site) -> None:
    host = site.host("write_only")
    host.between = lambda place: site.cluster.hang("latent_kv") if place == "save" else None
    host.run(PROMPT)
    session = host.service._session
    assert session is not None
    assert session.stats.saved_entries == 0
    site.cluster.resume("latent_kv")
    assert session.flush(60.0)
    assert session.stats.saved_entries == 1
    (entry,) = site.entries()
    assert [s.metadata.step_index for s in entry.snapshots] == KEY_STEPS


def test_the_end_comes_twice_under_other_loops_and_keeps_what_was_saved(site: Site) -> None:
    host = site.host("read_write")
    host.run(PROMPT)
    host.shutdown_twice()
    assert len(site.entries()) == 1
    after_the_end = host.run(PROMPT)
    assert is_plain_miss(after_the_end)
    (stored, *_) = site.entries()[0].snapshots
    found = site.cluster.store.touch_latent(site.namespace, stored.ref)
    assert found.metadata.num_inference_steps == STEPS
