"""What the demo sends and what it shows, without any service."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import pytest
from demo.contact_sheet import TILE, contact_sheet
from demo.outcome import Judgement, Outcome, Totals, highlights
from demo.prompts import DemoPrompt, Kind, demo_prompts
from demo.report import report_html
from demo.sending import judge
from PIL import Image

from skipstone_bundled.captions import read_caption
from skipstone_bundled.drawing import draw_scene
from skipstone_shared.orchestration import CacheMode, Fallback, HitTier, Provenance

PICTURE = Image.new("RGB", (64, 64), "red")


def provenance(tier: HitTier, executed: int) -> Provenance:
    return Provenance(
        request_id="r",
        tier=tier,
        reason="DONOR_RESUMED",
        executed_steps=executed,
        num_inference_steps=30,
        skip_steps=30 - executed,
        seed=1,
        cache_mode=CacheMode.READ_WRITE,
        policy_version="p",
        donor_prompt="a <b>donor</b>",
        fallbacks=(Fallback("lookup", "latent_kv", "UNAVAILABLE"),),
    )


def outcome(prompt: DemoPrompt, tier: HitTier, executed: int, wrong: tuple[str, ...]) -> Outcome:
    full = None if tier is HitTier.MISS else PICTURE
    seen = Judgement(wrong, placed=2 - len(wrong), objects=2)
    best = None if full is None else Judgement((), placed=2, objects=2)
    return Outcome(
        1, prompt, provenance(tier, executed), 0.5, PICTURE, seen, full=full, full_judgement=best
    )


@pytest.fixture
def outcomes() -> list[Outcome]:
    prompts = demo_prompts()
    return [
        outcome(prompts[0], HitTier.MISS, 30, ()),
        outcome(prompts[9], HitTier.EXACT, 0, ()),
        outcome(prompts[12], HitTier.APPROXIMATE, 15, ("shape of the ring",)),
        outcome(prompts[13], HitTier.APPROXIMATE, 15, ()),
    ]


def test_there_are_24_prompts_of_all_kinds_and_each_says_its_scene() -> None:
    prompts = demo_prompts()
    assert len(prompts) == 24
    assert set(Counter(prompt.kind for prompt in prompts)) == set(Kind)
    for prompt in prompts:
        stated = read_caption(prompt.text)
        assert stated.background == prompt.scene.background
        assert set(stated.objects) == set(prompt.scene.objects)


def test_only_repeats_ask_for_an_earlier_request() -> None:
    requests = [(prompt.text, prompt.seed) for prompt in demo_prompts()]
    repeated = {request for request, count in Counter(requests).items() if count > 1}
    repeats = {(p.text, p.seed) for p in demo_prompts() if p.kind is Kind.REPEAT}
    assert repeated == repeats


def test_a_drawn_scene_has_nothing_wrong_and_another_scene_has() -> None:
    scene, other = (prompt.scene for prompt in demo_prompts()[:2])
    assert judge(draw_scene(scene, Random(0)), scene) == Judgement((), placed=2, objects=2)
    assert judge(draw_scene(other, Random(0)), scene).wrong


def test_totals_count_steps_and_placed_objects(outcomes: list[Outcome]) -> None:
    totals = Totals.of(outcomes)
    assert (totals.executed_steps, totals.full_steps) == (60, 120)
    assert totals.saved_share == 0.5
    assert (totals.hits, totals.objects, totals.placed, totals.full_placed) == (3, 6, 5, 6)


def test_highlights_are_the_first_hit_of_each_kind(outcomes: list[Outcome]) -> None:
    assert highlights(outcomes) == outcomes[1:3]


def test_the_page_shows_every_prompt_and_escapes_what_users_wrote(
    outcomes: list[Outcome],
) -> None:
    page = report_html(outcomes)
    assert all(outcome.prompt.text in page for outcome in outcomes)
    assert "a &lt;b&gt;donor&lt;/b&gt;" in page
    assert "shape of the ring" in page
    assert "http://" not in page
    assert "https://" not in page


def test_the_sheet_has_a_row_for_every_prompt(outcomes: list[Outcome]) -> None:
    one, four = contact_sheet(outcomes[:1]), contact_sheet(outcomes)
    assert four.height - one.height >= 3 * TILE


def test_a_result_line_holds_what_a_script_needs(outcomes: list[Outcome]) -> None:
    line = json.loads(json.dumps(outcomes[2].as_json()))
    needed = [
        "prompt",
        "tier",
        "reason",
        "skip_steps",
        "executed_steps",
        "seconds",
        "donor",
        "similarity",
    ]
    assert set(needed) <= set(line)
    assert line["tier"] == "approximate"
    assert line["fallbacks"] == ["lookup/latent_kv: UNAVAILABLE"]
