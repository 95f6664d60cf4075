"""Every dataclass of the services survives the way into a message and back."""

from __future__ import annotations

import numpy as np
import pytest

from skipstone.denoise.v1 import denoise_pb2
from skipstone.embedding.v1 import embedding_pb2
from skipstone.orchestrator.v1 import orchestrator_pb2
from skipstone_shared import (
    artifact_messages,
    denoise_run_messages,
    embedding_messages,
    explanation_messages,
    generation_messages,
    index_entry_messages,
    orchestration_answer_messages,
    orchestration_messages,
    stored_entry_messages,
)
from skipstone_shared.denoise_runs import (
    BlockCacheSteps,
    DenoiseCapabilities,
    DenoiseFinished,
    DenoiseRequest,
    DenoiseStarted,
    DenoiseStats,
    GenerationPlan,
    ResumeFrom,
    ResumeKind,
    SchedulerResume,
    SnapshotFailure,
    SnapshotPlan,
    SnapshotWritten,
)
from skipstone_shared.embeddings import (
    Embedding,
    EmbeddingCapabilities,
    EmbeddingInput,
    EncodedImage,
)
from skipstone_shared.errors import DataCorrupt, InvalidArgument
from skipstone_shared.generation import (
    Artifact,
    BlockCacheConfig,
    BlockCachePreset,
    BlockCacheReport,
    BranchReport,
    GenerationParams,
    StepProgress,
)
from skipstone_shared.index_entries import (
    IndexCapabilities,
    IndexEntry,
    IndexPage,
    IndexStats,
    LocatedEntry,
    PackedHit,
    SearchHit,
    VectorEntry,
)
from skipstone_shared.latents import (
    DType,
    GuidanceMode,
    LatentFingerprint,
    LatentRef,
    SnapshotMetadata,
    TensorPart,
    TensorSpec,
)
from skipstone_shared.orchestration import (
    BlockCacheCounts,
    BreakerState,
    CacheMode,
    CacheOptions,
    Candidate,
    DriftReport,
    DriftTier,
    Entry,
    EntryPage,
    Explanation,
    Fallback,
    GenerateAccepted,
    GenerateFinished,
    GenerateStarted,
    HitTier,
    LookupDecision,
    OrchestratorCapabilities,
    OrchestratorStats,
    Provenance,
    ReuseKind,
    ServiceState,
)
from skipstone_shared.stored_entries import (
    EvictionEvent,
    EvictionKind,
    StoreCapabilities,
    StoredEntry,
    StoredEntryPage,
    StoredSnapshot,
    StoreStats,
)

KEY = "0123456789abcdef0123456789abcdef"
SPEC = TensorSpec(DType.BFLOAT16, (2, 3))
REF = LatentRef("ns", "e-1", 4, "host:1", SPEC, 2**64 - 1, 12, 0.75, KEY)
METADATA = SnapshotMetadata(
    "e-1", 4, 10, 0.75, KEY, (TensorPart("latents", SPEC),), '{"order":1}', depth=1
)
FINGERPRINT = LatentFingerprint(
    model_id="m",
    pipeline_class="P",
    weights_hash="w",
    text_encoder_id="t",
    vae_id="v",
    latents=SPEC,
    height=64,
    width=32,
    scheduler_class="S",
    scheduler_config_hash="c",
    sigmas_hash="s",
    num_inference_steps=10,
    prediction_type="flow",
    guidance_mode=GuidanceMode.BATCHED,
    guidance_scales=(3.5,),
)
REPORT = BlockCacheReport(
    (BranchReport("transformer", "cond", (0, 2), (1,), {"warm-up": 2}),), 5, 9
)
FALLBACK = Fallback("lookup", "vector_index", "UNAVAILABLE", "it is down", 0.25)
PROVENANCE = Provenance(
    request_id="r",
    tier=HitTier.APPROXIMATE,
    reason="DONOR_RESUMED",
    executed_steps=6,
    num_inference_steps=10,
    seed=2**63 - 1,
    cache_mode=CacheMode.READ_ONLY,
    policy_version="1",
    skip_steps=4,
    donor_entry_id="e-1",
    donor_prompt="a red circle",
    similarity=0.0,
    rerank_score=0.5,
    start_sigma=0.75,
    reuse_kind=ReuseKind.RENOISE,
    block_cache=REPORT,
    stage_times_s={"lookup": 0.5, "total": 2.0},
    fallbacks=(FALLBACK,),
    saved_entry_id="e-2",
    compatibility_key=KEY,
    snapshot_failures={4: "QUOTA_EXCEEDED"},
    joined_request_id="r-0",
    donor_choices=3,
    reuse_tier="renoise 0.60",
    passed_over="TIER_CLOSED",
)
ENTRY = Entry("e-1", "a red circle", 7, KEY, (REF,), 1, 1_700_000_000.5)
INDEX_ENTRY = IndexEntry("e-1", "a red circle", 7, (REF,), 1, 1_700_000_000.5, "mini", {"a": "b"})
STORED = StoredEntry(
    "e-1", (StoredSnapshot(REF, METADATA),), 1_700_000_000.25, 1_700_000_001.5, 3, True
)
ARTIFACT = Artifact("image/png", bytes(range(256)) * 10_000, 64, 32)


