"""Which rows of a file are warmed, and which one entry serves with another."""

from __future__ import annotations

from pathlib import Path

from skipstone_client.batch.rows import read_rows
from skipstone_client.batch.warming import without_repeated
from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import CacheOptions

PNG = b"\x89PNG\r\n\x1a\n"

ROWS = """{"prompt": "fox"}
{"prompt": "owl"}
{"prompt": "fox", "cache_mode": "read_only"}
{"prompt": "fox", "top_k": 3, "min_similarity": 0.9, "exact": false, "reproducible": true}
{"prompt": "fox", "video_format": "gif"}
{"prompt": "fox", "name": "hero", "seed": 5}
{"prompt": "fox", "seed": 6}
{"prompt": "fox", "steps": 9}
{"prompt": "fox", "key_steps": "4,6", "cache_mode": "off"}
{"prompt": "fox", "key_steps": [4, 6]}
{"prompt": "fox", "image": "a.png"}
{"prompt": "fox", "image": "same.png"}
{"prompt": "fox", "image": "b.png"}
"""


def test_rows_that_one_entry_serves_are_warmed_once_in_the_order_of_the_file(
    tmp_path: Path,
) -> None:
    for name, content in (("a", b"a"), ("same", b"a"), ("b", b"b")):
        (tmp_path / f"{name}.png").write_bytes(PNG + content)
    file = tmp_path / "prompts.jsonl"
    file.write_text(ROWS)
    rows = read_rows(file, GenerationParams("", num_inference_steps=8, seed=5), CacheOptions())
    assert [row.number for row in without_repeated(rows)] == [1, 2, 7, 8, 9, 11, 13]
