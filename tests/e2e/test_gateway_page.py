"""The gateway's page in a real browser, by keyboard: generate, see the donor, tend the cache."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright
from tests.e2e.generations import LOOSELY_REWORDED, PROMPT, REWORDED, STEPS
from tests.e2e.processes import Cluster, running_gateway

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
WAIT_MS = 60_000
COUNT_ADDRESSES = """
  window.live = new Set();
  const [create, revoke] = [URL.createObjectURL, URL.revokeObjectURL];
  URL.createObjectURL = (blob) => { const made = create(blob); live.add(made); return made; };
  URL.revokeObjectURL = (address) => { live.delete(address); revoke(address); };
"""
SHOWN_AND_LIVE = """() => {
  const shown = [...document.querySelectorAll("img, video")].map((made) => made.src);
  return [shown.sort(), [...live].sort()];
}"""

needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="NO BROWSER: install it with apt-get chromium"
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), needs_chromium]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Chromium's own sandbox cannot be made by root, which containers often are.
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def address(_shared_cluster: Cluster) -> Iterator[str]:
    with running_gateway(_shared_cluster.targets) as found:
        yield found


@pytest.fixture
def page(browser: Browser, address: str, cluster: Cluster, namespace: str) -> Iterator[Page]:
    """The page, in a namespace of its own; errors of its scripts fail the test."""
    context = browser.new_context(viewport={"width": 1100, "height": 900})
    opened = context.new_page()
    opened.set_default_timeout(WAIT_MS)
    expect.set_options(timeout=WAIT_MS)
    trouble: list[str] = []
    opened.on("pageerror", lambda error: trouble.append(str(error)))
    opened.add_init_script(COUNT_ADDRESSES)
    opened.goto(address)
    opened.get_by_label("Namespace").fill(namespace)
    opened.get_by_role("spinbutton", name="Steps").fill(str(STEPS))
    yield opened
    context.close()
    assert not trouble


def generate(page: Page, prompt: str, seed: int) -> None:
    """Types a prompt and sends it, by keyboard alone."""
    page.get_by_label("Seed").fill(str(seed))
    page.get_by_label("Prompt").fill(prompt)
    page.get_by_label("Prompt").press("Control+Enter")
    expect(page.locator("#state")).to_contain_text("Done")
    expect(page.locator("#result-caption")).to_contain_text(prompt)


def test_a_prompt_is_drawn_step_by_step_and_a_second_one_shows_its_donor(page: Page) -> None:
    generate(page, PROMPT, 1)
    expect(page.locator("#steps li.done, #steps li.reused")).to_have_count(STEPS)
    expect(page.locator("#result-picture img")).to_have_attribute("alt", PROMPT)
    expect(page.locator("#provenance")).to_contain_text("miss")
    expect(page.locator("#entries li")).to_have_count(1)
    generate(page, REWORDED, 2)
    expect(page.locator("#provenance")).to_contain_text("approximate")
    assert page.locator("#steps li.skipped").count() > 0
    expect(page.locator("#donor-caption")).to_contain_text(PROMPT)
    expect(page.locator("#donor-picture img")).to_be_visible()
    expect(page.locator("#tiers-legend")).to_contain_text("approximate 1")


def test_several_pictures_are_chosen_from_and_each_has_its_own_provenance(page: Page) -> None:
    generate(page, PROMPT, 1)
    page.get_by_label("Pictures").fill("3")
    generate(page, PROMPT, 1)
    expect(page.locator("#state")).to_contain_text(f"of {3 * STEPS} steps were run")
    buttons = page.locator("#results button")
    expect(buttons).to_have_count(3)
    expect(page.locator("#results button[aria-pressed=true]")).to_have_count(1)
    for place, seed in enumerate((1, 2, 3)):
        buttons.nth(place).press("Enter")
        expect(buttons.nth(place)).to_have_attribute("aria-pressed", "true")
        expect(page.locator("#provenance dt:text-is('seed') + dd")).to_have_text(str(seed))
    expect(page.locator("#entries li")).to_have_count(3)
    page.get_by_label("Pictures").fill("1")
    generate(page, REWORDED, 4)
    expect(page.locator("#results")).to_be_hidden()


def test_the_memory_of_pictures_that_are_not_shown_any_more_is_freed(page: Page) -> None:
    fetched: list[str] = []
    page.on("request", lambda sent: fetched.append(sent.url) if "/picture?" in sent.url else None)
    for prompt, seed in ((PROMPT, 1), (REWORDED, 2), (PROMPT, 1)):
        generate(page, prompt, seed)
    cards = page.locator("#entries li img")
    expect(cards).to_have_count(2)
    page.get_by_label("Search").press_sequentially("no such words")
    expect(page.locator("#entries li")).to_have_count(0)
    page.get_by_label("Search").fill("")
    expect(cards).to_have_count(2)
    # Of two cards and of the donors of two results, whatever was typed.
    assert len(fetched) == 4
    expect(page.locator("#donor-picture img")).to_be_visible()
    shown, live = page.evaluate(SHOWN_AND_LIVE)
    assert shown == live
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete").first.press("Enter")
    expect(cards).to_have_count(1)
    shown, live = page.evaluate(SHOWN_AND_LIVE)
    assert shown == live


def test_explain_shows_the_candidates_without_generating(page: Page) -> None:
    generate(page, PROMPT, 1)
    page.get_by_label("Prompt").fill(LOOSELY_REWORDED)
    page.get_by_role("button", name="Explain").press("Enter")
    rows = page.locator("#explanation tbody tr")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text(PROMPT)


def test_the_cache_is_searched_pinned_and_emptied_by_keyboard(
    page: Page, cluster: Cluster, namespace: str
) -> None:
    generate(page, PROMPT, 1)
    card = page.locator("#entries li")
    expect(card).to_have_count(1)
    expect(card.locator("img")).to_be_visible()
    page.get_by_label("Search").fill("no such words")
    expect(card).to_have_count(0)
    expect(page.locator("#count")).to_have_text("0 of 1 entries")
    page.get_by_label("Search").fill("circle RED")
    expect(card).to_have_count(1)
    page.get_by_role("button", name="Pin").press("Enter")
    expect(page.get_by_role("button", name="Unpin")).to_be_visible()
    (entry,) = cluster.store.list_entries(namespace).entries
    assert entry.pinned
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete").press("Enter")
    expect(card).to_have_count(0)
    assert cluster.store.list_entries(namespace).entries == ()


def test_what_is_shown_of_one_namespace_is_tended_there_whatever_the_form_says_by_now(
    page: Page, cluster: Cluster, namespace: str
) -> None:
    """Ids are equal for the same request in both: the wrong one would go without a word."""
    other = f"{namespace}-other"
    for space in (other, namespace):
        page.get_by_label("Namespace").fill(space)
        generate(page, PROMPT, 1)
    expect(page.locator("#entries li")).to_have_count(1)
    page.get_by_label("Namespace").fill(other)
    page.get_by_role("button", name="Pin").press("Enter")
    expect(page.get_by_role("button", name="Unpin")).to_be_visible()
    pins = [[e.pinned for e in cluster.store.list_entries(s).entries] for s in (namespace, other)]
    assert pins == [[True], [False]]
    page.get_by_label("Namespace").fill(namespace)
    page.get_by_role("button", name="Reload").press("Enter")
    expect(page.get_by_role("button", name="Unpin")).to_be_visible()
    page.get_by_label("Namespace").fill(other)
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete").press("Enter")
    expect(page.locator("#entries li")).to_have_count(0)
    assert cluster.store.list_entries(namespace).entries == ()
    assert len(cluster.store.list_entries(other).entries) == 1


def test_a_search_is_of_the_whole_cache_and_the_charts_show_drift_and_steps(
    page: Page, address: str
) -> None:
    entries = [
        {
            "entry_id": f"e{number}",
            "prompt": "a rare bird" if number == 2_750 else "a red circle",
            "seed": number,
            "snapshots": [{"step_index": 12}],
            "create_time": 0,
            "has_picture": False,
            "pinned": False,
        }
        for number in range(2_800)
    ]

    def list_page(route: Route) -> None:
        query = parse_qs(urlsplit(route.request.url).query)
        first = int(query.get("page_token", ["0"])[0] or 0)
        last = min(first + int(query["page_size"][0]), len(entries))
        token = str(last) if last < len(entries) else ""
        route.fulfill(json={"entries": entries[first:last], "next_page_token": token})

    def stats(route: Route) -> None:
        told = route.fetch().json()
        tiers = [
            {"tier": "renoise 0.80", "audits": 9, "closed": False, "mean": 0.31, "bound": 0.42},
            {"tier": "renoise 0.60", "audits": 8, "closed": True, "mean": 0.79, "bound": 0.93},
        ]
        route.fulfill(json={**told, "drift": {"max_drift": 0.8, "tiers": tiers}})

    page.route("**/api/entries?**", list_page)
    page.route("**/api/stats?**", stats)
    page.get_by_role("button", name="Reload").press("Enter")
    expect(page.locator("#count")).to_have_text("the first 100 entries")
    page.get_by_label("Search").fill("rare")
    expect(page.locator("#entries li")).to_have_count(1)
    expect(page.locator("#count")).to_have_text("1 of 2800 entries")
    expect(page.locator("#drift tbody tr")).to_have_count(2)
    expect(page.locator("#drift-chart rect")).to_have_count(2)
    expect(page.locator("#drift-chart")).to_have_attribute("aria-label", re.compile("bound 0.930"))
    expect(page.locator("#saved-legend")).to_contain_text("skipped")


def test_an_error_is_told_and_a_prompt_is_never_taken_for_markup(page: Page) -> None:
    page.get_by_role("spinbutton", name="Steps").fill("100000")
    page.get_by_label("Prompt").fill(PROMPT)
    page.get_by_role("button", name="Generate").press("Enter")
    expect(page.locator("#trouble")).to_contain_text("num_inference_steps")
    page.get_by_role("spinbutton", name="Steps").fill(str(STEPS))
    generate(page, "<img src=x onerror=alert(1)> a red circle", 3)
    expect(page.locator("#result-caption")).to_contain_text("<img src=x")
    assert page.locator("#result-caption img").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(page: Page, scheme: str, tmp_path: Path) -> None:
    """The contrast of text and ground is at least 4.5 to 1, as WCAG 2.2 (1.4.3) asks."""
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.screenshot(path=tmp_path / f"{scheme}.png", full_page=True)
    contrasts = page.evaluate(
        """() => {
          const style = getComputedStyle(document.documentElement);
          const light = (name) => {
            const hex = style.getPropertyValue(name).trim().slice(1);
            const parts = [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255)
              .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
            return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
          };
          const contrast = (a, b) => {
            const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
            return (x + 0.05) / (y + 0.05);
          };
          const words = ["--ink", "--quiet", "--accent", "--bad", "--exact", "--approximate"];
          const onGround = words.flatMap((w) => ["--ground", "--card"].map((g) => contrast(w, g)));
          return [...onGround, contrast("--on-accent", "--accent")];
        }"""
    )
    assert min(contrasts) >= 4.5