def stored_cases():
    leased = StoredEntry("e-2", (), 1.0, 2.0, lease_expire_time=0.0, pinned=True)
    m = stored_entry_messages
    yield STORED, m.stored_entry_to_message, m.stored_entry_from_message
    yield leased, m.stored_entry_to_message, m.stored_entry_from_message
    yield StoredEntryPage((STORED,), "t"), m.stored_page_to_message, m.stored_page_from_message
    yield StoreStats(1, 2, 3, 4, 5, 6, 7), m.store_stats_to_message, m.store_stats_from_message
    capabilities = StoreCapabilities("lmdb", 10, "power", 20, 30, 0.5, 60.0)
    yield capabilities, m.store_capabilities_to_message, m.store_capabilities_from_message
    for kind in EvictionKind:
        event = EvictionEvent(9, kind, "ns", "e-1")
        yield event, m.eviction_to_message, m.eviction_from_message


def packed_to_message(hits):
    m = index_entry_messages
    packed = [PackedHit(m.pack_entry(hit.entry), hit.similarity) for hit in hits]
    return m.packed_hits_to_message(packed)


def index_cases():
    m = index_entry_messages
    yield INDEX_ENTRY, m.index_entry_to_message, m.index_entry_from_message
    yield IndexEntry("e-2"), m.index_entry_to_message, m.index_entry_from_message
    yield IndexPage((INDEX_ENTRY,), "t"), m.index_page_to_message, m.index_page_from_message
    yield [SearchHit(INDEX_ENTRY, -0.5)], packed_to_message, m.hits_from_message
    located = LocatedEntry(INDEX_ENTRY, KEY)
    yield located, m.located_entry_to_message, m.located_entry_from_message
    yield IndexStats(1, 2, 3, 4), m.index_stats_to_message, m.index_stats_from_message
    capabilities = IndexCapabilities("hnsw", 1, 2, 3, 4)
    yield capabilities, m.index_capabilities_to_message, m.index_capabilities_from_message


def embedding_cases():
    m = embedding_messages
    image = EncodedImage("image/png", b"data")
    yield EmbeddingInput(text="a"), m.input_to_message, m.input_from_message
    yield EmbeddingInput(frames=(image,)), m.input_to_message, m.input_from_message
    yield EmbeddingInput(frames=(image,) * 3), m.input_to_message, m.input_from_message
    capabilities = EmbeddingCapabilities("m", 384, ("text", "image"), 8, 256, "r", 16)
    yield (
        capabilities,
        m.embedding_capabilities_to_message,
        m.embedding_capabilities_from_message,
    )


