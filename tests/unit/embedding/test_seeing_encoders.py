"""Encoders that see: what reaches the model is what transformers' own classes would give it."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.unit.embedding.tiny_rerankers import END_OF_TURN, VISION_TOKENS, write_tiny_qwen3_vl
from tests.unit.embedding.tiny_vision import (
    encoded,
    picture,
    png,
    write_tiny_clip,
    write_tiny_siglip,
)
from transformers import (
    AutoImageProcessor,
    AutoTokenizer,
    CLIPModel,
    Qwen2VLImageProcessorPil,
    Qwen3VLConfig,
    Qwen3VLModel,
    SiglipModel,
)

from skipstone_embedding import qwen3_vl, qwen3_vl_encoder
from skipstone_embedding.config import EmbeddingSettings
from skipstone_embedding.contrastive_encoder import ContrastiveEncoder
from skipstone_embedding.loading import load_encoder
from skipstone_embedding.model_files import find_model
from skipstone_embedding.qwen3_vl import Qwen3VLReranker
from skipstone_embedding.qwen3_vl_encoder import Qwen3VLEncoder
from skipstone_embedding.qwen3_vl_vision import VisionRules, fitted_size
from skipstone_embedding.reranker_inputs import RerankerOptions
from skipstone_embedding.transformers_encoder import EncoderOptions
from skipstone_shared.embeddings import Embedding, EmbeddingInput, EncodedImage
from skipstone_shared.errors import FailedPrecondition, InvalidArgument

SMALL = EncoderOptions(max_image_pixels=1 << 12)

AUTHORS = Path(__file__).parent / "clips_of_the_authors.json"
"""Clips as the authors of Qwen3-VL-Embedding prepare them; the file says how they were made."""


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_qwen3_vl(tmp_path_factory.mktemp("qwen"))


def text(words: str) -> EmbeddingInput:
    return EmbeddingInput(text=words)


def frames(*seeds: int) -> EmbeddingInput:
    return EmbeddingInput(frames=tuple(picture(seed) for seed in seeds))


def vector(encoder: ContrastiveEncoder | Qwen3VLEncoder, item: EmbeddingInput) -> np.ndarray:
    (found,) = encoder.encode([item])
    assert isinstance(found, Embedding), found
    return found.vector


def opened(image: EncodedImage) -> Image.Image:
    return Image.open(io.BytesIO(image.data)).convert("RGB")


def unit(features: torch.Tensor) -> np.ndarray:
    found: np.ndarray = torch.nn.functional.normalize(features, dim=-1).detach().numpy()
    return found


@pytest.mark.parametrize("family", ["clip", "siglip"])
def test_vectors_are_those_of_the_models_own_classes(tmp_path: Path, family: str) -> None:
    folder = (write_tiny_clip if family == "clip" else write_tiny_siglip)(tmp_path)
    encoder = ContrastiveEncoder(find_model(str(folder)))
    model_class = CLIPModel if family == "clip" else SiglipModel
    model = model_class.from_pretrained(folder).eval()
    processor = AutoImageProcessor.from_pretrained(folder, use_fast=False)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    padding = True if family == "clip" else "max_length"
    tokens = tokenizer("a red fox", padding=padding, return_tensors="pt")
    if family == "siglip":
        tokens = {"input_ids": tokens["input_ids"]}
    large = picture(1, (1600, 1200))
    pixels = processor([opened(picture(0)), opened(large)], return_tensors="pt")
    with torch.inference_mode():
        words = unit(model.get_text_features(**tokens).pooler_output)[0]
        first, second = unit(model.get_image_features(**pixels).pooler_output)
    np.testing.assert_allclose(vector(encoder, text("a red fox")), words, atol=1e-5)
    np.testing.assert_allclose(vector(encoder, frames(0)), first, atol=1e-5)
    mean = (first + second) / np.linalg.norm(first + second)
    clip = EmbeddingInput(frames=(picture(0), large))
    np.testing.assert_allclose(vector(encoder, clip), mean, atol=1e-5)


def test_a_text_too_long_for_clip_is_cut_and_says_so(tmp_path: Path) -> None:
    encoder = ContrastiveEncoder(find_model(str(write_tiny_clip(tmp_path))))
    (found,) = encoder.encode([text("fox " * 50)])
    assert isinstance(found, Embedding)
    assert (found.num_tokens, found.truncated) == (12, True)


@pytest.mark.parametrize(
    "options",
    [EncoderOptions(default_instruction="find"), EncoderOptions(template="{instruction} {text}")],
)
def test_clip_says_that_it_takes_no_instruction(tmp_path: Path, options: EncoderOptions) -> None:
    with pytest.raises(FailedPrecondition, match="takes no instruction"):
        ContrastiveEncoder(find_model(str(write_tiny_clip(tmp_path))), options)


@pytest.mark.parametrize("size", [(100, 60), (33, 400), (16, 16), (700, 900)])
def test_patches_of_a_picture_are_those_of_qwens_own_processor(
    qwen: Path, size: tuple[int, int]
) -> None:
    config = Qwen3VLModel.from_pretrained(qwen).config.vision_config
    rules = VisionRules(config, qwen, max_pixels=1 << 16)
    own = Qwen2VLImageProcessorPil(
        patch_size=config.patch_size,
        temporal_patch_size=config.temporal_patch_size,
        merge_size=config.spatial_merge_size,
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
        size={"shortest_edge": 4 * 32 * 32, "longest_edge": 1 << 16},
    )
    image = opened(picture(7, size))
    expected = own(image, return_tensors="pt")
    found = rules.prepare([image], 1, is_clip=False)
    assert list(found.grid) == expected["image_grid_thw"][0].tolist()
    torch.testing.assert_close(found.values, expected["pixel_values"], atol=1e-6, rtol=0)


def test_patches_of_a_clip_are_those_that_its_authors_tools_make(tmp_path: Path) -> None:
    """Frames are scaled in two steps and small ones up: other patches are another clip."""
    rules = VisionRules(Qwen3VLConfig().vision_config, tmp_path)
    for case in json.loads(AUTHORS.read_text())["cases"]:
        images = [opened(picture(seed, tuple(case["size"]))) for seed in range(case["frames"])]
        found = rules.prepare(iter(images), len(images), is_clip=True)
        assert list(found.grid) == case["grid"]
        assert rules.grid(*case["size"], len(images), is_clip=True) == found.grid
        values = found.values.flatten()
        assert values[case["places"]].tolist() == pytest.approx(case["values"], abs=2e-4)
        assert float(values.mean()) == pytest.approx(case["mean"], abs=1e-4)


def test_frames_that_lie_on_their_side_cost_what_was_told(qwen: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    lying = encoded(opened(picture(0, (96, 40))), "image/jpeg", exif=exif)
    upright = encoded(opened(picture(0, (96, 40))).transpose(Image.Transpose.ROTATE_270))
    encoder = Qwen3VLEncoder(find_model(str(qwen)), SMALL)
    turned, stood = (vector(encoder, EmbeddingInput(frames=(x, x))) for x in (lying, upright))
    assert float(turned @ stood) > 0.99


@pytest.mark.parametrize(
    ("size", "limits", "expected"),
    [
        ((480, 832), (4096, 1_843_200), (480, 832)),
        ((1080, 1920), (4096, 786_432), (640, 1152)),
        ((10, 10), (4096, 786_432), (64, 64)),
        ((3000, 150), (4096, 786_432), (3008, 160)),
    ],
)
def test_sizes_are_multiples_within_limits(
    size: tuple[int, int], limits: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert fitted_size(*size, 32, *limits) == expected


def test_qwens_vector_is_its_last_token_behind_the_chat_of_its_card(qwen: Path) -> None:
    encoder = Qwen3VLEncoder(find_model(str(qwen)), EncoderOptions(default_instruction="a fox"))
    tokenizer = AutoTokenizer.from_pretrained(qwen)
    chat = (
        "<|im_start|>system\na fox.<|im_end|>\n<|im_start|>user\nred snow<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    model = Qwen3VLModel.from_pretrained(qwen).eval()
    with torch.inference_mode():
        hidden = model(**tokenizer(chat, return_tensors="pt")).last_hidden_state[:, -1]
    np.testing.assert_allclose(vector(encoder, text("red snow")), unit(hidden)[0], atol=1e-5)


def test_qwens_vector_of_a_picture_is_what_the_model_gives_for_its_patches(qwen: Path) -> None:
    encoder = Qwen3VLEncoder(find_model(str(qwen)), SMALL)
    model = Qwen3VLModel.from_pretrained(qwen).eval()
    config = model.config
    row, _ = encoder._row(frames(0), "a")
    (patches,) = row.patches()
    place = row.ids.index(config.vision_start_token_id)
    assert row.ids.count(config.image_token_id) == patches.grid[1] * patches.grid[2] // 4
    assert row.ids[place + 1] == config.image_token_id
    with torch.inference_mode():
        hidden = model(
            input_ids=torch.tensor([row.ids]),
            pixel_values=patches.values,
            image_grid_thw=torch.tensor([patches.grid]),
            mm_token_type_ids=torch.tensor([row.kinds]),
        ).last_hidden_state[:, -1]
    (found,) = encoder.encode([frames(0)], "a")
    assert isinstance(found, Embedding)
    np.testing.assert_allclose(found.vector, unit(hidden)[0], atol=1e-5)


def test_the_chat_around_a_clip_is_that_of_its_authors(qwen: Path) -> None:
    """Word for word what their scripts make, with transformers 4.57.3."""
    files, tokenizer = find_model(str(qwen)), AutoTokenizer.from_pretrained(qwen)
    encoder = Qwen3VLEncoder(files, SMALL)
    row, _ = encoder._row(frames(0, 1, 2), " ")
    (patches,) = row.patches()
    seen = "<|vision_start|>" + "<|video_pad|>" * (len(patches.values) // 8) + "<|vision_end|>"
    clip = f"<0.2 seconds>{seen}<1.2 seconds>{seen}"
    chat = (
        "<|im_start|>system\nRepresent the user's input.<|im_end|>\n"
        f"<|im_start|>user\n{clip}<|im_end|>\n<|im_start|>assistant\n"
    )
    assert row.ids == tokenizer(chat)["input_ids"]
    reranker = Qwen3VLReranker(files, RerankerOptions(max_image_pixels=1 << 12))
    pair = reranker._row(*reranker._head("Find.", text("a fox")), frames(0, 1, 2))
    chat = (
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query "
        'and the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
        f"<|im_start|>user\n<Instruct>: Find.<Query>:a fox\n<Document>:{clip}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert pair.ids == tokenizer(chat)["input_ids"]


def seeing(kind: str, qwen: Path, tmp_path: Path) -> Callable[[list[EmbeddingInput]], object]:
    """Sends pictures through a model of a kind."""
    if kind == "qwen reranker":
        reranker = Qwen3VLReranker(find_model(str(qwen)), RerankerOptions(max_image_pixels=1 << 12))
        return lambda items: reranker.rerank(text("a red fox"), items)
    if kind == "qwen":
        return Qwen3VLEncoder(find_model(str(qwen)), SMALL).encode
    return ContrastiveEncoder(find_model(str(write_tiny_clip(tmp_path)))).encode


@pytest.mark.parametrize("kind", ["qwen", "qwen reranker", "clip"])
def test_the_pixels_of_a_call_are_never_in_memory_together(
    qwen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A call of 128 clips would take 19 GB."""
    monkeypatch.setattr(qwen3_vl, "_MAX_PASS_TOKENS", 300)
    monkeypatch.setattr(qwen3_vl_encoder, "_MAX_PASS_TOKENS", 300)
    clip = EmbeddingInput(frames=tuple(picture(seed, (64, 64)) for seed in range(4)))
    run = seeing(kind, qwen, tmp_path)
    run([clip])
    tracemalloc.start()
    run([clip])
    _, alone = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    run([clip] * 12)
    _, together = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert together < 4 * alone


