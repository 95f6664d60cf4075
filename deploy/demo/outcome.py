"""What one prompt of the demo came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from PIL import Image

from demo.prompts import DemoPrompt, Kind
from skipstone_shared.orchestration import HitTier, Provenance


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the checker says of one picture.

    Attributes:
        wrong: What is wrong, in words; empty when the picture shows what its prompt says.
        placed: Objects with the right colour at the right place.
        objects: Objects the prompt asks for.
    """

    wrong: tuple[str, ...]
    placed: int
    objects: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """One prompt, its picture, and for a hit what the donor and the full run look like.

    Attributes:
        number: Place in the demo, from 1.
        prompt: What was sent.
        provenance: Where the picture comes from.
        seconds: Wall time the caller waited.
        picture: The picture that was served.
        judgement: What the checker says of it.
        full: For a hit, the picture of the same request without the cache.
        full_seconds: Wall time of that.
        full_judgement: What the checker says of the full run.
        donor: For a hit, the picture of the donor, when the demo made it.
    """

    number: int
    prompt: DemoPrompt
    provenance: Provenance
    seconds: float
    picture: Image.Image
    judgement: Judgement
    full: Image.Image | None = None
    full_seconds: float = 0.0
    full_judgement: Judgement | None = None
    donor: Image.Image | None = None

    @property
    def is_hit(self) -> bool:
        """Whether anything was reused."""
        return self.provenance.tier is not HitTier.MISS

    @property
    def file_name(self) -> str:
        """Name of its picture's file."""
        return f"{self.number:02d}_{self.prompt.kind.value.replace(' ', '_')}.png"

    def as_json(self) -> dict[str, Any]:
        """The line of results.jsonl."""
        provenance = self.provenance
        return {
            "number": self.number,
            "kind": self.prompt.kind.value,
            "prompt": self.prompt.text,
            "seed": self.prompt.seed,
            "tier": provenance.tier.value,
            "reason": provenance.reason,
            "skip_steps": provenance.skip_steps,
            "executed_steps": provenance.executed_steps,
            "num_inference_steps": provenance.num_inference_steps,
            "seconds": round(self.seconds, 3),
            "donor": provenance.donor_entry_id,
            "donor_prompt": provenance.donor_prompt,
            "similarity": provenance.similarity,
            "reuse_kind": provenance.reuse_kind.value if provenance.reuse_kind else None,
            "wrong": list(self.judgement.wrong),
            "full_run_seconds": round(self.full_seconds, 3) if self.full is not None else None,
            "full_run_wrong": list(self.full_judgement.wrong) if self.full_judgement else None,
            "fallbacks": [f"{f.stage}/{f.service}: {f.reason}" for f in provenance.fallbacks],
            "picture": self.file_name,
        }


@dataclass(frozen=True, slots=True)
class Totals:
    """What the demo saved as a whole, against running every prompt in full.

    Attributes:
        requests: Prompts sent.
        hits: Prompts for which something was reused.
        executed_steps: Denoising steps run.
        full_steps: Steps that full runs would have taken.
        objects: Objects that the hits' prompts ask for.
        placed: Those with the right colour at the right place in what was served.
        full_placed: The same in full runs of these prompts: what the model itself can do.
    """

    requests: int
    hits: int
    executed_steps: int
    full_steps: int
    objects: int
    placed: int
    full_placed: int

    @classmethod
    def of(cls, outcomes: list[Outcome]) -> Totals:
        """Adds up the outcomes."""
        hits = [outcome for outcome in outcomes if outcome.is_hit]
        return cls(
            requests=len(outcomes),
            hits=len(hits),
            executed_steps=sum(o.provenance.executed_steps for o in outcomes),
            full_steps=sum(o.provenance.num_inference_steps for o in outcomes),
            objects=sum(o.judgement.objects for o in hits),
            placed=sum(o.judgement.placed for o in hits),
            full_placed=sum(o.full_judgement.placed for o in hits if o.full_judgement),
        )

    @property
    def saved_share(self) -> float:
        """Share of the denoising steps that were not run, 0 to 1."""
        return 1 - self.executed_steps / self.full_steps


def highlights(outcomes: list[Outcome]) -> list[Outcome]:
    """The first hit of every kind of prompt."""
    first: dict[Kind, Outcome] = {}
    for outcome in outcomes:
        if outcome.is_hit:
            first.setdefault(outcome.prompt.kind, outcome)
    return list(first.values())
