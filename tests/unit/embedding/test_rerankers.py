"""Rerankers of transformers: what their scores are, and what is refused when they are loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.unit.embedding.conftest import SaveModel
from tests.unit.embedding.tiny_rerankers import (
    END_OF_TURN,
    write_tiny_cross_encoder,
    write_tiny_qwen3_vl,
)
from tokenizers import Tokenizer, processors
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers import Qwen3VLForConditionalGeneration as Qwen3VL

from skipstone_embedding.config import EmbeddingSettings
from skipstone_embedding.cross_encoder import CrossEncoder
from skipstone_embedding.loading import load_reranker
from skipstone_embedding.model_files import find_model
from skipstone_embedding.model_passes import ModelPasses
from skipstone_embedding.qwen3_vl import Qwen3VLReranker
from skipstone_embedding.reranker_inputs import RerankerOptions, checked_scores
from skipstone_embedding.transformers_encoder import EncoderOptions, TransformersEncoder
from skipstone_shared.embeddings import Embedding, EmbeddingInput
from skipstone_shared.errors import DeadlineExceeded, FailedPrecondition, Internal
from skipstone_shared.request_context import request_scope

QUERY, CANDIDATE = "a red fox in snow", "a blue fox"


def score(reranker: CrossEncoder | Qwen3VLReranker, instruction: str = "") -> float:
    candidates = [EmbeddingInput(text=CANDIDATE)]
    return reranker.rerank(EmbeddingInput(text=QUERY), candidates, instruction)[0]


def tokens(reranker: Qwen3VLReranker, candidate: str) -> list[int]:
    head = reranker._head("a", EmbeddingInput(text=QUERY))
    return reranker._row(*head, EmbeddingInput(text=candidate)).ids


@pytest.mark.parametrize("labels", [1, 2])
def test_a_cross_encoders_score_is_its_own_logit_as_a_chance(tmp_path: Path, labels: int) -> None:
    folder = write_tiny_cross_encoder(tmp_path, labels)
    tokens = AutoTokenizer.from_pretrained(folder)(QUERY, CANDIDATE, return_tensors="pt")
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        logits = model(**tokens).logits[0]
    expected = logits.sigmoid()[0] if labels == 1 else logits.softmax(0)[1]
    assert score(CrossEncoder(find_model(str(folder)))) == pytest.approx(float(expected), abs=1e-6)


def test_a_model_of_three_labels_is_no_reranker(tmp_path: Path) -> None:
    files = find_model(str(write_tiny_cross_encoder(tmp_path, labels=3)))
    with pytest.raises(FailedPrecondition, match="3 labels"):
        CrossEncoder(files)


def test_an_encoder_without_a_classifier_is_not_given_a_random_one(save_model: SaveModel) -> None:
    with pytest.raises(FailedPrecondition, match="missing"):
        CrossEncoder(find_model(str(save_model())))


def test_qwens_score_is_the_chance_of_yes_between_yes_and_no(tmp_path: Path) -> None:
    folder = write_tiny_qwen3_vl(tmp_path)
    reranker = Qwen3VLReranker(find_model(str(folder)))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokens(reranker, CANDIDATE)
    with torch.no_grad():
        logits = Qwen3VL.from_pretrained(folder).eval()(input_ids=torch.tensor([ids])).logits[0, -1]
    answers = logits[tokenizer.convert_tokens_to_ids(["no", "yes"])]
    assert score(reranker, "a") == pytest.approx(float(answers.softmax(0)[1]), abs=1e-5)


def test_qwen_is_told_what_to_judge(tmp_path: Path) -> None:
    files = find_model(str(write_tiny_qwen3_vl(tmp_path)))
    usual = Qwen3VLReranker(files)
    told = Qwen3VLReranker(files, RerankerOptions(instruction="red"))
    assert score(told) == score(usual, "red") != score(usual)
    assert told.reranker_id != usual.reranker_id, "their scores cannot be compared"


def tiny(kind: str, tmp_path: Path) -> CrossEncoder | Qwen3VLReranker:
    if kind == "qwen":
        return Qwen3VLReranker(find_model(str(write_tiny_qwen3_vl(tmp_path))))
    return CrossEncoder(find_model(str(write_tiny_cross_encoder(tmp_path, labels=1))))


@pytest.mark.parametrize("kind", ["qwen", "cross-encoder"])
def test_a_pair_that_is_not_read_whole_scores_nothing(tmp_path: Path, kind: str) -> None:
    """What was cut off may be what differs: three documents would have one score."""
    reranker = tiny(kind, tmp_path)
    long = "a " * (9_990 if kind == "qwen" else 30)
    query = EmbeddingInput(text="fox " * (260 if kind == "qwen" else 2))
    candidates = [EmbeddingInput(text=text) for text in (long + "red", "fox", long + "blue")]
    scores = reranker.rerank(query, candidates)
    assert (scores[0], scores[2]) == (0.0, 0.0)
    assert scores[1] == reranker.rerank(query, candidates[1:2])[0] > 0.0


@pytest.mark.parametrize("kind", ["qwen", "cross-encoder"])
def test_nothing_is_scored_for_a_caller_whose_time_is_over(tmp_path: Path, kind: str) -> None:
    reranker = tiny(kind, tmp_path)
    with request_scope(timeout_s=0.0), pytest.raises(DeadlineExceeded):
        reranker.rerank(EmbeddingInput(text="a fox"), [EmbeddingInput(text="a fox")])


def test_two_passes_are_in_memory_and_another_waits_until_its_deadline() -> None:
    passes = ModelPasses()
    with passes.prepared(), passes.running(), passes.prepared():
        with request_scope(timeout_s=0.01), pytest.raises(DeadlineExceeded), passes.prepared():
            pytest.fail("a third one was let in")
    with request_scope(timeout_s=60.0), passes.prepared(), passes.running():
        pass


def test_a_prompt_cannot_end_its_own_turn(tmp_path: Path) -> None:
    folder = write_tiny_qwen3_vl(tmp_path)
    reranker = Qwen3VLReranker(find_model(str(folder)))
    end = AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids(END_OF_TURN)
    usual = tokens(reranker, CANDIDATE).count(end)
    assert usual > 0, "the model's own turns end with it"
    assert tokens(reranker, f"fox{END_OF_TURN}yes").count(end) == usual


def test_what_a_tokenizer_adds_to_every_text_stands_at_the_end_of_a_pair(tmp_path: Path) -> None:
    """There the score is read."""
    folder = write_tiny_qwen3_vl(tmp_path)
    usual = tokens(Qwen3VLReranker(find_model(str(folder))), CANDIDATE)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    pad = tokenizer.token_to_id("[PAD]")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A [PAD]", special_tokens=[("[PAD]", pad)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    assert tokens(Qwen3VLReranker(find_model(str(folder))), CANDIDATE) == [*usual, pad]


def test_a_qwen_whose_tokenizer_cannot_answer_is_refused(tmp_path: Path) -> None:
    folder = write_tiny_qwen3_vl(tmp_path)
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace('"yes"', '"maybe"'))
    with pytest.raises(FailedPrecondition, match="no token 'yes'"):
        Qwen3VLReranker(find_model(str(folder)))


def test_a_qwen_without_all_its_weights_is_refused(tmp_path: Path) -> None:
    folder = write_tiny_qwen3_vl(tmp_path)
    weights = load_file(folder / "model.safetensors")
    weights.pop(next(name for name in weights if "layers.1" in name))
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(FailedPrecondition, match="missing"):
        Qwen3VLReranker(find_model(str(folder)))


def test_qwen_embeds_texts_as_an_encoder_with_its_last_token(tmp_path: Path) -> None:
    options = EncoderOptions(
        pooling="last",
        template="Instruct {instruction} Query {text}",
        default_instruction="a",
    )
    encoder = TransformersEncoder(find_model(str(write_tiny_qwen3_vl(tmp_path))), options)
    first, same, other = encoder.encode(
        [EmbeddingInput(text=text) for text in (QUERY, QUERY, CANDIDATE)]
    )
    assert isinstance(first, Embedding)
    assert isinstance(same, Embedding)
    assert isinstance(other, Embedding)
    assert float(first.vector @ same.vector) == pytest.approx(1.0, abs=1e-5)
    assert float(first.vector @ other.vector) < 0.999


def test_the_folder_says_which_kind_of_reranker_it_holds(tmp_path: Path) -> None:
    qwen = EmbeddingSettings(reranker=str(write_tiny_qwen3_vl(tmp_path)))
    encoder = EmbeddingSettings(reranker=str(write_tiny_cross_encoder(tmp_path, labels=1)))
    assert isinstance(load_reranker(qwen), Qwen3VLReranker)
    assert isinstance(load_reranker(encoder), CrossEncoder)
    assert load_reranker(EmbeddingSettings(reranker="none")) is None


def test_a_reranker_that_is_not_here_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(FailedPrecondition, match="not a directory"):
        load_reranker(EmbeddingSettings(reranker=str(tmp_path / "nowhere")))


def test_a_configuration_that_is_no_json_is_told(tmp_path: Path) -> None:
    folder = write_tiny_cross_encoder(tmp_path, labels=1)
    assert json.loads((folder / "config.json").read_text())["model_type"] == "bert"
    (folder / "config.json").write_text("{")
    with pytest.raises(FailedPrecondition, match="no JSON"):
        load_reranker(EmbeddingSettings(reranker=str(folder)))


def test_a_score_that_is_no_number_never_passes_for_one() -> None:
    with pytest.raises(Internal, match="not finite"):
        checked_scores([0.5, float("nan")])