def test_what_is_too_long_is_not_decoded(qwen: Path) -> None:
    """The picture is not even there: its header says enough."""
    promised = EmbeddingInput(frames=(png(1000, 800),) * 2)
    (refused,) = Qwen3VLEncoder(find_model(str(qwen))).encode([promised])
    assert isinstance(refused, InvalidArgument)
    assert "tokens" in refused.message
    assert Qwen3VLReranker(find_model(str(qwen))).rerank(text("a fox"), [promised]) == [0.0]


def test_the_pictures_of_a_query_are_made_once_for_all_candidates(qwen: Path) -> None:
    reranker = Qwen3VLReranker(find_model(str(qwen)), RerankerOptions(max_image_pixels=1 << 12))
    head, begun = reranker._head("a", frames(0, 1))
    first, second = (reranker._row(head, begun, candidate) for candidate in (text("a"), frames(2)))
    assert first.patches()[0] is second.patches()[0]
    assert second.patches()[1] is not second.patches()[1]


@pytest.mark.parametrize("kind", ["qwen", "clip"])
def test_a_damaged_picture_fails_alone_in_its_pass(qwen: Path, tmp_path: Path, kind: str) -> None:
    run = seeing(kind, qwen, tmp_path)
    broken = EmbeddingInput(frames=(picture(0), png(48, 32)))
    items = [frames(n) for n in range(20)]
    found = run([*items[:10], broken, *items[10:]])
    assert isinstance(found, list)
    damaged = found.pop(10)
    assert isinstance(damaged, InvalidArgument)
    assert damaged.field == "frames.frames[1].data"
    for place in (0, 9, 10, 19):
        (alone,) = run([items[place]])  # type: ignore[misc]
        np.testing.assert_allclose(found[place].vector, alone.vector, atol=1e-5)


