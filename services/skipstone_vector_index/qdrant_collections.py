"""Collections in Qdrant, over qdrant-client."""

from __future__ import annotations

import base64
import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from skipstone_shared.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    ResourceExhausted,
    SkipstoneError,
    Unavailable,
)
from skipstone_vector_index.collection_engine import Filter, Point, rows_in_parts
from skipstone_vector_index.engine import ListedRow, PartitionName, Row
from skipstone_vector_index.engine_url import parse_engine_url
from skipstone_vector_index.graph_vectors import GraphOptions
from skipstone_vector_index.vector_form import Matrix

_LOCAL = "file://"
"""Begins the URL of a directory, or of nothing for memory: Qdrant inside this process."""

_POINTS_PER_WRITE = 200
"""A request may have 32 MB."""

_HITS_PER_CALL = 8192
"""Queries times hits of one call, so that its answer stays small."""

_MAX_VALUES = 1_000_000
"""Different values of a field that are listed."""

_INDEXED: dict[str, models.KeywordIndexParams | models.IntegerIndexParams] = {
    "partition": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
    "namespace": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD),
    "entry_id": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD),
    "model": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD),
    "label": models.IntegerIndexParams(
        type=models.IntegerIndexType.INTEGER, lookup=False, range=True
    ),
}


class QdrantCollections:
    """`Collections` in a Qdrant, over its REST API.

    Each partition has a graph of its own inside the collection: `partition` is its tenant field.
    A write is acknowledged when it has been applied, so that every process sees it.
    """

    name = "qdrant"
    exact_search_limit = 0
    max_packed_bytes = 1 << 20

    def __init__(
        self, url: str, prefix: str, timeout_s: float = 5.0, graph: GraphOptions | None = None
    ) -> None:
        """Connects.

        Args:
            url: ``http://:api-key@host:6333``; https for TLS. Or ``file:///directory`` for Qdrant's
                local mode, which compares all vectors and is for trying things out.
            prefix: Of the names of the collections; a plain identifier.
            timeout_s: Seconds that a call may take.
            graph: How graphs are built and searched.

        Raises:
            FailedPrecondition: The URL is none of Qdrant, or it refuses the key.
            Unavailable: It is not there.
        """
        self._prefix = prefix
        self._graph = graph or GraphOptions()
        self._lock = threading.Lock()
        self._is_local = url.startswith(_LOCAL)
        if self._is_local:
            path = url.removeprefix(_LOCAL)
            self._client = QdrantClient(
                location=None if path else ":memory:",
                path=path or None,
                force_disable_check_same_thread=True,
            )
            return
        place = parse_engine_url(url, "http://:api-key@host:6333")
        # Without: the client asks for the server's version at once, and warns when it is away.
        self._client = QdrantClient(
            url=place.address,
            prefix=place.path or None,
            api_key=place.password or None,
            timeout=math.ceil(timeout_s),
            check_compatibility=False,
        )

    def dimensions(self) -> set[int]:
        """Returns the dimensions that have a collection."""
        start = f"{self._prefix}_"
        with self._calling():
            found = self._client.get_collections().collections
        ends = (item.name.removeprefix(start) for item in found if item.name.startswith(start))
        return {int(end) for end in ends if end.isdecimal()}

    def create(self, dimension: int) -> None:
        """Creates a collection; where another process was first its own is taken."""
        with self._calling():
            try:
                self._client.create_collection(
                    self._of(dimension),
                    vectors_config=models.VectorParams(
                        size=dimension, distance=models.Distance.DOT
                    ),
                    # No graph over all partitions, one in each.
                    hnsw_config=models.HnswConfigDiff(
                        m=0, payload_m=self._graph.m, ef_construct=self._graph.ef_construction
                    ),
                )
            except UnexpectedResponse as error:
                if error.status_code != 409:
                    raise
            if self._is_local:
                return  # it has no indexes
            for field, schema in _INDEXED.items():
                self._client.create_payload_index(self._of(dimension), field, schema, wait=True)

    def labels(self, dimension: int, point_ids: Sequence[str]) -> dict[str, int]:
        """Returns the labels of points by id."""
        with self._calling():
            records = self._client.retrieve(
                self._of(dimension), list(point_ids), with_payload=["label"], with_vectors=False
            )
        return {
            str(record.id).replace("-", ""): int((record.payload or {})["label"])
            for record in records
        }

    def upsert(self, dimension: int, points: Sequence[Point]) -> None:
        """Stores points."""
        for part in rows_in_parts(len(points), _POINTS_PER_WRITE):
            with self._calling():
                self._client.upsert(
                    self._of(dimension), [_to_struct(point) for point in points[part]], wait=True
                )

    def nearest(
        self, dimension: int, where: Filter, queries: Matrix, count: int
    ) -> list[list[Row]]:
        """Returns the nearest points per query."""
        found: list[list[Row]] = []
        # The local mode has no graphs, and warns of what it does not heed.
        ef = None if self._is_local else max(self._graph.ef_search, count)
        params = models.SearchParams(hnsw_ef=ef) if ef else None
        for part in rows_in_parts(len(queries), max(1, _HITS_PER_CALL // count)):
            requests = [
                models.QueryRequest(
                    query=query.tolist(),
                    filter=_condition(where),
                    limit=count,
                    params=params,
                    with_payload=["entry_id", "packed"],
                    with_vector=True,
                )
                for query in queries[part]
            ]
            with self._calling():
                answers = self._client.query_batch_points(self._of(dimension), requests)
            found += [[_to_domain(hit) for hit in answer.points] for answer in answers]
        return found

    def find(self, dimension: int, where: Filter) -> list[Point]:
        """Returns some points."""
        with self._calling():
            records, _ = self._client.scroll(
                self._of(dimension),
                scroll_filter=_condition(where),
                limit=10_000,
                with_payload=True,
                with_vectors=True,
            )
        return [_to_point(record) for record in records]

    def page(self, dimension: int, where: Filter, limit: int) -> list[ListedRow]:
        """Returns the first points by label."""
        with self._calling():
            records, _ = self._client.scroll(
                self._of(dimension),
                scroll_filter=_condition(where),
                order_by=models.OrderBy(key="label", direction=models.Direction.ASC),
                limit=limit,
                with_payload=["label", "packed"],
                with_vectors=False,
            )
        payloads = [record.payload or {} for record in records]
        return [ListedRow(int(p["label"]), base64.b64decode(p["packed"])) for p in payloads]

    def entry_ids(self, dimension: int, where: Filter) -> set[str]:
        """Returns the entry ids of points."""
        return self.distinct(dimension, "entry_id", where)

    def distinct(self, dimension: int, field: str, where: Filter) -> set[str]:
        """Returns the different values of a field."""
        with self._calling():
            answer = self._client.facet(
                self._of(dimension),
                field,
                facet_filter=_condition(where),
                limit=_MAX_VALUES,
                exact=True,
            )
        return {str(hit.value) for hit in answer.hits}

    def count(self, dimension: int, where: Filter) -> int:
        """Returns the number of points."""
        with self._calling():
            answer = self._client.count(
                self._of(dimension), count_filter=_condition(where), exact=True
            )
        return answer.count

    def delete(self, dimension: int, where: Filter) -> None:
        """Removes points."""
        with self._calling():
            self._client.delete(
                self._of(dimension), models.FilterSelector(filter=_condition(where)), wait=True
            )

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()

    def _of(self, dimension: int) -> str:
        return f"{self._prefix}_{dimension}"

    @contextmanager
    def _calling(self) -> Iterator[None]:
        """Translates errors; the local mode is for one thread at a time."""
        with self._lock if self._is_local else nullcontext():
            try:
                yield
            except (ResponseHandlingException, UnexpectedResponse) as error:
                raise (_meaning(error) or error) from error


def _meaning(error: ResponseHandlingException | UnexpectedResponse) -> SkipstoneError | None:
    """Returns Skipstone's error for one that an operator or caller can mend."""
    if isinstance(error, ResponseHandlingException):
        kind = type(error.source).__name__
        if "Timeout" in kind and kind != "ConnectTimeout":
            return DeadlineExceeded(f"qdrant does not answer: {kind}")
        return Unavailable(f"qdrant cannot be reached: {kind}: {error.source}")
    status = error.status_code or 0
    if status in (401, 403):
        return FailedPrecondition("qdrant refuses the API key of url", field="url")
    if status in (429, 507):
        return ResourceExhausted(f"qdrant is full: {error.reason_phrase}")
    if status in (408, 504):
        return DeadlineExceeded(f"qdrant: {error.reason_phrase}")
    return Unavailable(f"qdrant: {error.reason_phrase}") if status in (502, 503) else None


def _condition(where: Filter) -> models.Filter:
    equal = {"namespace": where.namespace, "partition": where.partition, "model": where.model}
    must: list[Any] = [
        models.FieldCondition(key=name, match=models.MatchValue(value=value))
        for name, value in equal.items()
        if value is not None
    ]
    if where.entry_ids is not None:
        any_of = models.MatchAny(any=list(where.entry_ids))
        must.append(models.FieldCondition(key="entry_id", match=any_of))
    if where.after is not None or where.until is not None:
        label = models.Range(gt=where.after, lte=where.until)
        must.append(models.FieldCondition(key="label", range=label))
    return models.Filter(must=must)


def _to_struct(point: Point) -> models.PointStruct:
    return models.PointStruct(
        id=point.point_id,
        vector=point.row.vector.tolist(),
        payload={
            "partition": point.partition.digest(),
            "namespace": point.partition.namespace,
            "compatibility_key": point.partition.compatibility_key,
            "entry_id": point.row.entry_id,
            "model": point.model,
            "label": point.label,
            "revision": point.revision,
            "packed": base64.b64encode(point.row.packed).decode(),
        },
    )


def _to_domain(record: models.ScoredPoint | models.Record) -> Row:
    payload = record.payload or {}
    vector = np.asarray(record.vector, dtype=np.float32)
    return Row(payload["entry_id"], base64.b64decode(payload["packed"]), vector)


def _to_point(record: models.Record) -> Point:
    payload = record.payload or {}
    return Point(
        str(record.id).replace("-", ""),
        PartitionName(payload["namespace"], payload["compatibility_key"]),
        payload["model"],
        int(payload["label"]),
        int(payload["revision"]),
        _to_domain(record),
    )
