"""A search: candidates from memory, hits from the log."""

from __future__ import annotations

from skipstone_shared.latents import checked_namespace
from skipstone_vector_index import entry_rules
from skipstone_vector_index.catalog import Catalog
from skipstone_vector_index.hit_reader import Found, HitReader
from skipstone_vector_index.index import Search
from skipstone_vector_index.record_log import RecordLog
from skipstone_vector_index.vector_form import VectorForm

_SPARE_CANDIDATES = 8
"""Candidates beyond top_k: replaces those that a write removes between graph and log, and lets
entries of equal similarity be ordered by id at the edge."""


class Searcher:
    """Searches what a catalog and a log hold; from any thread."""

    def __init__(self, catalog: Catalog, log: RecordLog, form: VectorForm) -> None:
        """Creates the searcher.

        Args:
            catalog: Where candidates come from.
            log: Where hits are read.
            form: How vectors are compared.
        """
        self._catalog = catalog
        self._log = log
        self._form = form

    def find(self, search: Search) -> list[list[Found]]:
        """Returns the hits of each query, best first.

        Raises:
            InvalidArgument: As `VectorIndex.search_entries`.
        """
        namespace = checked_namespace(search.namespace)
        entry_rules.checked_compatibility_key(search.compatibility_key)
        entry_rules.check_count("queries", len(search.queries))
        entry_rules.check_count("top_k", search.top_k, entry_rules.MAX_TOP_K)
        entry_rules.check_min_similarity(search.min_similarity)
        partition = self._catalog.find(namespace, search.compatibility_key)
        dimension = None if partition is None else partition.dimension
        queries = self._form.queries(search.queries, dimension)
        if partition is None:
            return [[] for _ in queries]
        candidates: list[list[int]] = [[] for _ in queries]
        for model_id, vectors in list(partition.vectors.items()):
            if search.embedding_model_id in ("", model_id):
                found = vectors.nearest(queries, search.top_k + _SPARE_CANDIDATES)
                for mine, labels in zip(candidates, found, strict=True):
                    mine.extend(labels.tolist())
        with self._log.reading() as view:
            reader = HitReader(
                view,
                self._form,
                partition.number,
                search.embedding_model_id,
                search.min_similarity,
            )
            return [
                reader.best(query, labels, search.top_k)
                for query, labels in zip(queries, candidates, strict=True)
            ]