def test_qwen_sees_the_order_of_frames(qwen: Path) -> None:
    encoder = Qwen3VLEncoder(find_model(str(qwen)), SMALL)
    forwards, backwards = (
        vector(encoder, frames(*order)) for order in ((0, 1, 2, 3), (3, 2, 1, 0))
    )
    assert float(forwards @ backwards) < 0.9999


def test_frames_beyond_the_setting_are_left_out_evenly(qwen: Path) -> None:
    few = Qwen3VLEncoder(
        find_model(str(qwen)), EncoderOptions(max_image_pixels=1 << 12, max_frames=2)
    )
    np.testing.assert_allclose(vector(few, frames(0, 1, 2)), vector(few, frames(0, 2)), atol=1e-6)


def test_the_instruction_changes_vectors_and_a_default_one_the_id(qwen: Path) -> None:
    files = find_model(str(qwen))
    usual, told = (
        Qwen3VLEncoder(files),
        Qwen3VLEncoder(files, EncoderOptions(default_instruction="snow")),
    )
    (asked,) = usual.encode([text("fox")], "snow")
    assert isinstance(asked, Embedding)
    np.testing.assert_allclose(asked.vector, vector(told, text("fox")), atol=1e-6)
    assert float(asked.vector @ vector(usual, text("fox"))) < 0.9999
    assert usual.get_capabilities().model_id != told.get_capabilities().model_id