def denoise_cases():
    m = denoise_run_messages
    params = GenerationParams("a", seed=0, num_inference_steps=10)
    full = DenoiseRequest(
        "ns",
        params,
        ResumeFrom(REF, 4, ResumeKind.TRAJECTORY),
        SnapshotPlan("e-2", (4, 8), False, "host:2", 30.0),
        KEY,
        wants_artifact=False,
    )
    yield full, m.request_to_message, m.request_from_message
    yield DenoiseRequest("", params), m.request_to_message, m.request_from_message
    plan = GenerationPlan(params, FINGERPRINT, KEY, (1.0, 0.5, 0.0), tuple(ResumeKind), "i", (1, 2))
    yield plan, m.plan_to_message, m.plan_from_message
    steps = BlockCacheSteps("transformer_2", 10, 11, {"warm-up": 10, "below threshold": 11})
    yield (
        DenoiseStats(1, 2, 3, 4, 5, 6, 7, 8, 9, (steps,)),
        m.denoise_stats_to_message,
        m.denoise_stats_from_message,
    )
    for scheduler_resume in SchedulerResume:
        capabilities = DenoiseCapabilities(
            instance_id="i",
            model_id="m",
            pipeline_class="P",
            scheduler_class="S",
            default_steps=1,
            max_steps=2,
            default_guidance_scale=3.5,
            default_height=4,
            default_width=5,
            size_multiple=6,
            min_size=7,
            max_size=8,
            max_concurrent_requests=9,
            resume_kinds=tuple(ResumeKind),
            scheduler_resume=scheduler_resume,
            default_num_frames=10,
            max_num_frames=11,
            block_cache_supported=True,
            adapters=("a",),
            latent_kv_target="host:1",
            frame_rate=23.976,
            frame_step=4,
        )
        yield (
            capabilities,
            m.denoise_capabilities_to_message,
            m.denoise_capabilities_from_message,
        )


def orchestration_cases():
    m, answers = orchestration_messages, orchestration_answer_messages
    yield CacheOptions(), m.cache_options_to_message, m.cache_options_from_message
    # Zero and false must stay apart from unset.
    zeros = CacheOptions(
        CacheMode.OFF, False, False, 0.0, 0, (1, 2), 0, True, ReuseKind.TRAJECTORY, 0, 0.0
    )
    yield zeros, m.cache_options_to_message, m.cache_options_from_message
    yield PROVENANCE, m.provenance_to_message, m.provenance_from_message
    miss = Provenance("r", HitTier.MISS, "NO_CANDIDATE", 10, 10, 0, CacheMode.READ_WRITE, "1")
    yield miss, m.provenance_to_message, m.provenance_from_message
    yield ENTRY, answers.entry_to_message, answers.entry_from_message
    page = EntryPage((ENTRY,), "t")
    yield page, answers.entry_page_to_message, answers.entry_page_from_message
    decision = LookupDecision(
        tier=HitTier.APPROXIMATE,
        reason="DONOR_RESUMED",
        policy_version="1",
        compatibility_key=KEY,
        entry_id="e-9",
        donor=REF,
        skip_steps=4,
        reuse_kind=ReuseKind.RENOISE,
        similarity=0.5,
        rerank_score=0.0,
        candidates=(
            Candidate(ENTRY, 0.5, 4, "TAKEN", 0.25, "it is near", "renoise 0.60"),
            Candidate(ENTRY, 0.4, 0, "LOW"),
        ),
        fallbacks=(FALLBACK,),
        key_steps=(4, 8),
    )
    yield decision, answers.decision_to_message, answers.decision_from_message
    explained = Explanation(
        params=GenerationParams("a red circle", num_inference_steps=10),
        decision=decision,
        explanation="skips 4 of 10 steps",
        num_inference_steps=10,
        cache_mode=CacheMode.READ_WRITE,
        start_sigma=0.0,
        stage_times_s={"lookup": 0.5},
        embedding_model_id="mini",
    )
    e = explanation_messages
    yield explained, e.explanation_to_message, e.explanation_from_message
    missed = LookupDecision(HitTier.MISS, "NO_CANDIDATE", "1", KEY, "e-9")
    yield missed, answers.decision_to_message, answers.decision_from_message
    stats = OrchestratorStats(
        {HitTier.EXACT: 1, HitTier.MISS: 2},
        3,
        4,
        5,
        6,
        7,
        {"lookup/UNAVAILABLE": 8},
        tuple(ServiceState("denoise", "host:1", state, "") for state in BreakerState),
        9,
        10,
        joined_requests=11,
        block_cache=BlockCacheCounts(1, 2, 3, 4),
        drift=DriftReport(
            0.5,
            (DriftTier("renoise 0.60", 9, True, 0.0, 0.0), DriftTier("renoise 0.90", 0, False)),
            {"measured": 9, "dropped": 1},
            90,
            2,
            3,
        ),
    )
    for told in (stats, OrchestratorStats()):
        yield told, answers.orchestrator_stats_to_message, answers.orchestrator_stats_from_message
    capabilities = OrchestratorCapabilities(
        "0.1", "1", CacheMode.WRITE_ONLY, 1, "m", 2, 3, 4, 24.0, 5, 6
    )
    yield (
        capabilities,
        answers.orchestrator_capabilities_to_message,
        answers.orchestrator_capabilities_from_message,
    )


