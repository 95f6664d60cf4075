"""Collections in Milvus, over pymilvus."""

from __future__ import annotations

import base64
import json
import logging
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from pymilvus import DataType, MilvusClient
from pymilvus.exceptions import MilvusException
from pymilvus.milvus_client.index import IndexParams

from skipstone_shared.structured_logging import get_logger
from skipstone_vector_index.collection_engine import Filter, Point, rows_in_parts
from skipstone_vector_index.engine import ListedRow, PartitionName, Row
from skipstone_vector_index.engine_url import parse_engine_url
from skipstone_vector_index.graph_vectors import GraphOptions
from skipstone_vector_index.milvus_errors import NOT_LOADED, translated_errors
from skipstone_vector_index.vector_form import Matrix

_MAX_ROWS = 16_384
"""Rows that Milvus returns for one query."""

_HITS_PER_CALL = 8192
"""Queries times hits of one call, so that its answer stays small."""

_RETRIES = 1
"""The first failure of a call after a restart of Milvus makes pymilvus connect again."""

_PACKED_CHARACTERS = 65_535
"""Of a VARCHAR field."""

_ATTEMPTS = 5
"""Of a call that another one got in the way of."""

_INCOMPLETE = "incomplete query result"
"""Milvus 2.3 looks the rows of its hits up afterwards; one was removed meanwhile."""


_SHOWN = ["compatibility_key", "entry_id", "packed", "vector"]


