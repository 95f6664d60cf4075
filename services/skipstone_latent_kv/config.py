"""Settings of the ``latent_kv`` service."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, model_validator

from skipstone_latent_kv.eviction_policies import DEFAULT_HALF_LIFE, PolicyName
from skipstone_latent_kv.latent_codec import CodecName
from skipstone_shared.config import Port, ServiceSettings
from skipstone_shared.page_check import PageCheck
from skipstone_shared.ports import DEFAULT_PORTS
from skipstone_shared.stored_entries import MAX_CHUNK_BYTES
from skipstone_shared.url_secrets import holds_password


class LatentKVSettings(ServiceSettings):
    """Durable storage of snapshots."""

    service_name: ClassVar[str] = "latent_kv"

    port: Port = DEFAULT_PORTS["latent_kv"]
    """TCP port to listen on; 0 takes any free one and logs it."""

    store: Literal["lmdb", "memory", "redis", "s3"] = "lmdb"
    """Engine: lmdb keeps snapshots on disk, memory forgets them when the process ends, redis keeps
    them in Redis, Valkey or a Redis Cluster, s3 in a bucket; several processes may share those."""

    memory_tier_bytes: int = Field(default=0, ge=0)
    """Bytes of the snapshots read last that stay in memory in front of the store; 0: none."""

    data_dir: Path = Path("data/latent_kv")
    """Directory of the lmdb store; created when it is missing. One process at a time may use it."""

    redis_urls: tuple[str, ...] = Field(default=("redis://127.0.0.1:6379",), min_length=1)
    """Where Redis is: redis://USER@HOST:PORT/DATABASE, rediss:// for TLS; several are the first
    nodes of one cluster."""

    redis_cluster: Literal["auto", "yes", "no"] = "auto"
    """Whether it is a Redis Cluster; auto asks it."""

    redis_password: SecretStr = Field(default=SecretStr(""), json_schema_extra={"flag": False})
    """Password of Redis; empty for none. By variable or file: flags show in lists of processes."""

    redis_prefix: str = Field(default="skipstone", pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    """Beginning of all keys in Redis; stores of other prefixes do not see each other."""

    redis_timeout_s: float = Field(default=2.0, gt=0.0)
    """Seconds to connect to Redis, and seconds that it may be silent."""

    s3_bucket: str = Field(default="", pattern=r"^([A-Za-z0-9._-]{1,255}|arn:[A-Za-z0-9:/._-]+)?$")
    """Bucket of the store s3, which must be there and keep no versions."""

    s3_endpoint: str = ""
    """URL of the S3 server, http:// or https://; empty: Amazon's."""

    s3_region: str = Field(default="", pattern=r"^[A-Za-z0-9-]{0,63}$")
    """Region of the bucket; empty: that of AWS_REGION or Amazon's files."""

    s3_prefix: str = Field(default="skipstone", pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    """Beginning of all keys in the bucket; stores of other prefixes do not see each other."""

    s3_path_style: bool = False
    """Whether the bucket stands in the path of URLs instead of the host name, as most servers other
    than Amazon's want it."""

    s3_credentials_file: Path | None = None
    """File with the credentials, as Amazon's tools write it, profile default; none: the variables
    AWS_*, Amazon's files, or the role of the machine. Secrets themselves are no setting."""

    s3_timeout_s: float = Field(default=5.0, gt=0.0, le=3600.0)
    """Seconds to connect to S3, and seconds that it may be silent, at each try."""

    s3_attempts: int = Field(default=3, ge=1, le=10)
    """Tries of each request to S3, the first included."""

    durability: Literal["always", "group", "none"] = "group"
    """When a write is acknowledged: always = after an fsync of its own; group = after an fsync that
    writes waiting at the same moment share; none = without one, flushed every
    sweep_interval_s (survives a kill of the process; a loss of power may cost all data)."""

    page_check: PageCheck = "always"
    """When the pages of the lmdb file are looked at before it is opened: always = at every start;
    after_crash = unless the last process has closed it in order and nobody has touched it since."""

    codec: CodecName = "lossless"
    """How all stores but memory write floating tensors: lossless = as they come; fp32, bf16,
    fp16 = in at most so many bits; int8 = 8 bits and a scale per channel. All but lossless change
    pictures."""

    quota_bytes: int = Field(default=10 << 30, ge=0)
    """Bytes of all snapshots together; entries are evicted to stay below; 0: no bound."""

    namespace_quota_bytes: int = Field(default=0, ge=0)
    """Bytes of the snapshots of each namespace; 0: no bound of its own."""

    eviction_policy: PolicyName = "lru"
    """Who is evicted first: lru = unused longest; fifo = oldest; lcbfu = least uses x steps that
    one reuse can skip; aged_lcbfu = the same, halved every aging_half_life uses of the store."""

    aging_half_life: int = Field(default=DEFAULT_HALF_LIFE, ge=1)
    """Reads and writes of the store after which an unused entry is worth half to aged_lcbfu."""

    high_water: float = Field(default=1.0, gt=0.0, le=1.0)
    """Share of a quota above which a write evicts; what cannot be evicted may fill the rest."""

    low_water: float = Field(default=0.95, gt=0.0, le=1.0)
    """Share of a quota down to which it then evicts, so that not every write has to; at most
    high_water."""

    max_snapshot_bytes: int = Field(default=256 << 20, ge=1)
    """Largest snapshot."""

    ttl_s: float = Field(default=0.0, ge=0.0)
    """Seconds after its creation at which a committed entry that is not pinned ends; 0: never."""

    sweep_interval_s: float = Field(default=5.0, gt=0.0, le=3600.0)
    """Seconds between two removals of what ended; use times are saved as often."""

    event_history: int = Field(default=10_000, ge=1, le=1_000_000)
    """Eviction events kept for watchers that were away."""

    initial_map_bytes: int = Field(default=1 << 30, ge=1 << 20)
    """Address space the lmdb store starts with; it doubles when that is full, without a restart."""

    migrate_to: Path | None = None
    """Settings file of the store to move to, whose table latent_kv says where it is and what it may
    hold. What is written goes there too, and `skipstone kv migrate` copies the rest, while the
    store above serves on; none: no move."""

    max_watchers: int = Field(default=4, ge=1)
    """WatchEvictions streams at a time; each occupies one of max_workers."""

    max_streams: int = Field(default=256, ge=1, le=4096)
    """WriteLatent and ReadLatent calls at a time; they have threads beside max_workers."""

    stream_bytes: int = Field(default=1 << 30, ge=1)
    """Bytes of snapshots that all running writes and reads hold in memory together; more wait."""

    stream_wait_s: float = Field(default=5.0, ge=0.0)
    """Seconds that a write or read waits for room among the running ones before it is refused."""

    stall_timeout_s: float = Field(default=10.0, gt=0.0)
    """Seconds that a caller may fall behind 256 KiB/s before its write or read is ended; a second
    when others need its room."""

    def data_folders(self) -> tuple[Path, ...]:
        """The folder of LMDB; the other stores keep nothing here."""
        return (self.data_dir,) if self.store == "lmdb" else ()

    @model_validator(mode="after")
    def _keep_codec_and_store_together(self) -> Self:
        if self.codec != "lossless" and self.store == "memory":
            raise ValueError(f"codec {self.codec} needs the store lmdb, redis or s3, not memory")
        return self

    @model_validator(mode="after")
    def _have_a_bucket(self) -> Self:
        if self.store == "s3" and not self.s3_bucket:
            raise ValueError("store s3 needs s3_bucket, the name of a bucket")
        return self

    @model_validator(mode="after")
    def _keep_credentials_out_of_the_endpoint(self) -> Self:
        # Not on the field, see below.
        if "@" in self.s3_endpoint:
            raise ValueError("s3_endpoint holds a user: set s3_credentials_file instead")
        if self.s3_endpoint and not _is_address(self.s3_endpoint):
            raise ValueError("s3_endpoint must be a URL: http://HOST:PORT or https://HOST:PORT")
        return self

    @model_validator(mode="after")
    def _keep_passwords_out_of_urls(self) -> Self:
        # Here and not on the field, whose errors repeat the value; URLs are printed and logged.
        if any(holds_password(url) for url in self.redis_urls):
            raise ValueError("redis_urls holds a password: set redis_password instead")
        return self

    @model_validator(mode="after")
    def _fit_largest_snapshot(self) -> Self:
        least = self.max_snapshot_bytes + 2 * MAX_CHUNK_BYTES
        if self.stream_bytes < least:
            raise ValueError(
                f"stream_bytes ({self.stream_bytes}) must be at least {least}, the largest "
                "snapshot (max_snapshot_bytes) and its chunks in transit"
            )
        return self

    @model_validator(mode="after")
    def _order_water_marks(self) -> Self:
        if self.low_water > self.high_water:
            raise ValueError(
                f"low_water ({self.low_water}) must not be above high_water ({self.high_water})"
            )
        return self

    @model_validator(mode="after")
    def _leave_workers(self) -> Self:
        if self.max_watchers >= self.max_workers:
            raise ValueError(
                f"max_watchers ({self.max_watchers}) must be below max_workers "
                f"({self.max_workers}), or watchers leave no thread for other calls"
            )
        return self


def _is_address(url: str) -> bool:
    """Whether it is the URL of a server."""
    try:
        parts = urlsplit(url)
        place = parts.hostname, parts.port != 0
    except ValueError:  # A bracket that is not closed, a port that is none.
        return False
    rest = parts.query or parts.fragment or " " in url
    return parts.scheme in ("http", "https") and all(place) and not rest