ROUND_TRIPS = [
    *stored_cases(),
    *index_cases(),
    *embedding_cases(),
    *denoise_cases(),
    *orchestration_cases(),
]


@pytest.mark.parametrize(
    ("value", "to_message", "from_message"),
    ROUND_TRIPS,
    ids=[f"{i}-{type(case[0]).__name__}" for i, case in enumerate(ROUND_TRIPS)],
)
def test_a_value_survives_the_wire(value, to_message, from_message):
    message = to_message(value)
    arrived = type(message).FromString(message.SerializeToString())
    assert from_message(arrived) == value


def test_denoise_events_survive_the_wire_in_order():
    events = [
        DenoiseStarted(0, "LATENT_NOT_FOUND", "it was evicted", 0.5, 0.25),
        StepProgress(0, 10, 0.5, True),
        SnapshotWritten(REF),
        ARTIFACT,
        DenoiseFinished(
            10, 0, KEY, (REF,), (SnapshotFailure(4, "QUOTA_EXCEEDED", "full"),), REPORT, 1, 2, 3, 4
        ),
    ]
    messages = [m for e in events for m in denoise_run_messages.event_to_messages(e)]
    reader = denoise_run_messages.DenoiseEventReader()
    read = [event for m in messages if (event := reader.read(m)) is not None]
    reader.finish()
    assert read == events


def test_generate_events_survive_the_wire_in_order():
    events = [
        GenerateAccepted("r", GenerationParams("a", seed=1)),
        GenerateStarted(HitTier.EXACT, 10, 10),
        StepProgress(0, 10, 0.5, True),
        ARTIFACT,
        GenerateFinished(PROVENANCE),
    ]
    messages = [m for e in events for m in orchestration_messages.event_to_messages(e)]
    reader = orchestration_messages.GenerateEventReader()
    read = [event for m in messages if (event := reader.read(m)) is not None]
    reader.finish()
    assert read == events


def test_an_artifact_travels_in_pieces_that_fit_a_message():
    pieces = list(artifact_messages.artifact_chunks(ARTIFACT))
    assert b"".join(pieces) == ARTIFACT.data
    assert max(map(len, pieces)) <= 1 << 20


@pytest.mark.parametrize("damage", ["lost", "flipped", "extra", "headless"])
def test_a_broken_artifact_is_refused(damage):
    header, *data = denoise_run_messages.event_to_messages(ARTIFACT)
    if damage == "lost":
        data = data[:-1]
    elif damage == "flipped":
        changed = bytearray(data[0].artifact_data)
        changed[5] ^= 1
        data[0] = denoise_pb2.RunDenoiseResponse(artifact_data=bytes(changed))
    elif damage == "extra":
        data[-1].artifact_data += b"x"
    messages = data if damage == "headless" else [header, *data]
    with pytest.raises(DataCorrupt):
        read_all(messages)