class MilvusCollections:
    """`Collections` in one database of a Milvus, or of Milvus Lite's server.

    Reads ask for what this process has written (session consistency): they wait for no more than
    that, so what another process wrote is seen when Milvus has passed it on, usually after 0.2 s.
    """

    name = "milvus"
    exact_search_limit = 0
    max_packed_bytes = _PACKED_CHARACTERS // 4 * 3

    def __init__(
        self, url: str, prefix: str, timeout_s: float = 5.0, graph: GraphOptions | None = None
    ) -> None:
        """Connects.

        Args:
            url: ``http://user:password@host:19530/database``; https for TLS.
            prefix: Of the names of the collections; a plain identifier.
            timeout_s: Seconds that a call may take.
            graph: How graphs are built and searched.

        Raises:
            FailedPrecondition: The URL is none of Milvus.
            Unavailable: It is not there.
        """
        place = parse_engine_url(url, "http://user:password@host:19530/database")
        self._prefix = prefix
        self._graph = graph or GraphOptions()
        self._lock = threading.Lock()
        # It logs a page for every failed call; what there is to say is in the error.
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
        # A deadline by configuration of the channel: with one as an argument pymilvus would try
        # again until then whatever the error, and without the channel's it would wait for ever.
        deadline = {"methodConfig": [{"name": [{}], "timeout": f"{timeout_s}s"}]}
        options = {
            "grpc.service_config": json.dumps(deadline),
            # A new channel tries at once, whatever an old one has just found.
            "grpc.use_local_subchannel_pool": 1,
            "grpc.min_reconnect_backoff_ms": 100,
            "grpc.initial_reconnect_backoff_ms": 100,
            "grpc.max_reconnect_backoff_ms": 1000,
        }
        with translated_errors():
            self._client: Any = MilvusClient(
                place.address,
                token=f"{place.user}:{place.password}" if place.user else place.password,
                db_name=place.path,
                timeout=timeout_s,
                dedicated=True,
                grpc_options=options,
            )

    def dimensions(self) -> set[int]:
        """Returns the dimensions that have a collection."""
        start = f"{self._prefix}_"
        names = self._call("list_collections")
        ends = (name.removeprefix(start) for name in names if name.startswith(start))
        return {int(end) for end in ends if end.isdecimal()}

    def create(self, dimension: int) -> None:
        """Creates a collection; several processes may do so at a time."""
        schema = MilvusClient.create_schema(enable_dynamic_field=False)
        schema.add_field("point_id", DataType.VARCHAR, max_length=32, is_primary=True)
        # No partition key of Milvus: an upsert of 2.3.5 puts rows where searches by key miss them.
        for name, length in (
            ("partition", 32),
            ("namespace", 64),
            ("compatibility_key", 64),
            ("entry_id", 128),
            ("model", 32),
            ("packed", _PACKED_CHARACTERS),
        ):
            schema.add_field(name, DataType.VARCHAR, max_length=length)
        schema.add_field("label", DataType.INT64)
        schema.add_field("revision", DataType.INT64)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dimension)
        indexes = MilvusClient.prepare_index_params()
        indexes.add_index(
            "vector",
            index_type="HNSW",
            metric_type="IP",
            params={"M": self._graph.m, "efConstruction": self._graph.ef_construction},
        )
        with self._lock:
            if dimension not in self.dimensions():
                self._call(
                    "create_collection",
                    self._of(dimension),
                    schema=schema,
                    consistency_level="Session",
                )
            self._index("vector", dimension, indexes)
            self._index_partitions(dimension)
            self._call("load_collection", self._of(dimension))

    def labels(self, dimension: int, point_ids: Sequence[str]) -> dict[str, int]:
        """Returns the labels of points by id."""
        rows = self._query(
            dimension, f"point_id in {json.dumps(list(point_ids))}", ["point_id", "label"]
        )
        return {row["point_id"]: row["label"] for row in rows}

    def upsert(self, dimension: int, points: Sequence[Point]) -> None:
        """Stores points."""
        self._call("upsert", self._of(dimension), [_to_row(point) for point in points])

    def nearest(
        self, dimension: int, where: Filter, queries: Matrix, count: int
    ) -> list[list[Row]]:
        """Returns the nearest points per query."""
        found: list[list[Row]] = []
        for part in rows_in_parts(len(queries), max(1, _HITS_PER_CALL // count)):
            answers = self._call(
                "search",
                self._of(dimension),
                data=list(queries[part]),
                filter=_expression(where),
                limit=count,
                output_fields=["entry_id", "packed", "vector"],
                search_params={"params": {"ef": max(self._graph.ef_search, count)}},
                consistency_level="Session",
            )
            # While a row is replaced an answer may have both its old and its new form.
            found += [
                list(
                    {
                        row.entry_id: row for row in (_to_domain(hit["entity"]) for hit in hits)
                    }.values()
                )
                for hits in answers
            ]
        return found

    def find(self, dimension: int, where: Filter) -> list[Point]:
        """Returns some points."""
        shown = [*_SHOWN, "point_id", "namespace", "model", "label", "revision"]
        return [
            Point(
                row["point_id"],
                PartitionName(row["namespace"], row["compatibility_key"]),
                row["model"],
                row["label"],
                row["revision"],
                _to_domain(row),
            )
            for row in self._query(dimension, _expression(where), shown)
        ]

    def page(self, dimension: int, where: Filter, limit: int) -> list[ListedRow]:
        """Returns the first points by label.

        Milvus gives rows in no order that could be asked for, and at most 16,384 of them. So first
        the labels of stretches that have no more than that, and then the rows up to the last label
        of the page.
        """
        labels: list[int] = []
        after, whole = where.after or 0, where.until or 0
        while len(labels) < limit and after < whole:
            until = self._stretch(dimension, where, after, whole)
            stretch = _expression(where, after=after, until=until)
            labels += sorted(row["label"] for row in self._query(dimension, stretch, ["label"]))
            after = until
        if not labels:
            return []
        last = labels[:limit][-1]
        rows = self._query(dimension, _expression(where, until=last), ["label", "packed"])
        listed = [ListedRow(row["label"], _unpacked(row["packed"])) for row in rows]
        return sorted(listed, key=lambda row: row.label)

    def _stretch(self, dimension: int, where: Filter, after: int, until: int) -> int:
        """Returns the end of a stretch of labels from ``after`` on that one query can return."""
        while self._count(dimension, _expression(where, after=after, until=until)) > _MAX_ROWS:
            until = (after + until) // 2
        return until

    def entry_ids(self, dimension: int, where: Filter) -> set[str]:
        """Returns the entry ids of points."""
        return {row["entry_id"] for row in self._query(dimension, _expression(where), ["entry_id"])}

    def distinct(self, dimension: int, field: str, where: Filter) -> set[str]:
        """Returns the different values of a field: asks for points with none of those found."""
        found: set[str] = set()
        while True:
            known = f"{field} not in {json.dumps(sorted(found))}" if found else f'{field} != ""'
            rest = " and ".join(filter(None, (_expression(where), known)))
            rows = self._query(dimension, rest, [field], limit=1000)
            if not rows:
                return found
            found |= {row[field] for row in rows}

    def count(self, dimension: int, where: Filter) -> int:
        """Returns the number of points."""
        return self._count(dimension, _expression(where))

    def delete(self, dimension: int, where: Filter) -> None:
        """Removes points, and waits until Milvus has passed that on.

        It tells no time of a removal (2.3) that a read of this session could wait for, so one read
        waits for all that was written until now: about 0.2 s.
        """
        while True:
            rows = self._query(dimension, _expression(where), ["point_id"])
            if rows:
                self._call("delete", self._of(dimension), ids=[row["point_id"] for row in rows])
                self._count(dimension, _expression(where), consistency="Strong")
            if len(rows) < _MAX_ROWS:
                return

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()

    def _index(self, field: str, dimension: int, index: IndexParams) -> None:
        """Indexes a field; where it is already, be it since this moment, that is kept."""
        name = self._of(dimension)
        if self._call("list_indexes", name, field_name=field):
            return
        try:
            # Without waiting for an index over nothing.
            self._call("create_index", name, index, sync=False)
        except MilvusException:
            if not self._call("list_indexes", name, field_name=field):
                raise

    def _index_partitions(self, dimension: int) -> None:
        """Indexes the partition's field where this Milvus can: since 2.4, for speed alone."""
        index = MilvusClient.prepare_index_params()
        index.add_index("partition", index_type="INVERTED")
        try:
            self._index("partition", dimension, index)
        except MilvusException as error:
            get_logger().info("milvus searches without an index of partitions", error=str(error))

    def _of(self, dimension: int) -> str:
        return f"{self._prefix}_{dimension}"

    def _query(
        self, dimension: int, expression: str, fields: Sequence[str], limit: int = _MAX_ROWS
    ) -> list[dict[str, Any]]:
        return list(
            self._call(
                "query",
                self._of(dimension),
                filter=expression,
                output_fields=list(fields),
                limit=limit,
                consistency_level="Session",
            )
        )

    def _count(self, dimension: int, expression: str, consistency: str = "Session") -> int:
        rows = self._call(
            "query",
            self._of(dimension),
            filter=expression,
            output_fields=["count(*)"],
            consistency_level=consistency,
        )
        return int(rows[0]["count(*)"])

    def _call(self, method: str, *args: Any, **options: Any) -> Any:
        """Calls the client; again where Milvus can do better at once."""
        call = getattr(self._client, method)
        with translated_errors():
            for _ in range(_ATTEMPTS):
                try:
                    return call(*args, retry_times=_RETRIES, **options)
                except MilvusException as error:
                    if error.code == NOT_LOADED:  # Milvus Lite forgets it at its end
                        self._client.load_collection(args[0])
                    elif _INCOMPLETE not in error.message:
                        raise
            return call(*args, retry_times=_RETRIES, **options)


def _expression(where: Filter, after: int | None = None, until: int | None = None) -> str:
    after = where.after if after is None else after
    until = where.until if until is None else until
    equal = {"namespace": where.namespace, "partition": where.partition, "model": where.model}
    parts = [f"{name} == {json.dumps(value)}" for name, value in equal.items() if value is not None]
    if where.entry_ids is not None:
        parts.append(f"entry_id in {json.dumps(list(where.entry_ids))}")
    if after is not None:
        parts.append(f"label > {after:d}")
    if until is not None:
        parts.append(f"label <= {until:d}")
    return " and ".join(parts)


def _to_row(point: Point) -> dict[str, Any]:
    return {
        "point_id": point.point_id,
        "partition": point.partition.digest(),
        "namespace": point.partition.namespace,
        "compatibility_key": point.partition.compatibility_key,
        "entry_id": point.row.entry_id,
        "model": point.model,
        "label": point.label,
        "revision": point.revision,
        "packed": base64.b64encode(point.row.packed).decode(),
        "vector": point.row.vector,
    }


def _to_domain(row: dict[str, Any]) -> Row:
    return Row(
        row["entry_id"], _unpacked(row["packed"]), np.asarray(row["vector"], dtype=np.float32)
    )


def _unpacked(text: str) -> bytes:
    return base64.b64decode(text)
