"""Starts the vector index: settings -> objects -> serve."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from prometheus_client.registry import Collector

from skipstone_shared.config import load_settings
from skipstone_shared.errors import FailedPrecondition
from skipstone_shared.grpc_server import Mounted, serve
from skipstone_shared.migration_server import with_migration
from skipstone_shared.migration_settings import read_target_settings
from skipstone_shared.store_label import store_label
from skipstone_shared.url_secrets import without_login
from skipstone_vector_index.adaptive_vectors import AdaptiveOptions
from skipstone_vector_index.config import VectorIndexSettings
from skipstone_vector_index.engine_index import EngineIndex
from skipstone_vector_index.engines import open_engine
from skipstone_vector_index.graph_files import open_graph_files
from skipstone_vector_index.graph_vectors import GraphOptions
from skipstone_vector_index.hnsw_index import HnswIndex
from skipstone_vector_index.index import MovableIndex
from skipstone_vector_index.index_mover import IndexMover
from skipstone_vector_index.metrics import EngineMetrics, IndexMetrics
from skipstone_vector_index.mirrored_index import MirroredIndex
from skipstone_vector_index.record_log import RecordLog
from skipstone_vector_index.server import mount
from skipstone_vector_index.vector_form import Metric, VectorForm


def build(settings: VectorIndexSettings) -> Mounted:
    """Opens the index of the settings, and the one that entries move to.

    Raises:
        FailedPrecondition: A data directory or an engine cannot be used.
        Unavailable: An engine is not there.
    """
    index = open_index(settings)
    collectors = [metrics_of(index, label_of(settings))]
    if settings.migrate_to is None:
        return mount(index, collectors)
    mirrored = mirror(index, settings, settings.migrate_to)
    return with_migration(
        mount(mirrored, [*collectors, *mirrored.collectors]), IndexMover(mirrored)
    )


def metrics_of(index: HnswIndex | EngineIndex, label: str) -> Collector:
    """The metrics of an index; an engine outside is asked for less, and not by each scrape."""
    if isinstance(index, HnswIndex):
        return IndexMetrics(index, label)
    return EngineMetrics(index.count_entries, label)


def label_of(settings: VectorIndexSettings) -> str:
    """Name of the index in metrics: the same in all processes that share it, as `place_of` says."""
    if settings.engine == "hnswlib":
        folder = str(settings.data_dir.resolve())
        return store_label("hnswlib", socket.gethostname(), folder, settings.port)
    url = without_login(settings.url.get_secret_value()) if settings.url else ""
    return store_label(settings.engine, url, settings.collection, settings.metric)


def mirror(source: MovableIndex, settings: VectorIndexSettings, target_file: Path) -> MirroredIndex:
    """Opens the index that entries move to, and puts both together.

    Raises:
        ConfigError: The file cannot be read, or a setting in it is wrong.
        FailedPrecondition: Entries cannot move between these; the message says why.
        Unavailable: The engine to move to is not there.
    """
    target_settings = read_target_settings(settings, target_file, place_of)
    if target_settings.metric != settings.metric:
        raise FailedPrecondition(
            f"migrate_to: metric {settings.metric}, in {target_file} {target_settings.metric}"
        )
    return MirroredIndex(source, open_index(target_settings))


def place_of(settings: VectorIndexSettings) -> tuple[object, ...]:
    """Where an index keeps its entries: settings with equal places name the same index."""
    if settings.engine == "hnswlib":
        return "hnswlib", settings.data_dir.resolve()
    url = settings.url.get_secret_value() if settings.url else ""
    return settings.engine, url, settings.collection


def open_index(settings: VectorIndexSettings) -> HnswIndex | EngineIndex:
    """Opens one index.

    Raises:
        FailedPrecondition: The data directory or the engine cannot be used.
        Unavailable: The engine is not there.
    """
    graph = GraphOptions(
        m=settings.hnsw_m,
        ef_construction=settings.hnsw_ef_construction,
        ef_search=settings.hnsw_ef_search,
    )
    if settings.engine == "hnswlib":
        return open_hnswlib(settings, graph)
    return EngineIndex(open_engine(settings, graph), VectorForm(Metric(settings.metric)))


def open_hnswlib(settings: VectorIndexSettings, graph: GraphOptions) -> HnswIndex:
    """Opens the index in a directory.

    Raises:
        FailedPrecondition: The directory cannot be used.
    """
    options = AdaptiveOptions(
        exact_search_limit=settings.exact_search_limit,
        rebuild_tombstone_share=settings.rebuild_tombstone_share,
        save_change_share=settings.graph_save_share,
        graph=graph,
    )
    log = RecordLog(
        settings.data_dir,
        settings.max_disk_bytes,
        fsync=settings.fsync,
        metric=Metric(settings.metric),
        page_check=settings.page_check,
    )
    graphs = settings.data_dir / "graphs"
    files = open_graph_files(graphs, log.log_id(), keep=settings.save_graphs)
    return HnswIndex(log, options, graph_files=files, half=settings.vector_dtype == "float16")


def main() -> int:
    """Runs the service until SIGTERM."""
    settings = load_settings(VectorIndexSettings)
    return serve(settings, lambda: build(settings))


if __name__ == "__main__":
    sys.exit(main())
