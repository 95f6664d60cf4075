"""Starts the vector index: settings -> objects -> serve."""

from __future__ import annotations

import sys

from skipstone_shared.config import load_settings
from skipstone_shared.grpc_server import Mounted, serve
from skipstone_vector_index.adaptive_vectors import AdaptiveOptions
from skipstone_vector_index.config import VectorIndexSettings
from skipstone_vector_index.engine_index import EngineIndex
from skipstone_vector_index.engines import open_engine
from skipstone_vector_index.graph_files import open_graph_files
from skipstone_vector_index.graph_vectors import GraphOptions
from skipstone_vector_index.hnsw_index import HnswIndex
from skipstone_vector_index.metrics import IndexMetrics
from skipstone_vector_index.record_log import RecordLog
from skipstone_vector_index.server import mount
from skipstone_vector_index.vector_form import Metric, VectorForm


def build(settings: VectorIndexSettings) -> Mounted:
    """Opens the index of the settings.

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
        index = open_hnswlib(settings, graph)
        return mount(index, [IndexMetrics(index)])
    form = VectorForm(Metric(settings.metric))
    return mount(EngineIndex(open_engine(settings, graph), form))


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
