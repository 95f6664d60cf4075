"""Bad input names the field and what is allowed, and leaves nothing behind."""

from __future__ import annotations

import dataclasses
import math

import grpc
import pytest
from tests.e2e.generations import PROMPT, entry_count
from tests.e2e.processes import Cluster

from skipstone.generation.v1 import generation_pb2
from skipstone.orchestrator.v1 import orchestrator_pb2 as pb
from skipstone.orchestrator.v1.orchestrator_pb2_grpc import OrchestratorStub
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import GenerationParams
from skipstone_shared.grpc_errors import from_rpc_error
from skipstone_shared.orchestration import CacheOptions

pytestmark = pytest.mark.e2e

GOOD = GenerationParams(PROMPT, num_inference_steps=4, seed=1)

BAD_PARAMS = [
    ("prompt", {"prompt": ""}, "1 to 20000 bytes"),
    ("prompt", {"prompt": " \n\t "}, "not all white space"),
    ("prompt", {"prompt": "x" * 1_000_000}, "1 to 20000 bytes"),
    ("negative_prompt", {"negative_prompt": "x" * 30_000}, "0 to 20000 bytes"),
    ("num_inference_steps", {"num_inference_steps": 0}, "1 to 1000"),
    ("num_inference_steps", {"num_inference_steps": -1}, "1 to 1000"),
    ("num_inference_steps", {"num_inference_steps": 100_000}, "1 to 1000"),
    ("guidance_scale", {"guidance_scale": math.nan}, "from 0 to 100"),
    ("guidance_scale", {"guidance_scale": math.inf}, "from 0 to 100"),
    ("guidance_scale", {"guidance_scale": -1.0}, "from 0 to 100"),
    ("height", {"height": 31}, "multiples of 16 from 16 to 64"),
    ("height", {"height": 0}, "multiples of 16 from 16 to 64"),
    ("width", {"width": 4096}, "multiples of 16 from 16 to 64"),
    ("width", {"width": -16}, "multiples of 16 from 16 to 64"),
    ("num_frames", {"num_frames": 5}, "1 or unset"),
    ("seed", {"seed": -1}, "0 to"),
    ("shift", {"shift": math.nan}, "above 0"),
    ("shift", {"shift": 0.0}, "above 0"),
]

BAD_OPTIONS = [
    ("min_similarity", CacheOptions(min_similarity=1.5), "0 to 1"),
    ("min_similarity", CacheOptions(min_similarity=math.nan), "0 to 1"),
    ("max_skip_steps", CacheOptions(max_skip_steps=-1), "0 and up"),
    ("top_k", CacheOptions(top_k=0), "1 to 100"),
    ("top_k", CacheOptions(top_k=101), "1 to 100"),
    ("key_steps", CacheOptions(key_steps=(3, 2)), "ascending, each 1 to 3"),
    ("key_steps", CacheOptions(key_steps=(0,)), "ascending, each 1 to 3"),
    ("key_steps", CacheOptions(key_steps=(4,)), "ascending, each 1 to 3"),
]


def assert_nothing_left(cluster: Cluster, namespace: str) -> None:
    assert entry_count(cluster, namespace) == 0
    assert cluster.store.get_stats(namespace).uncommitted_count == 0


@pytest.mark.parametrize(("field", "change", "allowed"), BAD_PARAMS)
def test_a_bad_parameter_names_field_and_range(
    cluster: Cluster, namespace: str, field: str, change: dict[str, object], allowed: str
) -> None:
    before = cluster.denoise.get_stats()
    with pytest.raises(InvalidArgument) as raised:
        cluster.client.generate(dataclasses.replace(GOOD, **change), namespace=namespace)
    assert raised.value.field == f"params.{field}"
    assert allowed in (raised.value.allowed or "")
    assert f"params.{field}" in str(raised.value)
    assert allowed in str(raised.value)
    assert len(str(raised.value)) < 500
    assert cluster.denoise.get_stats() == before
    assert_nothing_left(cluster, namespace)


@pytest.mark.parametrize(("field", "options", "allowed"), BAD_OPTIONS)
def test_a_bad_cache_option_names_field_and_range(
    cluster: Cluster, namespace: str, field: str, options: CacheOptions, allowed: str
) -> None:
    with pytest.raises(InvalidArgument) as raised:
        cluster.client.generate(GOOD, options, namespace)
    assert raised.value.field == f"cache.{field}"
    assert allowed in str(raised.value)
    assert_nothing_left(cluster, namespace)


@pytest.mark.parametrize("name", ["a b", "../up", "x" * 65, "ü"])
def test_a_bad_namespace_names_field_and_range(cluster: Cluster, name: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        cluster.client.generate(GOOD, namespace=name)
    assert raised.value.field == "namespace"
    assert "1 to 64 characters" in str(raised.value)


@pytest.mark.parametrize(
    ("field", "cache"),
    [
        ("cache.mode", pb.CacheOptions(mode=99)),  # type: ignore[arg-type]
        ("cache.reuse_kind", pb.CacheOptions(reuse_kind=99)),  # type: ignore[arg-type]
    ],
)
def test_an_unknown_enum_value_on_the_wire_is_refused(
    cluster: Cluster, namespace: str, field: str, cache: pb.CacheOptions
) -> None:
    params = generation_pb2.GenerationParams(prompt=PROMPT, num_inference_steps=4, seed=1)
    with grpc.insecure_channel(cluster.targets["orchestrator"]) as channel:
        request = pb.GenerateRequest(namespace=namespace, params=params, cache=cache)
        with pytest.raises(grpc.RpcError) as raised:
            list(OrchestratorStub(channel).Generate(request, timeout=30.0))
    error = from_rpc_error(raised.value)
    assert isinstance(error, InvalidArgument)
    assert error.field is not None
    assert field.endswith(error.field) or error.field == field
    assert "99" in str(error)
    assert_nothing_left(cluster, namespace)


def test_a_request_without_parameters_is_refused(cluster: Cluster, namespace: str) -> None:
    with grpc.insecure_channel(cluster.targets["orchestrator"]) as channel:
        request = pb.GenerateRequest(namespace=namespace)
        with pytest.raises(grpc.RpcError) as raised:
            list(OrchestratorStub(channel).Generate(request, timeout=30.0))
    error = from_rpc_error(raised.value)
    assert isinstance(error, InvalidArgument)
    assert error.field == "params"


def test_a_prompt_at_the_limit_is_generated(cluster: Cluster, namespace: str) -> None:
    """20,000 bytes are allowed, so they must work all the way, the embedding included."""
    params = dataclasses.replace(GOOD, prompt="word " * 4000)
    told = cluster.client.generate(params, namespace=namespace).provenance
    assert told.executed_steps == 4
    assert not told.fallbacks
