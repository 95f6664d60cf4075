"""What the servicer refuses before gRPC would."""

from __future__ import annotations

from unittest.mock import create_autospec

import grpc
import numpy as np
import pytest

from skipstone.vector_index.v1 import vector_index_pb2 as pb
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.index_entries import IndexEntry, VectorEntry
from skipstone_shared.tensor_messages import vector_bytes
from skipstone_vector_index.flat_index import FlatIndex
from skipstone_vector_index.server import VectorIndexServicer

VECTOR = np.ones(2, np.float32)
GRPC_LIMIT_BYTES = 4 << 20


def test_hits_that_do_not_fit_in_one_message_are_refused() -> None:
    index = FlatIndex()
    long = [IndexEntry(f"e{number}", prompt="p" * 20_000) for number in range(250)]
    index.upsert_entries("", "key", [VectorEntry(entry, VECTOR) for entry in long])
    servicer, context = VectorIndexServicer(index), create_autospec(grpc.ServicerContext)
    request = pb.SearchEntriesRequest(
        compatibility_key="key", queries=[vector_bytes(VECTOR)], top_k=199
    )
    answer = servicer.SearchEntries(request, context)
    assert len(answer.results[0].hits) == 199
    assert answer.ByteSize() < GRPC_LIMIT_BYTES
    request.top_k = 200
    with pytest.raises(InvalidArgument, match="the hits take") as refused:
        servicer.SearchEntries(request, context)
    assert refused.value.field == "top_k"
