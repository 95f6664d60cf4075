"""The settings that choose an engine: what they refuse, and that no password is shown."""

from __future__ import annotations

import sys

import pytest

from skipstone_shared.config import ConfigError, resolve_settings
from skipstone_shared.config_text import describe_settings
from skipstone_shared.errors import FailedPrecondition, Unavailable
from skipstone_vector_index.config import VectorIndexSettings
from skipstone_vector_index.engines import open_engine
from skipstone_vector_index.graph_vectors import GraphOptions

pytestmark = pytest.mark.filterwarnings("ignore:Api key is used:UserWarning")

URLS = {
    "pgvector": "postgresql://skipstone:secret-word@127.0.0.1:1/db",
    "milvus": "http://skipstone:secret-word@127.0.0.1:1",
    "qdrant": "http://:secret-word@127.0.0.1:1",
}


def settings_of(**values: str) -> VectorIndexSettings:
    environ = {f"SKIPSTONE_VECTOR_INDEX_{name}".upper(): text for name, text in values.items()}
    return resolve_settings(VectorIndexSettings, [], environ)[0]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"engine": "pgvector"}, "needs url"),
        ({"url": URLS["pgvector"]}, "set engine too"),
        ({"engine": "milvus", "url": URLS["milvus"], "vector_dtype": "float16"}, "vector_dtype"),
        ({"engine": "milvus", "url": URLS["milvus"], "collection": "a; DROP"}, "collection"),
        ({"engine": "faiss", "url": URLS["milvus"]}, "hnswlib"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(values: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_of(**values)
    assert said.lower() in str(caught.value).lower()
    assert "secret-word" not in str(caught.value)


@pytest.mark.parametrize("engine", URLS)
def test_an_engine_that_is_away_ends_the_start_and_the_password_is_never_shown(
    engine: str,
) -> None:
    settings = settings_of(engine=engine, url=URLS[engine])
    with pytest.raises(Unavailable) as caught:
        open_engine(settings, GraphOptions())
    shown = f"{caught.value} {settings!r} {describe_settings(settings, {})}"
    assert "secret-word" not in shown


@pytest.mark.parametrize(
    ("engine", "library"),
    [("pgvector", "psycopg"), ("milvus", "pymilvus"), ("qdrant", "qdrant_client")],
)
def test_a_library_that_is_missing_is_named_with_its_extra(
    engine: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(sys.modules):
        if name.startswith(f"skipstone_vector_index.{engine}") or name == library:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(FailedPrecondition, match=rf"skipstone\[vector-index-{engine}\]"):
        open_engine(settings_of(engine=engine, url=URLS[engine]), GraphOptions())
