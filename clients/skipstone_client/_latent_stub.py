"""The rpcs of latent_kv, of which the two that stream snapshots take and give serialized messages.

See ``skipstone_shared.chunk_messages`` for why.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Generic, TypeVar

from skipstone.latent_kv.v1 import latent_kv_pb2 as pb
from skipstone.latent_kv.v1.latent_kv_pb2_grpc import LatentKVStub
from skipstone_client._channel import LATENT_KV

StubT = TypeVar("StubT")


@dataclasses.dataclass(frozen=True, slots=True)
class LatentKVRpcs(Generic[StubT]):
    """What a channel to latent_kv can call.

    Attributes:
        messages: The generated stub.
        write_latent: WriteLatent, with serialized requests.
        read_latent: ReadLatent, with serialized answers.
    """

    messages: StubT
    write_latent: Any
    read_latent: Any


def latent_kv_rpcs(channel: Any) -> LatentKVRpcs[Any]:
    """The rpcs on a synchronous or asynchronous channel."""
    return LatentKVRpcs(
        messages=LatentKVStub(channel),
        write_latent=channel.stream_unary(
            f"/{LATENT_KV.full_name}/WriteLatent",
            response_deserializer=pb.WriteLatentResponse.FromString,
        ),
        read_latent=channel.unary_stream(
            f"/{LATENT_KV.full_name}/ReadLatent",
            request_serializer=pb.ReadLatentRequest.SerializeToString,
        ),
    )
