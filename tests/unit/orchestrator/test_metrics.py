"""What Prometheus is told."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from tests.unit.orchestrator.site import Site, in_loop, running_site

from skipstone_shared.errors import Unavailable

PROMPT = "a red circle on a blue background"


def scraped(site: Site) -> CollectorRegistry:
    registry = CollectorRegistry()
    for collector in site.orchestrator.collectors():
        registry.register(collector)
    return registry


@in_loop
async def test_tiers_steps_saves_fallbacks_and_breakers_are_counted() -> None:
    async with running_site() as site:
        await site.generate(PROMPT, seed=1)
        await site.generate(PROMPT, seed=1)
        site.embedder.break_all(Unavailable("gone"), "embed_text", "get_capabilities")
        await site.generate(PROMPT, seed=2)
        registry = scraped(site)

        def value(name: str, **labels: str) -> float | None:
            return registry.get_sample_value(name, labels)

        assert value("skipstone_requests_total", tier="exact", reason="EXACT_HIT") == 1
        assert value("skipstone_requests_total", tier="miss", reason="NO_CANDIDATE") == 1
        assert value("skipstone_requests_total", tier="miss", reason="LOOKUP_FAILED") == 1
        assert value("skipstone_steps_total", kind="executed") == 20
        assert value("skipstone_steps_total", kind="skipped") == 10
        assert value("skipstone_saves_total", outcome="saved") == 1
        assert value("skipstone_saves_total", outcome="dropped") == 1
        fallback = {"stage": "build_query", "service": "embedding", "reason": "UNAVAILABLE"}
        assert value("skipstone_fallbacks_total", **fallback) == 1
        assert value("skipstone_stage_seconds_count", stage="total") == 3
        assert value("skipstone_breaker_state", service="embedding", state="open") == 1
        assert value("skipstone_breaker_state", service="latent_kv", state="closed") == 1
