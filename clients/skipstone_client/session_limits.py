"""What a reuse session may cost its engine."""

from __future__ import annotations

import dataclasses

from skipstone_shared.stored_entries import DEFAULT_LEASE_S


@dataclasses.dataclass(frozen=True, slots=True)
class SessionLimits:
    """What a session may cost an engine.

    Attributes:
        lookup_timeout_s: Seconds a lookup may take.
        retry_pause_s: Seconds after a lookup that nobody answered in which none is made, so that a
            dead orchestrator costs one request its time and the others nothing.
        read_timeout_s: Seconds latent_kv gets to answer, for a donor.
        read_bytes_per_s: Rate that is expected of it; the bytes of a donor add to the time.
        write_timeout_s: Seconds a snapshot may take to be written, in the background.
        save_timeout_s: Seconds a save may take, in the background.
        queue_size: Snapshots and saves that may wait for the background; more are dropped and
            counted. Each snapshot holds a copy of its latents.
        close_timeout_s: Seconds that closing waits for them.
        lease_s: Seconds until snapshots that are never saved are removed. Longer than a run.
    """

    lookup_timeout_s: float = 1.0
    retry_pause_s: float = 2.0
    read_timeout_s: float = 0.5
    read_bytes_per_s: float = 200.0 * (1 << 20)
    write_timeout_s: float = 30.0
    save_timeout_s: float = 10.0
    queue_size: int = 32
    close_timeout_s: float = 10.0
    lease_s: float = DEFAULT_LEASE_S
