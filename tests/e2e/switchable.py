"""A cluster whose latent_kv and vector_index get other backends by another configuration file."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.e2e.processes import PATIENT, Cluster
from tests.servers.milvus_lite import milvus_url
from tests.servers.postgres import shared_postgres
from tests.servers.redis_server import shared_cluster
from tests.servers.seaweedfs import shared_seaweedfs

Settings = Mapping[str, Any]
SWITCHED = ("latent_kv", "vector_index")


class SwitchableCluster(Cluster):
    """Five services; two of them read a file that says which backend they have."""

    def __init__(self, folder: Path, model: Path) -> None:
        """Prepares the cluster with the default backends."""
        self.files = {name: folder / f"{name}.toml" for name in SWITCHED}
        self.settings: dict[str, Settings] = {"latent_kv": lmdb(), "vector_index": hnswlib()}
        for name, settings in self.settings.items():
            write_settings(self.files[name], name, settings)
        flags = {name: ("--config", str(self.files[name])) for name in SWITCHED}
        super().__init__(
            folder, model, {"orchestrator": (*PATIENT, "--drift-audit-share", "0"), **flags}
        )

    def switch(self, **services: Settings) -> None:
        """Starts services again that have other settings than these."""
        changed = {n: settings for n, settings in services.items() if self.settings[n] != settings}
        for name, settings in changed.items():
            write_settings(self.files[name], name, settings)
        self.settings.update(changed)
        if changed:
            self.restart(*changed)


def write_settings(path: Path, service: str, settings: Settings) -> Path:
    """Writes a configuration file of one service."""
    # JSON's strings, numbers and lists are TOML's too.
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    path.write_text("\n".join([f"[{service}]", *lines, ""]), encoding="utf-8")
    return path


def lmdb() -> Settings:
    """The default store."""
    return {"store": "lmdb"}


def redis_cluster() -> Settings:
    """A real Redis Cluster, empty; skips the test where Redis is not installed."""
    urls = [server.url for server in shared_cluster().servers]
    return {"store": "redis", "redis_urls": urls, "redis_prefix": f"e2e-{uuid.uuid4().hex}"}


def s3() -> Settings:
    """A real S3, SeaweedFS, with a prefix of its own; skips the test where it is not installed."""
    return {**shared_seaweedfs().settings, "s3_prefix": f"e2e-{uuid.uuid4().hex}"}


def hnswlib() -> Settings:
    """The default index."""
    return {"engine": "hnswlib"}


def pgvector() -> Settings:
    """A real PostgreSQL, empty; skips the test where it is not installed."""
    return _engine("pgvector", shared_postgres().url)


def milvus() -> Settings:
    """A real Milvus where somebody has one, else Milvus Lite; empty."""
    return _engine("milvus", milvus_url())


STORES: Mapping[str, Callable[[], Settings]] = {"lmdb": lmdb, "redis": redis_cluster, "s3": s3}
INDEXES: Mapping[str, Callable[[], Settings]] = {
    "hnswlib": hnswlib,
    "pgvector": pgvector,
    "milvus": milvus,
}


def _engine(name: str, url: str) -> Settings:
    collection = f"t{uuid.uuid4().hex[:24]}"
    return {"engine": name, "url": url, "collection": collection, "engine_timeout_s": 30.0}
