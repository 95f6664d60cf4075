"""Connects to the Redis of the settings: one server, or a cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import parse_url
from redis.exceptions import AuthenticationError
from redis.retry import Retry

from skipstone_latent_kv.redis_errors import redis_trouble
from skipstone_latent_kv.redis_servers import Client, ClusterServers, RedisServers, SingleServer
from skipstone_shared.errors import FailedPrecondition, Unavailable
from skipstone_shared.url_secrets import without_secrets

ClusterMode = Literal["auto", "yes", "no"]

_READ_BYTES = 1 << 18
"""Bytes per read from a socket; the library's 64 KiB need four times the system calls."""

# The library is typed for callers that await; see ``redis_servers.Client``.
_node: Any = ClusterNode
_parse: Any = parse_url


@dataclasses.dataclass(frozen=True)
class RedisAddress:
    """Where Redis is.

    Attributes:
        urls: ``redis://``, ``rediss://`` or ``unix://``; several are the first nodes of one
            cluster. Options of the library may follow a question mark.
        password: Of all servers; empty for none.
        cluster: Whether it is a cluster; ``auto`` asks it.
        timeout_s: Seconds to connect, and seconds that a server may be silent.
    """

    urls: Sequence[str]
    password: str = dataclasses.field(default="", repr=False)
    cluster: ClusterMode = "auto"
    timeout_s: float = 2.0


def connect(address: RedisAddress) -> RedisServers:
    """Connects.

    Args:
        address: Where Redis is.

    Raises:
        FailedPrecondition: the address, user or password is wrong; the message says what to do.
        Unavailable: no server answers.
    """
    places = [_place(url) for url in address.urls]
    options = _options(address)
    with redis_trouble():
        first = _first_that_answers(address.urls, places, options)
        in_cluster = address.cluster == "yes"
        if address.cluster == "auto":
            with _client(places[first] | {"db": 0}, options) as client:
                in_cluster = bool(client.info("cluster").get("cluster_enabled"))
        if in_cluster:
            return ClusterServers(_open_cluster(places, options))
        if len(places) > 1:
            raise FailedPrecondition(
                f"redis_urls names {len(places)} servers that are not a cluster: name one, or "
                "start them with cluster-enabled yes"
            )
        return SingleServer(_client(places[0], options))


def _client(place: dict[str, Any], options: dict[str, Any]) -> Client:
    return redis.Redis(**(options | place), retry=Retry(NoBackoff(), 0))


def _first_that_answers(
    urls: Sequence[str], places: Sequence[dict[str, Any]], options: dict[str, Any]
) -> int:
    """The place in the list of the first server that answers."""
    problem: Exception | None = None
    for i, place in enumerate(places):
        try:
            # Without its database, which a cluster refuses.
            with _client(place | {"db": 0}, options) as client:
                client.ping()
        except AuthenticationError:
            raise
        except (redis.ConnectionError, redis.TimeoutError) as error:
            problem = error
            continue
        return i
    names = ", ".join(without_secrets(url) for url in urls)
    raise Unavailable(f"no Redis answers at {names} ({problem}): start it, or set redis_urls")


def _open_cluster(places: Sequence[dict[str, Any]], options: dict[str, Any]) -> RedisCluster:
    if any(place.get("db") for place in places):
        raise FailedPrecondition("redis_urls names a database, but a Redis Cluster has only 0")
    more = {key: value for key, value in places[0].items() if key not in ("host", "port", "db")}
    return RedisCluster(
        startup_nodes=[
            _node(place.get("host", "localhost"), place.get("port", 6379)) for place in places
        ],
        # While a part of the slots has no master, the others serve on.
        require_full_coverage=False,
        retry=Retry(NoBackoff(), 0),
        **(options | more),
    )


def _options(address: RedisAddress) -> dict[str, Any]:
    options: dict[str, Any] = {
        "socket_connect_timeout": address.timeout_s,
        "socket_timeout": address.timeout_s,
        "socket_keepalive": True,
        "socket_read_size": _READ_BYTES,
        # The older protocol: with the newer one the library asks servers for notices on every
        # connection that are of no use here.
        "protocol": 2,
        "client_name": "skipstone-latent-kv",
    }
    if address.password:
        options["password"] = address.password
    return options


def _place(url: str) -> dict[str, Any]:
    try:
        place = dict(_parse(url))
    except ValueError as error:
        raise FailedPrecondition(
            f"redis_urls: {without_secrets(url)} is no URL of Redis: {error}"
        ) from None
    # A URL is printed with the settings, a password must not be.
    if place.pop("password", None):
        raise FailedPrecondition(
            f"redis_urls holds a password for {without_secrets(url)}: set redis_password instead"
        )
    # The library's parser and its clients have different words for the same.
    if place.pop("connection_class", None) is redis.SSLConnection:
        place["ssl"] = True
    if "path" in place:
        place["unix_socket_path"] = place.pop("path")
    return place