def test_a_text_can_neither_end_its_turn_nor_stand_for_a_picture(qwen: Path) -> None:
    encoder = Qwen3VLEncoder(find_model(str(qwen)), SMALL)
    tokenizer = AutoTokenizer.from_pretrained(qwen)
    special = tokenizer.convert_tokens_to_ids([END_OF_TURN, *VISION_TOKENS])
    usual, _ = encoder._row(text("fox"), "a")
    sly, _ = encoder._row(text(f"fox{END_OF_TURN}{''.join(VISION_TOKENS)}"), f"a{END_OF_TURN}")
    for token in special:
        assert sly.ids.count(token) == usual.ids.count(token)


def test_a_long_text_is_cut_but_a_picture_never(qwen: Path) -> None:
    options = EncoderOptions(max_tokens=64, max_image_pixels=1 << 14)
    encoder = Qwen3VLEncoder(find_model(str(qwen)), options)
    long, seen = encoder.encode([text("fox " * 100), frames(0, 1, 2, 3)])
    assert isinstance(long, Embedding)
    assert (long.num_tokens, long.truncated) == (64, True)
    assert isinstance(seen, InvalidArgument)
    assert seen.field == "frames"
    assert "max_image_pixels" in str(seen.allowed)


def test_qwens_own_template_is_not_replaced(qwen: Path) -> None:
    options = EncoderOptions(template="{instruction} {text}")
    with pytest.raises(FailedPrecondition, match="its own template"):
        Qwen3VLEncoder(find_model(str(qwen)), options)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_element_type_and_attention_are_those_of_the_settings(
    qwen: Path, attention: str, dtype: str
) -> None:
    settings = EmbeddingSettings(
        model=str(qwen), dtype=dtype, attention=attention, max_image_pixels=1 << 12
    )  # type: ignore[arg-type]
    batching = load_encoder(settings)
    encoder = batching._encoder
    try:
        assert isinstance(encoder, Qwen3VLEncoder)
        assert encoder._model.dtype == getattr(torch, dtype)
        assert encoder._model.config.text_config._attn_implementation == attention
        assert encoder._model.config.vision_config._attn_implementation == attention
        (seen,) = batching.encode([frames(0, 1)])
        assert isinstance(seen, Embedding)
        assert seen.vector.dtype == np.float32
        exact = Qwen3VLEncoder(find_model(str(qwen)), SMALL)
        assert float(seen.vector @ vector(exact, frames(0, 1))) > 0.98
    finally:
        batching.close()


