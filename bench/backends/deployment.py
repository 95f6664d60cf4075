"""All services over one store and one engine, with an executor whose model takes no time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import psutil

import instant_executor
from backends import indexes, latent_stores
from server_process import ServerProcess, python, wait_until
from skipstone_client import OrchestratorClient
from skipstone_shared.errors import Unavailable
from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import CacheMode, CacheOptions

CACHE_OFF = CacheOptions(mode=CacheMode.OFF)
_PATIENT_S = "30"
_TIMEOUTS = ("embedding", "index", "latent-kv", "gate", "lookup")
_ORCHESTRATOR = (
    # A busy machine gives longer times then, not fallbacks.
    *(part for name in _TIMEOUTS for part in (f"--{name}-timeout-s", _PATIENT_S)),
    # Audits would run beside what is measured.
    *("--drift-audit-share", "0"),
)
_EVERY = ("--port", "0", "--log-format", "json")


def start_embedding(directory: Path, stack: ExitStack) -> ServerProcess:
    """Starts an embedding service, which deployments may share."""
    flags = (*_EVERY, "--num-threads", "1")
    service = ServerProcess(
        python("-m", "skipstone_embedding", *flags), directory / "embedding.log"
    )
    stack.callback(service.end)
    return service


class Deployment:
    """Running services.

    Attributes:
        client: Of the orchestrator.
        services: Process ids by service.
        servers: Process ids of what store and engine need beside them.
    """

    def __init__(
        self,
        store: str,
        engine: str,
        embedding: ServerProcess,
        directory: Path,
        stack: ExitStack,
        *,
        artifact_bytes: int = 100_000,
        orchestrator_flags: Sequence[str] = (),
    ) -> None:
        """Starts all but the embedding; returns once a request is served.

        Args:
            store: Which of the stores of latent_kv.
            engine: Which of the engines of vector_index.
            embedding: A running embedding service.
            directory: For data and logs; created.
            stack: Ends them.
            artifact_bytes: Bytes of the picture or video of a run.
            orchestrator_flags: More settings.
        """
        directory.mkdir(parents=True)
        self._directory, self._stack = directory, stack
        self._targets = {"embedding": embedding.address()}
        self.services = {"embedding": embedding.pid}
        kv_flags, kv_pids = stack.enter_context(
            latent_stores.BACKENDS[store].running(directory / "store")
        )
        index_flags, engine_pid, _ = stack.enter_context(
            indexes.BACKENDS[engine](directory / "index")
        )
        self._start("latent_kv", python("-m", "skipstone_latent_kv", *kv_flags))
        own = ("--data-dir", str(directory / "index"), "--engine-timeout-s", _PATIENT_S)
        self._start("vector_index", python("-m", "skipstone_vector_index", *own, *index_flags))
        to_store = f"--latent-kv-target={self._targets['latent_kv']}"
        size = f"--artifact-bytes={artifact_bytes}"
        self._start("denoise", python(str(instant_executor.__file__), to_store, size))
        to = [f"--{name.replace('_', '-')}-target={at}" for name, at in self._targets.items()]
        flags = (*to, *_ORCHESTRATOR, *orchestrator_flags)
        self._start("orchestrator", python("-m", "skipstone_orchestrator", *flags))
        self.servers = list(kv_pids)
        if engine_pid is not None:
            server = psutil.Process(engine_pid)
            self.servers += [p.pid for p in (server, *server.children(recursive=True))]
        self.client = stack.enter_context(OrchestratorClient(self._targets["orchestrator"]))
        wait_until(self._generates, "a request is served")

    @property
    def pids(self) -> list[int]:
        """All process ids."""
        return [*self.services.values(), *self.servers]

    def wait_for_saves(self) -> None:
        """Waits until all that was run is saved."""
        wait_until(lambda: not self.client.get_stats().queued_saves, "all is saved")

    def _start(self, name: str, command: Sequence[str]) -> None:
        service = ServerProcess([*command, *_EVERY], self._directory / f"{name}.log")
        self._stack.callback(service.end)
        self._targets[name] = service.address()
        self.services[name] = service.pid

    def _generates(self) -> bool:
        try:
            self.client.generate(GenerationParams("a first one"), CACHE_OFF)
        except Unavailable:
            return False
        return True


def frames_of(mb: float) -> int:
    """`num_frames` of a request whose latents have about so many megabytes."""
    return max(1, round(mb * 1e6 / instant_executor.LATENT_FRAME_BYTES))
