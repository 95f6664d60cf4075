"""Opens the engine of the settings; its library is imported only then."""

from __future__ import annotations

from skipstone_shared.errors import FailedPrecondition
from skipstone_vector_index.collection_engine import CollectionEngine
from skipstone_vector_index.config import VectorIndexSettings
from skipstone_vector_index.engine import VectorEngine
from skipstone_vector_index.graph_vectors import GraphOptions


def open_engine(settings: VectorIndexSettings, graph: GraphOptions) -> VectorEngine:
    """Connects to the engine and creates there what is missing.

    Raises:
        FailedPrecondition: Its library is not installed, or the URL is not one of it.
        Unavailable: It cannot be reached.
    """
    try:
        return _open(settings, graph)
    except ModuleNotFoundError as error:
        raise FailedPrecondition(
            f"engine {settings.engine} needs a library that is not installed ({error.name}): "
            f"pip install 'skipstone[vector-index-{settings.engine}]'"
        ) from error


def _open(settings: VectorIndexSettings, graph: GraphOptions) -> VectorEngine:
    url = settings.url.get_secret_value() if settings.url else ""
    # Vectors of another metric are other collections, so that none is compared as what it is not.
    prefix = f"{settings.collection}_{settings.metric}"
    timeout_s = settings.engine_timeout_s
    if settings.engine == "milvus":
        from skipstone_vector_index.milvus_collections import MilvusCollections

        return CollectionEngine(MilvusCollections(url, prefix, timeout_s, graph))
    if settings.engine == "qdrant":
        from skipstone_vector_index.qdrant_collections import QdrantCollections

        return CollectionEngine(QdrantCollections(url, prefix, timeout_s, graph))
    from skipstone_vector_index.pgvector_engine import PgvectorEngine

    return PgvectorEngine(url, prefix, timeout_s, settings.exact_search_limit, graph)
