"""Settings of the gateway."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from skipstone_shared.config import CallerSettings, Port
from skipstone_shared.ports import default_target

GATEWAY_PORT = 8080


class GatewaySettings(CallerSettings):
    """HTTP for callers that speak no gRPC; it holds no state that matters."""

    service_name: ClassVar[str] = "gateway"

    port: Port = GATEWAY_PORT
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
    """Video jobs that are remembered, running ones included; more are refused."""

    max_running_jobs: int = Field(default=2, ge=1)
    """Video jobs that run at a time; others wait in line."""

    video_fps: int = Field(default=16, ge=1, le=120)
    """Frames per second by which `seconds` of a video request becomes a number of frames."""
