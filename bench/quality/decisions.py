"""What the product decides on every request of a trace, asked of its real services.

Nothing is denoised: the bench is an engine outside Skipstone that looks up, stores latents of the
right form and saves. Only full runs donate, so no decision depends on what a picture shows.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from quality.pictures import GUIDANCE_SCALE, MODEL
from quality.trace import CaptionRequest
from skipstone_client import OrchestratorClient
from skipstone_client.denoise import DenoiseClient
from skipstone_client.latent_kv import LatentKVClient
from skipstone_client.local_cluster import LocalCluster
from skipstone_shared.denoise_runs import GenerationPlan
from skipstone_shared.generation import GenerationParams
from skipstone_shared.latents import LATENTS_PART, SnapshotMetadata, TensorPart
from skipstone_shared.orchestration import HitTier, LookupDecision

PATIENCE_S: Final = 60.0
# A slow machine must not turn into misses: the deadlines of a lookup change no decision.
_FLAGS: Final = [
    word
    for name in ("embedding", "index", "latent-kv", "gate", "lookup")
    for word in (f"--{name}-timeout-s", f"{PATIENCE_S:g}")
]


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """What became of one request.

    Attributes:
        tier: HitTier, by its value.
        reason: Of the product.
        skip_steps: Steps not run; all for an exact hit.
        kind: ReuseKind of an approximate hit, by its value; empty otherwise.
        donor: Index of the request whose latent is used; None on a miss.
        similarity: Of the donor or the best candidate; None where none was looked at.
        score: The gate's; None where no gate ran.
    """

    tier: str
    reason: str
    skip_steps: int = 0
    kind: str = ""
    donor: int | None = None
    similarity: float | None = None
    score: float | None = None


class Services:
    """The services of the product with their default settings, behind their own clients."""

    def __init__(self, cluster: LocalCluster, stack: ExitStack) -> None:
        """Connects; see `running_services`."""
        targets = cluster.targets
        self.orchestrator = stack.enter_context(OrchestratorClient(targets["orchestrator"]))
        self.denoise = stack.enter_context(DenoiseClient(targets["denoise"]))
        self._store = stack.enter_context(LatentKVClient(targets["latent_kv"]))
        self._namespaces = itertools.count()

    @property
    def policy_version(self) -> str:
        """Name of the policy that decides."""
        return self.orchestrator.get_capabilities().policy_version

    def decide(self, requests: Sequence[CaptionRequest], steps: int) -> list[Decision]:
        """Sends requests one after the other through an empty cache.

        Args:
            requests: In their order.
            steps: N of all of them.
        """
        plan = self.denoise.plan(
            GenerationParams("any", num_inference_steps=steps, guidance_scale=GUIDANCE_SCALE)
        )
        namespace = f"trace-{next(self._namespaces)}"
        saved_by: dict[str, int] = {}
        decisions = []
        for request in requests:
            found = self.orchestrator.lookup(
                request.caption,
                plan.fingerprint,
                plan.sigmas,
                request.seed,
                namespace=namespace,
                timeout_s=PATIENCE_S,
            )
            if found.fallbacks:
                raise RuntimeError(f"a service failed during a lookup: {found.fallbacks}")
            decisions.append(_decision(found, saved_by))
            if found.tier is not HitTier.EXACT:
                self._save(namespace, request, plan, found)
                saved_by[found.entry_id] = request.index
        return decisions

    def _save(
        self, namespace: str, request: CaptionRequest, plan: GenerationPlan, found: LookupDecision
    ) -> None:
        """Stores what a run of the executor would: the later snapshots of a resumed run apart."""
        steps = plan.fingerprint.num_inference_steps
        resumed = found.tier is HitTier.APPROXIMATE
        spec = plan.fingerprint.latents
        latents = {LATENTS_PART: np.zeros(spec.shape, spec.dtype.numpy)}
        for step in (*(() if resumed else found.key_steps), steps):
            metadata = SnapshotMetadata(
                entry_id=found.entry_id,
                step_index=step,
                num_inference_steps=steps,
                sigma=plan.sigmas[step],
                compatibility_key=found.compatibility_key,
                parts=(TensorPart(LATENTS_PART, spec),),
                depth=int(resumed),
            )
            self._store.write_arrays(namespace, metadata, latents, timeout_s=PATIENCE_S)
        self.orchestrator.save(
            found.entry_id,
            request.caption,
            request.seed,
            plan.fingerprint,
            depth=int(resumed),
            namespace=namespace,
            timeout_s=PATIENCE_S,
        )


def _decision(found: LookupDecision, saved_by: dict[str, int]) -> Decision:
    kind = found.reuse_kind.value if found.reuse_kind and found.tier is not HitTier.EXACT else ""
    return Decision(
        found.tier.value,
        found.reason,
        found.skip_steps,
        kind,
        None if found.donor is None else saved_by[found.donor.entry_id],
        found.similarity,
        found.rerank_score,
    )


@contextmanager
def running_services(threads: int, policy: Sequence[str] = ()) -> Iterator[Services]:
    """All services on free ports over an empty data directory.

    Args:
        threads: CPU threads of an operation of the executor.
        policy: Flags of the orchestrator.
    """
    orchestrator = [*_FLAGS, *policy]
    told = {"orchestrator": orchestrator, "denoise": ["--num-threads", str(threads)]}
    with ExitStack() as stack:
        data = stack.enter_context(tempfile.TemporaryDirectory())
        cluster = LocalCluster(data, model=str(MODEL), flags=told, free_ports=True)
        yield Services(stack.enter_context(cluster), stack)


def decided_once(
    name: str,
    requests: Sequence[CaptionRequest],
    bases: Sequence[int],
    folder: Path,
    *,
    keep: bool,
    threads: int,
    policy: Sequence[str] = (),
) -> dict[int, list[Decision]]:
    """The product's decisions on requests, by N of their runs; kept in a folder.

    Args:
        name: Of the requests, for the files.
        requests: In their order.
        bases: Numbers of steps.
        folder: Where the files are.
        keep: Take those of an earlier run where all are there.
        threads: CPU threads of an operation of the executor.
        policy: Flags of the orchestrator.
    """
    paths = {steps: folder / f"decisions-{name}-{steps}.jsonl" for steps in bases}
    if not (keep and all(path.exists() for path in paths.values())):
        with running_services(threads, policy) as services:
            for steps, path in paths.items():
                rows = [json.dumps(dataclasses.asdict(d)) for d in services.decide(requests, steps)]
                path.write_text("".join(f"{row}\n" for row in rows))
    return {
        steps: [Decision(**json.loads(line)) for line in path.read_text().splitlines()]
        for steps, path in paths.items()
    }
