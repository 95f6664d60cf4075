"""What requests find in a cache: measured shares of the tiers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from capacity.fleet import Load
from capacity.models import Model


@dataclass(frozen=True, slots=True)
class Traffic:
    """Shares of requests.

    Attributes:
        told: For tables.
        exact: Share of the requests that are exact repeats, 0 to 1.
        approximate: Share that skip steps, 0 to 1.
        skipped: Share of its steps that such a request skips, 0 to 1.
    """

    told: str
    exact: float = 0.0
    approximate: float = 0.0
    skipped: float = 0.0

    def load(self, model: Model, rate: float) -> Load:
        """What this traffic is for executors of a model; a resumed run decodes all the same."""
        denoising = 1.0 - model.decode_s / model.run_s
        return Load(
            rate,
            model.run_s,
            self.exact,
            model.decode_s,
            self.approximate,
            self.skipped * denoising,
        )

    def shares(self) -> dict[str, float]:
        """Share of the requests by how they are served."""
        rest = 1.0 - self.exact - self.approximate
        return {"saved": rest, "exact": self.exact, "approximate": self.approximate}


NO_CACHE: Final = Traffic("no cache")

OLD_SEEDS: Final = Traffic("repeats with their old seeds", 0.152, 0.024, 0.44)
"""Of the trace of 1,000 captions at 50 steps: `make bench-trace`, then `make bench-quality
ARGS=--draw`, the table "Who decides" of docs/benchmarks.md; all 24 resumed requests skipped 22
steps."""

NEW_SEEDS: Final = Traffic("a new seed for every repeat", 0.0, 0.022, 0.44)
"""Of the same trace and table: 22 of 1,000 requests resumed, each from step 22."""
