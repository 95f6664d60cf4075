"""Settings of the gateway."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field, model_validator

from skipstone_shared.config import CallerSettings, Port
from skipstone_shared.ports import DEFAULT_PORTS, default_target


class GatewaySettings(CallerSettings):
    """HTTP for callers that speak no gRPC; it holds no state that matters."""

    service_name: ClassVar[str] = "gateway"

    port: Port = DEFAULT_PORTS["gateway"]
    """TCP port to listen on; 0 takes any free one and logs it."""

    orchestrator_target: str = default_target("orchestrator")
    """gRPC target of the orchestrator."""

    latent_kv_target: str = ""
    """gRPC target of latent_kv, by which the page pins entries; empty: it cannot."""

    public_url: str = ""
    """Address under which callers reach the gateway, for the links in its answers; empty: the one
    that each request was sent to."""

    generate_timeout_s: float = Field(default=600.0, gt=0.0)
    """Seconds that one generation may take."""

    max_body_bytes: int = Field(default=32 << 20, ge=1 << 10)
    """Largest request body, reference pictures included."""

    artifact_bytes: int = Field(default=256 << 20, ge=1 << 20)
    """Memory for pictures and clips that can be fetched by their link; the oldest go first."""

    artifact_ttl_s: float = Field(default=3600.0, gt=0.0)
    """Seconds after which a link ends."""

    max_jobs: int = Field(default=256, ge=1)
    """Video jobs that are remembered, running ones included; half of them may be one caller's that
    are not over. The oldest finished ones of the caller who has most go first."""

    job_bytes: int = Field(default=512 << 20, ge=1 << 20)
    """Memory for what finished video jobs made; where it is full some are forgotten before
    artifact_ttl_s is over."""

    max_running_jobs: int = Field(default=2, ge=1)
    """Video jobs that run at a time; others wait in line."""

    video_fps: int = Field(default=16, ge=1, le=120)
    """Frames per second by which `seconds` of a video request becomes a number of frames where the
    executor does not tell the rate of its model."""

    @model_validator(mode="after")
    def _only_what_it_does(self) -> Self:
        """What every service has and the gateway does not is refused, not left without effect."""
        if self.access_file is not None:
            raise ValueError(
                "access_file: the gateway passes tokens on; give the file to the orchestrator"
            )
        if self.health_port is not None:
            raise ValueError("health_port: ask /livez or /healthz of the gateway's own port")
        return self
