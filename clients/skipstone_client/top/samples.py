"""Looks at a deployment: at every orchestrator behind a name, and at the executors behind them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping

from skipstone_client.denoise import DenoiseClient
from skipstone_client.orchestrator import OrchestratorClient
from skipstone_client.top.addresses import Resolve, by_name
from skipstone_client.top.replicas import Replicas
from skipstone_shared.credentials import Credentials
from skipstone_shared.denoise_runs import DenoiseStats
from skipstone_shared.errors import SkipstoneError
from skipstone_shared.orchestration import OrchestratorStats

GONE_FOR_S = 60.0
"""How long a replica that the name does not stand for any more is told as gone."""

_EXECUTOR_TIMEOUT_S = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """One look at one replica.

    Attributes:
        at_s: When, on a clock that never goes back.
        stats: What it has counted since its start; None where it did not answer.
        error: Why there are no stats; empty where the replica is gone.
    """

    at_s: float
    stats: OrchestratorStats | None = None
    error: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Look:
    """One look at all replicas.

    Attributes:
        replicas: Samples by address, those of replicas that are gone last.
        runs: What each executor that could be asked tells of its runs.
    """

    replicas: Mapping[str, Sample]
    runs: tuple[DenoiseStats, ...] = ()


class Sampler:
    """Looks again and again."""

    def __init__(
        self,
        target: str,
        namespace: str,
        timeout_s: float,
        credentials: Credentials | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        resolve: Resolve = by_name,
    ) -> None:
        """Connects to nothing yet.

        Args:
            target: gRPC target of the orchestrators.
            namespace: Whose entries and bytes are told.
            timeout_s: Deadline of their answers.
            credentials: Who asks.
            clock: Seconds on a clock that never goes back.
            resolve: How targets are looked up.
        """
        self._namespace = namespace
        self._credentials = credentials
        self._clock = clock
        self._resolve = resolve
        self._orchestrators = Replicas(
            target,
            lambda address, who: OrchestratorClient(address, timeout_s=timeout_s, credentials=who),
            credentials,
            resolve,
        )
        self._executors: Replicas[DenoiseClient] | None = None
        self._seen: set[str] = set()
        self._gone: dict[str, float] = {}

    def look(self) -> Look:
        """Looks once. Takes the deadline and a second at most; raises nothing of Skipstone's."""
        answers = self._orchestrators.ask(lambda client: client.get_stats(self._namespace))
        now = self._clock()
        replicas = {
            address: Sample(now, error=str(answer))
            if isinstance(answer, SkipstoneError)
            else Sample(now, answer)
            for address, answer in answers.items()
        }
        self._note_gone(set(answers), now)
        gone = {address: Sample(now) for address in sorted(self._gone)}
        answered = next((s.stats for s in replicas.values() if s.stats is not None), None)
        return Look({**replicas, **gone}, () if answered is None else self._runs(answered))

    def close(self) -> None:
        """Closes the connections."""
        self._orchestrators.close()
        if self._executors is not None:
            self._executors.close()

    def _note_gone(self, listed: set[str], now: float) -> None:
        # The target stands for itself until its name is known, and is no replica then.
        self._seen |= listed - {self._orchestrators.target}
        for address in self._seen - listed:
            if now - self._gone.setdefault(address, now) > GONE_FOR_S:
                self._seen.remove(address)
        self._gone = {a: at for a, at in self._gone.items() if a in self._seen - listed}

    def _runs(self, stats: OrchestratorStats) -> tuple[DenoiseStats, ...]:
        target = next((s.target for s in stats.services if s.service == "denoise"), "")
        if self._executors is not None and target != self._executors.target:
            self._executors.close()
            self._executors = None
        if not target:
            return ()
        if self._executors is None:
            self._executors = Replicas(
                target,
                lambda address, who: DenoiseClient(
                    address, timeout_s=_EXECUTOR_TIMEOUT_S, credentials=who
                ),
                self._credentials,
                self._resolve,
            )
        # Their name may mean something only inside of a cluster.
        answers = self._executors.ask(DenoiseClient.get_stats).values()
        return tuple(answer for answer in answers if not isinstance(answer, SkipstoneError))
