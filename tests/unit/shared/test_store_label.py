"""Replicas that share a store tell its metrics under one label, and no others do."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from skipstone_latent_kv.__main__ import label_of as label_of_store
from skipstone_latent_kv.config import LatentKVSettings
from skipstone_shared.store_label import store_label
from skipstone_vector_index.__main__ import label_of as label_of_index
from skipstone_vector_index.config import VectorIndexSettings

NODES = ("redis://a:6379", "redis://b:6379")


def test_parts_of_a_place_are_not_run_together() -> None:
    assert store_label("s3", "a", "bc").startswith("s3-")
    assert store_label("s3", "a", "bc") != store_label("s3", "ab", "c")


def test_a_redis_is_one_store_for_all_who_name_its_nodes() -> None:
    def label(**fields: object) -> str:
        given = {"store": "redis", "redis_urls": NODES, **fields}
        return label_of_store(LatentKVSettings.model_validate(given))

    same = [
        label(),
        label(redis_urls=NODES[::-1]),
        label(redis_password="other", port=7000),
    ]
    assert len(set(same)) == 1
    assert len({label(), label(redis_prefix="other"), label(redis_urls=NODES[:1])}) == 3
    databases = [label(redis_urls=(f"redis://a:6379?db={number}",)) for number in range(2)]
    assert len(set(databases)) == 2


def test_a_bucket_is_one_store_by_prefix() -> None:
    def label(prefix: str, port: int) -> str:
        return label_of_store(
            LatentKVSettings(store="s3", s3_bucket="latents", s3_prefix=prefix, port=port)
        )

    assert label("one", 1) == label("one", 2) != label("two", 1)


def test_stores_of_ones_own_are_never_shared(tmp_path: Path) -> None:
    settings = [
        LatentKVSettings(store=store, data_dir=tmp_path / folder, port=port)
        for store, folder, port in (("lmdb", "a", 1), ("lmdb", "b", 1), ("memory", "a", 2))
    ]
    assert len({label_of_store(found) for found in settings}) == 3
    indexes = [VectorIndexSettings(data_dir=tmp_path / folder) for folder in ("a", "b")]
    assert len({label_of_index(found) for found in indexes}) == 2


def test_an_index_outside_is_one_whatever_the_password() -> None:
    def label(user: str, collection: str = "prod", host: str = "postgres") -> str:
        url = SecretStr(f"postgresql://{user}@/skipstone?host={host}")
        return label_of_index(
            VectorIndexSettings(engine="pgvector", url=url, collection=collection)
        )

    assert label("one:first") == label("one:second") != label("one:first", "another")
    assert label("one:first") != label("one:first", host="elsewhere")