def read_all(messages):
    reader = denoise_run_messages.DenoiseEventReader()
    for message in messages:
        reader.read(message)
    reader.finish()


def test_a_run_that_says_nothing_of_the_output_wants_the_picture():
    message = denoise_pb2.RunDenoiseRequest(namespace="ns")
    assert denoise_run_messages.request_from_message(message).wants_artifact


def test_a_kind_of_resume_that_is_not_set_is_refused_by_name():
    message = denoise_pb2.RunDenoiseRequest()
    message.resume.donor.entry_id = "e"
    with pytest.raises(InvalidArgument) as caught:
        denoise_run_messages.request_from_message(message)
    assert caught.value.field == "resume.kind"
    assert "trajectory" in str(caught.value)


def test_a_cache_mode_from_the_future_is_refused_by_name():
    message = orchestrator_pb2.CacheOptions(mode=99)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument) as caught:
        orchestration_messages.cache_options_from_message(message)
    assert caught.value.field == "cache.mode"
    assert "read_write" in (caught.value.allowed or "")


def test_an_embedding_or_its_error_survives_the_wire():
    vector = np.array([0.6, 0.8], np.float32)
    message = embedding_messages.result_to_message(Embedding(vector, 5, True))
    result = embedding_messages.result_from_message(message)
    assert isinstance(result, Embedding)
    np.testing.assert_array_equal(result.vector, vector)
    assert (result.num_tokens, result.truncated) == (5, True)

    message = embedding_messages.result_to_message(InvalidArgument("empty text", field="text"))
    error = embedding_messages.result_from_message(message)
    assert isinstance(error, InvalidArgument)
    assert error.field == "text"


def test_an_input_without_content_is_refused():
    with pytest.raises(InvalidArgument, match="content"):
        embedding_messages.input_from_message(embedding_pb2.EmbeddingInput())


def test_a_clip_of_too_many_frames_is_refused():
    clip = EmbeddingInput(frames=(EncodedImage("image/png", b""),) * 17)
    with pytest.raises(InvalidArgument, match="1 to 16"):
        embedding_messages.input_from_message(embedding_messages.input_to_message(clip))


def test_a_vector_entry_survives_the_wire():
    vector = np.array([1, -2, 3], np.float32)
    message = index_entry_messages.vector_entry_to_message(VectorEntry(INDEX_ENTRY, vector))
    arrived = index_entry_messages.vector_entry_from_message(message)
    assert arrived.entry == INDEX_ENTRY
    np.testing.assert_array_equal(arrived.vector, vector)


def test_a_value_stands_for_its_member_and_another_one_is_told_with_what_there_is() -> None:
    message = orchestration_messages.cache_options_to_message(CacheOptions(mode="off"))  # type: ignore[arg-type]
    assert orchestration_messages.cache_options_from_message(message).mode is CacheMode.OFF
    block_cache = generation_messages.block_cache_to_message(BlockCacheConfig(preset="fast"))  # type: ignore[arg-type]
    told = generation_messages.block_cache_from_message(block_cache)
    assert told.preset is BlockCachePreset.FAST
    wrong = [
        (lambda: CacheOptions(mode="of"), "cache.mode", "read_write, read_only, write_only, off"),  # type: ignore[arg-type]
        (lambda: CacheOptions(reuse_kind="re"), "cache.reuse_kind", "trajectory, renoise"),  # type: ignore[arg-type]
    ]
    for make, field, allowed in wrong:
        with pytest.raises(InvalidArgument) as caught:
            orchestration_messages.cache_options_to_message(make())
        assert (caught.value.field, caught.value.allowed) == (field, allowed)
    with pytest.raises(InvalidArgument, match=r"block_cache\.preset"):
        generation_messages.block_cache_to_message(BlockCacheConfig(preset="quick"))  # type: ignore[arg-type]
