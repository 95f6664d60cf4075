"""Callers that generate without a pause, and look at every answer whether it can be right."""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Sequence

from tests.e2e.generations import OFF, picture

from skipstone_client import OrchestratorClient
from skipstone_shared.errors import SkipstoneError, Unavailable
from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import GenerateResult, HitTier

STEPS = 6
SEEDS = 3
_WISHES = (
    "a small red circle on a blue background",
    "seven sailors rowing a wooden boat at night",
    "two green squares above a yellow line",
    "a castle on a hill in thick fog",
)
_FORMS = ("{}", "there is {}", "a picture of {}")
_NAMESPACE_AGE = 400
"""Requests after which callers move on to a fresh namespace, where everything is a miss again."""

Wish = tuple[int, int, int]
"""Which prompt, in which form, with which seed."""


class SoakCallers:
    """Threads that generate; `failures` is what went wrong."""

    def __init__(self, clients: Sequence[OrchestratorClient], callers: int, namespace: str) -> None:
        """Draws the picture of every wish without the cache; calls nothing else yet.

        Args:
            clients: Each caller has one of them. Those after the first may lose their orchestrator,
                and then ask again, as callers are told to.
            callers: Threads.
            namespace: Beginning of the namespaces.
        """
        self.failures: list[str] = []
        self.tiers: Counter[HitTier] = Counter()
        self.fallbacks: Counter[str] = Counter()
        self.asked_again = 0
        self._clients = clients
        self._namespace = namespace
        self._lock = threading.Lock()
        self._count = 0
        self._stopped = threading.Event()
        self._wishes = [
            (wish, form, seed)
            for wish in range(len(_WISHES))
            for form in range(len(_FORMS))
            for seed in range(SEEDS)
        ]
        self._full = {
            wish: picture(clients[0].generate(_params(wish), OFF, namespace, timeout_s=120.0))
            for wish in self._wishes
        }
        self._resumed: defaultdict[Wish, set[str]] = defaultdict(set)
        self._exact: set[tuple[Wish, str]] = set()
        self._threads = [
            threading.Thread(target=self._call, args=(number,), name=f"caller {number}")
            for number in range(callers)
        ]

    @property
    def count(self) -> int:
        """Answers so far."""
        return self._count

    def start(self) -> None:
        """Begins."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Waits for the calls under way, and looks at the exact answers."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(120.0)
            assert not thread.is_alive(), "a caller hangs"
        # At the end, since who joined a run may be told before who began it.
        for wish, shown in self._exact:
            if shown != self._full[wish] and shown not in self._resumed[wish]:
                self.failures.append(f"{wish}: an exact answer that nobody else got")

    def _call(self, number: int) -> None:
        rng = random.Random(number)
        client = self._clients[number % len(self._clients)]
        may_lose_it = client is not self._clients[0]
        while not self._stopped.is_set():
            wish = rng.choice(self._wishes)
            try:
                result = client.generate(_params(wish), None, self._where(), timeout_s=120.0)
            except Unavailable as error:
                if not may_lose_it:
                    self._fail(f"{wish}: {error!r}")
                self.asked_again += 1
                self._stopped.wait(0.1)
            except SkipstoneError as error:
                self._fail(f"{wish}: {error!r}")
            else:
                self._look_at(wish, result)

    def _where(self) -> str:
        return f"{self._namespace}-{self._count // _NAMESPACE_AGE}"

    def _look_at(self, wish: Wish, result: GenerateResult) -> None:
        told, shown = result.provenance, picture(result)
        with self._lock:
            self._count += 1
            self.tiers[told.tier] += 1
            self.fallbacks.update(f"{f.stage}/{f.service}/{f.reason}" for f in told.fallbacks)
            if told.tier is HitTier.EXACT:
                self._exact.add((wish, shown))
            elif told.tier is HitTier.MISS and shown != self._full[wish]:
                self.failures.append(f"{wish}: a miss with another picture than a full run's")
            elif told.tier is HitTier.APPROXIMATE:
                self._resumed[wish].add(shown)
                if _WISHES[wish[0]] not in told.donor_prompt:
                    self.failures.append(f"{wish}: began from {told.donor_prompt!r}")

    def _fail(self, what: str) -> None:
        with self._lock:
            self.failures.append(what)


def _params(wish: Wish) -> GenerationParams:
    which, form, seed = wish
    prompt = _FORMS[form].format(_WISHES[which])
    return GenerationParams(prompt, num_inference_steps=STEPS, seed=seed)
