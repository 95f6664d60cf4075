"""Pods of the next minor version, as far as their messages show it."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.deploy.pods import Pod, own_address
from tests.e2e.future_peer import FuturePeer
from tests.unit.deploy.rendered import Workload

_INSIDE = 10_000
"""Added to the number of a pod for the address of its process, which only its proxy knows."""


class NextVersionPod(Pod):
    """A process behind a proxy that adds fields to every message, in both directions.

    The name of its Service stands for the proxy, so that nobody reaches it in another way.
    """

    def __init__(self, workload: Workload, folder: Path) -> None:
        """Starts nothing yet; see `Pod`."""
        super().__init__(workload, folder)
        self._inside = own_address(_INSIDE + int(self.log.stem.rpartition("-")[2]))
        inside = f"{self._inside}:{workload.port}"
        self._peer = FuturePeer(inside, f"{self.address}:{workload.port}")

    def start(self, hosts: Path) -> None:
        """Starts the process and its proxy."""
        super().start(hosts)
        self._peer.start()

    def _variables(self) -> dict[str, str]:
        prefix = f"SKIPSTONE_{self.workload.settings_class.service_name}_".upper()
        return {**super()._variables(), prefix + "HOST": self._inside}

    @property
    def carried(self) -> int:
        """How many messages had fields that nobody of this version knows."""
        return self._peer.carried

    def stop(self) -> None:
        """Asks both to end; see `Pod`."""
        self._peer.drain(self.workload.pod["spec"]["terminationGracePeriodSeconds"])
        super().stop()
        self._peer.close()

    def kill(self) -> None:
        """Ends both at once."""
        super().kill()
        self._peer.close()
