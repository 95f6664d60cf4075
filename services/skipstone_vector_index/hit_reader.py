"""From candidates to hits: reads records from the log and compares them exactly."""

from __future__ import annotations

from collections.abc import Sequence

from skipstone_shared.index_entries import Vector
from skipstone_vector_index.ranking import best_hits
from skipstone_vector_index.record_codec import Record
from skipstone_vector_index.record_log import LogView
from skipstone_vector_index.vector_form import VectorForm

Found = tuple[Record, float]
"""A hit and its similarity."""


class HitReader:
    """Makes the hits of the queries of one call from one view of the log."""

    def __init__(
        self,
        view: LogView,
        form: VectorForm,
        partition: int,
        embedding_model_id: str,
        min_similarity: float | None,
    ) -> None:
        """Prepares reading.

        Args:
            view: The log.
            form: How vectors are compared.
            partition: Number of the partition.
            embedding_model_id: Entries of another model are passed over; empty for any.
            min_similarity: Only hits with at least this similarity; None for all.
        """
        self._view = view
        self._form = form
        self._partition = partition
        self._model_id = embedding_model_id
        self._min_similarity = min_similarity
        self._records: dict[int, Record | None] = {}

    def best(self, query: Vector, labels: Sequence[int], top_k: int) -> list[Found]:
        """Returns the best hits among candidates, in the order of the contract."""
        records = [record for label in labels if (record := self._read(label)) is not None]
        return best_hits(self._form, query, records, top_k, self._min_similarity)

    def _read(self, label: int) -> Record | None:
        if label not in self._records:
            record = self._view.get((self._partition, label))
            # A write may have replaced the entry since the vectors were searched.
            if record and self._model_id not in ("", record.embedding_model_id):
                record = None
            self._records[label] = record
        return self._records[label]
