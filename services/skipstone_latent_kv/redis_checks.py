"""What a store wants of the servers it starts on, and what it warns of."""

from __future__ import annotations

from redis.exceptions import ResponseError

from skipstone_latent_kv.eviction import Quotas
from skipstone_latent_kv.redis_errors import redis_trouble
from skipstone_latent_kv.redis_servers import Client, RedisServers
from skipstone_shared.errors import FailedPrecondition
from skipstone_shared.structured_logging import get_logger

_OLDEST = 7
"""Major version whose scripts can say that they may run while Redis is full. Valkey tells the
version of Redis that it stands for."""


def check_servers(servers: RedisServers, quotas: Quotas) -> str:
    """Refuses servers that are too old; warns of those that may drop or refuse what is stored.

    Args:
        servers: Where the store is.
        quotas: What it keeps to.

    Returns:
        What an acknowledged write survives: ``power`` where every server flushes its log of
        commands before it answers, else ``process``: a kill of this process, while Redis lives.

    Raises:
        FailedPrecondition: a server is too old.
    """
    log = get_logger(store="redis")
    limits: list[int] = []
    flushed = True
    for client in servers.masters().values():
        with redis_trouble():
            told, memory = client.info("server"), client.info("memory")
            flushed = flushed and _flushes_always(client)
        version = str(told["redis_version"])
        if int(version.partition(".")[0]) < _OLDEST:
            raise FailedPrecondition(
                f"Redis {version} is too old for the store redis: {_OLDEST}.0 or newer is needed, "
                "or any Valkey"
            )
        limits.append(int(memory["maxmemory"]))
        policy = str(memory["maxmemory_policy"])
        if policy.startswith("allkeys"):
            log.warning(
                "Redis may drop what is stored without a word",
                maxmemory_policy=policy,
                hint="set maxmemory-policy noeviction; quota_bytes makes room in the right order",
            )
    if all(limits) and not 0 < quotas.total_bytes < sum(limits):
        log.warning(
            "Redis is full before quota_bytes is reached",
            maxmemory=sum(limits),
            quota_bytes=quotas.total_bytes,
            hint="set quota_bytes to about 80 % of maxmemory of all masters together",
        )
    return "power" if flushed else "process"


def _flushes_always(client: Client) -> bool:
    try:
        settings = client.config_get("append*")
    except ResponseError:
        return False  # Services that run Redis for others hide its settings.
    return (settings.get("appendonly"), settings.get("appendfsync")) == ("yes", "always")