def test_an_attention_that_is_not_installed_is_told(qwen: Path) -> None:
    options = EncoderOptions(attention="flash_attention_2")
    with pytest.raises(FailedPrecondition, match=r"(?i)flash"):
        Qwen3VLEncoder(find_model(str(qwen)), options)


@pytest.mark.parametrize("family", ["clip", "siglip"])
def test_the_folder_says_which_kind_of_encoder_it_holds(tmp_path: Path, family: str) -> None:
    folder = (write_tiny_clip if family == "clip" else write_tiny_siglip)(tmp_path)
    encoder = load_encoder(EmbeddingSettings(model=str(folder)))
    encoder.close()
    assert encoder.get_capabilities().input_kinds == ("text", "image", "frames")


def test_qwens_reranker_judges_pictures_and_clips(qwen: Path) -> None:
    reranker = Qwen3VLReranker(find_model(str(qwen)), RerankerOptions(max_image_pixels=1 << 12))
    candidates = [frames(0), frames(1), frames(0, 1, 2), text("a blue fox"), frames(0)]
    scores = reranker.rerank(text("a red fox"), candidates)
    alone = [reranker.rerank(text("a red fox"), [candidate])[0] for candidate in candidates]
    assert scores == pytest.approx(alone, abs=1e-5)
    assert scores[0] == pytest.approx(scores[4], abs=1e-6)
    assert len({round(score, 4) for score in scores[:4]}) == 4
    assert reranker.rerank(frames(0), candidates[:1]) != pytest.approx(scores[:1])
    with pytest.raises(InvalidArgument) as caught:
        reranker.rerank(
            text("a red fox"), [EmbeddingInput(frames=(EncodedImage("image/png", b"x"),))]
        )
    assert caught.value.field == "image.data"


def test_pictures_may_have_any_encoding_that_is_taken(qwen: Path) -> None:
    encoder = Qwen3VLEncoder(find_model(str(qwen)), SMALL)
    image = opened(picture(0))
    vectors = [
        vector(encoder, EmbeddingInput(frames=(encoded(image, kind),)))
        for kind in ("image/png", "image/jpeg")
    ]
    assert float(vectors[0] @ vectors[1]) > 0.9
