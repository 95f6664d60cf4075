"""What only a store in S3 can get wrong: its bucket, lost and damaged objects, leftovers."""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from botocore.exceptions import ClientError
from structlog.testing import capture_logs
from tests.contract.latent_store_cases import LATENT_BYTES, Write, latents, list_ids, save
from tests.servers.s3_proxy import running_s3_proxy
from tests.servers.seaweedfs import SECRET_KEY, shared_seaweedfs
from tests.unit.latent_kv.random_calls import POLICIES, a_call, events_of, outcome
from tests.unit.latent_kv.s3_under_test import Place

from skipstone_latent_kv import s3_upkeep
from skipstone_latent_kv.__main__ import open_store
from skipstone_latent_kv.config import LatentKVSettings
from skipstone_latent_kv.eviction import Quotas
from skipstone_latent_kv.eviction_policies import EvictionPolicy
from skipstone_latent_kv.memory_store import MemoryStore
from skipstone_latent_kv.s3_bucket import S3Bucket
from skipstone_latent_kv.s3_checks import check_bucket
from skipstone_latent_kv.s3_store import S3Store
from skipstone_shared.errors import (
    FailedPrecondition,
    LatentNotFound,
    SkipstoneError,
    Unavailable,
)
from skipstone_shared.latents import LatentRef
from skipstone_shared.stored_entries import EvictionKind

MIB = 1 << 20


@pytest.fixture
def place() -> Iterator[Place]:
    with capture_logs(), ExitStack() as stack:
        yield Place(shared_seaweedfs(), stack)


@pytest.fixture
def store(place: Place) -> S3Store:
    return place.open()


class TestLayout:
    def test_a_large_value_goes_in_parts_and_comes_back_in_ranges(
        self, place: Place, store: S3Store
    ) -> None:
        write = Write.of("large", latents(size_bytes=17 * MIB))
        ref = write.to(store)
        assert bytes(store.read_latent("", ref).data) == write.all_bytes
        (key,) = place.value_keys()
        head = place.client.head_object(
            Bucket=place.server.address.bucket, Key=f"{place.prefix}/{key}"
        )
        assert head["ETag"].endswith('-3"')
        assert head["ContentLength"] == 17 * MIB
        assert head["Metadata"] == {"skipstone-xxh3-64": f"{write.xxh3_64:016x}"}

    def test_names_that_mean_something_in_paths_stay_names(
        self, place: Place, store: S3Store
    ) -> None:
        """Servers that keep objects as files would leave the folder of the store."""
        refs = {
            (namespace, entry_id): save(store, entry_id, latents(i), namespace)
            for i, (namespace, entry_id) in enumerate([("..", ".."), (".", "."), (".", "..")])
        }
        for (namespace, _), ref in refs.items():
            assert store.read_latent(namespace, ref).ref == ref
        store.sweep()
        assert len(place.value_keys()) == 3
        place.audit(store)

    def test_stores_of_different_prefixes_do_not_see_each_other(self, place: Place) -> None:
        ours, theirs = place.open(), place.open(prefix=f"{place.prefix}2")
        ref = save(ours, "entry")
        save(theirs, "entry", latents(1))
        assert theirs.delete_namespace("") == 1
        theirs.sweep()
        assert ours.read_latent("", ref).ref == ref
        place.audit(ours)

    def test_a_layout_of_another_program_is_refused(self, place: Place) -> None:
        place.open().close()
        place.put("format", b"9")
        with pytest.raises(FailedPrecondition, match="layout 9"):
            place.open()

    def test_a_codec_saves_bytes_in_s3_and_in_the_quota(self, place: Place) -> None:
        store = place.open(codec="int8")
        ref = save(store, "entry", latents(size_bytes=2000))
        assert store.get_stats("").size_bytes == 1 + 4 + 1000
        assert store.read_latent("", ref).ref == ref

    def test_deleting_removes_the_bytes_before_it_returns(
        self, place: Place, store: S3Store
    ) -> None:
        for entry_id in "abc":
            save(store, entry_id)
        save(store, "a", latents(1))
        assert len(place.value_keys()) == 3
        store.delete_entries("", ["a", "b"])
        assert [key.split("/")[2] for key in place.value_keys()] == ["entry-c"]
        store.delete_namespace("")
        assert place.value_keys() == []


class TestBucketsThatCannotKeepThePromise:
    def test_one_with_versions_is_refused(self, place: Place) -> None:
        """What is deleted would stay in it."""
        bucket = place.server.new_bucket()
        place.client.put_bucket_versioning(
            Bucket=bucket, VersioningConfiguration={"Status": "Enabled"}
        )
        with pytest.raises(FailedPrecondition, match="keeps versions"):
            place.open(address={"bucket": bucket})

    @pytest.mark.parametrize(
        ("rule", "problem"),
        [
            ({"Filter": {"Prefix": ""}, "Expiration": {"Days": 30}}, "'of the test'.* expires"),
            ({"Prefix": "{}/checkpoints/", "Expiration": {"Days": 30}}, "expires objects"),
            (
                {
                    "Filter": {"And": {"Prefix": "{}", "ObjectSizeGreaterThan": 1 << 20}},
                    "Transitions": [{"Days": 30, "StorageClass": "GLACIER"}],
                },
                "archives objects",
            ),
            ({"Filter": {"Prefix": "{}-of-others/"}, "Expiration": {"Days": 30}}, None),
            ({"Filter": {"Tag": {"Key": "a", "Value": "b"}}, "Expiration": {"Days": 1}}, None),
            ({"Status": "Disabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 1}}, None),
            (
                {
                    "Filter": {"Prefix": ""},
                    "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 3},
                },
                None,
            ),
        ],
        ids=["all", "checkpoints", "archive", "elsewhere", "tagged", "disabled", "uploads"],
    )
    def test_one_whose_rules_take_objects_of_the_store_away_is_refused(
        self, place: Place, rule: dict[str, Any], problem: str | None
    ) -> None:
        """Without checkpoints it would look empty, and what is in it would be deleted."""
        rule = json.loads(json.dumps(rule).replace("{}", place.prefix))
        bucket = S3Bucket(place.server.address, place.prefix)
        told = {"Rules": [{"ID": "of the test", "Status": "Enabled", **rule}]}
        with patch.object(bucket._client, "get_bucket_lifecycle_configuration", lambda **_: told):
            if problem is None:
                check_bucket(bucket)
            else:
                with pytest.raises(FailedPrecondition, match=problem):
                    check_bucket(bucket)
        bucket.close()

    def test_a_rule_of_the_server_is_refused_and_a_server_that_does_not_tell_is_warned_of(
        self, place: Place
    ) -> None:
        bucket = place.server.new_bucket()
        rule = {"ID": "tidy", "Status": "Enabled", "Filter": {"Prefix": ""}}
        place.client.put_bucket_lifecycle_configuration(
            Bucket=bucket, LifecycleConfiguration={"Rules": [rule | {"Expiration": {"Days": 30}}]}
        )
        with pytest.raises(FailedPrecondition, match="rule 'tidy' of s3_bucket"):
            place.open(address={"bucket": bucket})
        told = {"Error": {"Code": "AccessDenied"}, "ResponseMetadata": {"HTTPStatusCode": 403}}
        denied = ClientError(told, "GetLifecycleConfiguration")
        mute = S3Bucket(place.server.address, place.prefix)
        with (
            patch.object(mute._client, "get_bucket_lifecycle_configuration", side_effect=denied),
            capture_logs() as logs,
        ):
            check_bucket(mute)
        assert [line["hint"] for line in logs if "GetLifecycleConfiguration" in line["hint"]]
        mute.close()

    @pytest.mark.parametrize("question", ["versioning", "lifecycle"])
    def test_a_busy_server_is_not_taken_for_one_that_does_not_tell(
        self, place: Place, question: str
    ) -> None:
        """The store would start on a bucket that the next start refuses."""
        with running_s3_proxy(place.server.endpoint) as proxy:
            proxy.spoil("GET", f"?{question}", "refused")
            with pytest.raises(Unavailable, match="cannot serve just now"):
                place.open(address={"endpoint": proxy.endpoint, "attempts": 1})
            assert proxy.spoiled == 1

    def test_a_server_that_ignores_conditions_is_refused(self, place: Place) -> None:
        class Careless(S3Bucket):
            def put_new(self, key: str, data: bytes) -> bool:
                self.put(key, data, {})
                return True

        bucket = Careless(place.server.address, place.prefix)
        with pytest.raises(FailedPrecondition, match="If-None-Match"):
            check_bucket(bucket)
        assert place.keys("probes/") == []
        bucket.close()

    def test_a_probe_that_the_library_puts_twice_does_not_fool_the_start(
        self, place: Place
    ) -> None:
        """Its first put says that one is there: the answer to the first try was lost."""

        class Repeating(S3Bucket):
            def put_new(self, key: str, data: bytes) -> bool:
                super().put_new(key, data)
                return super().put_new(key, data)

        bucket = Repeating(place.server.address, place.prefix)
        check_bucket(bucket)
        bucket.close()

    def test_one_that_is_not_there_is_refused(self, place: Place) -> None:
        with pytest.raises(FailedPrecondition, match="s3_bucket is not there"):
            place.open(address={"bucket": "nobody-made-this"})

    @pytest.mark.parametrize("key", ["reader", "stranger"])
    def test_credentials_that_may_not_write_are_refused_and_never_told(
        self, place: Place, tmp_path: Path, key: str
    ) -> None:
        file = tmp_path / "credentials"
        file.write_text(f"[default]\naws_access_key_id={key}\naws_secret_access_key={SECRET_KEY}\n")
        with pytest.raises(FailedPrecondition, match="refuses these credentials") as raised:
            place.open(address={"credentials_file": file})
        assert SECRET_KEY not in str(raised.value)

    def test_without_credentials_the_message_says_where_to_put_them(
        self, place: Place, tmp_path: Path
    ) -> None:
        file = tmp_path / "credentials"
        file.write_text("[default]\n")
        with pytest.raises(FailedPrecondition, match="AWS_ACCESS_KEY_ID"):
            place.open(address={"credentials_file": file})

    def test_a_server_that_does_not_answer_is_unavailable(self, place: Place) -> None:
        nobody = {"endpoint": "http://127.0.0.1:1", "attempts": 1, "timeout_s": 0.2}
        with pytest.raises(Unavailable, match="S3 does not answer"):
            place.open(address=nobody)

    def test_without_the_library_the_message_names_the_extra(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "boto3", None)
        for name in [n for n in sys.modules if n.startswith("skipstone_latent_kv.s3_")]:
            monkeypatch.delitem(sys.modules, name)
        with pytest.raises(FailedPrecondition, match=r"skipstone\[latent-kv-s3\]"):
            open_store(LatentKVSettings(store="s3", s3_bucket="latents"))

    @pytest.mark.parametrize("endpoint", ["no url", "http://"])
    def test_an_endpoint_that_is_no_url_is_refused(self, place: Place, endpoint: str) -> None:
        with pytest.raises(SkipstoneError):
            place.open(address={"endpoint": endpoint, "attempts": 1})


class TestLostAndDamagedValues:
    """Somebody deletes or replaces objects: what is lost is not there, and nothing else breaks."""

    @pytest.fixture
    def ref(self, store: S3Store) -> LatentRef:
        Write.of("entry", step_index=1).to(store)
        save(store, "sound")
        return save(store, "entry", latents(1))

    def key_of(self, place: Place, entry_id: str) -> str:
        return next(key for key in place.value_keys() if f"/entry-{entry_id}/" in key)

    def spoil(self, place: Place, ref: LatentRef, body: bytes | None) -> None:
        keys = [key for key in place.value_keys() if "/entry-entry/" in key]
        for key in keys:
            place.bucket.delete([key])
            if body is not None:
                place.put(key, body)

    @pytest.mark.parametrize(
        "body",
        [None, b"", bytes(LATENT_BYTES), bytes(LATENT_BYTES - 1)],
        ids=["lost", "empty", "other bytes", "cut"],
    )
    def test_it_reads_as_not_there_and_the_entry_goes(
        self, place: Place, store: S3Store, ref: LatentRef, body: bytes | None
    ) -> None:
        watch = store.watch_evictions("")
        self.spoil(place, ref, body)
        with pytest.raises(LatentNotFound):
            store.read_latent("", ref)
        event = next(watch)
        watch.close()
        assert (event.kind, event.entry_id) == (EvictionKind.CORRUPT, "entry")
        assert list_ids(store) == ["sound"]
        place.audit(store)

    def test_a_sweep_finds_what_is_lost_although_nobody_reads_it(
        self, place: Place, store: S3Store, ref: LatentRef
    ) -> None:
        """The index learns of it by the event."""
        watch = store.watch_evictions("")
        self.spoil(place, ref, None)
        store.sweep()
        assert next(watch).entry_id == "entry"
        watch.close()
        place.audit(store)

    def test_values_of_no_entry_are_deleted_when_they_are_old(
        self, place: Place, store: S3Store, ref: LatentRef, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stray = "values/ns-default/entry-entry/00000000000000aa"
        place.put(stray, b"left behind")
        store.sweep()
        assert stray in place.value_keys()
        monkeypatch.setattr(s3_upkeep, "LEFTOVER_S", -60.0)
        store.sweep()
        assert stray not in place.value_keys()
        place.audit(store)

    def test_uploads_that_nobody_finished_are_ended(
        self, place: Place, store: S3Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bucket = place.server.address.bucket
        key = f"{place.prefix}/values/ns-default/entry-entry/00000000000000aa"
        place.client.create_multipart_upload(Bucket=bucket, Key=key)
        monkeypatch.setattr(s3_upkeep, "LEFTOVER_S", -60.0)
        store.sweep()
        left = place.client.list_multipart_uploads(Bucket=bucket, Prefix=key)
        assert not left.get("Uploads")


class TestAnswersThatGetLost:
    """A put may have been done although nobody was told."""

    def test_a_change_whose_answer_was_lost_shows_at_the_next_call(
        self, place: Place, store: S3Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ref = Write.of("entry").to(store)
        put_new = store._bucket.put_new

        def deaf(key: str, data: bytes) -> bool:
            put_new(key, data)
            raise Unavailable("the answer is lost")

        monkeypatch.setattr(store._bucket, "put_new", deaf)
        with pytest.raises(Unavailable):
            store.commit_entry("", "entry")
        monkeypatch.setattr(store._bucket, "put_new", put_new)
        assert store.get_entry("", "entry").committed
        assert store.read_latent("", ref).ref == ref
        place.audit(place.open())

    def test_a_put_that_the_library_repeats_is_known_as_our_own(
        self, place: Place, store: S3Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put_new = store._bucket.put_new

        def twice(key: str, data: bytes) -> bool:
            put_new(key, data)
            return put_new(key, data)

        monkeypatch.setattr(store._bucket, "put_new", twice)
        ref = save(store, "entry")
        store.read_latent("", ref)
        assert store.delete_entries("", ["entry"]) == [True]
        place.audit(store)

    def test_a_put_that_lands_after_it_was_taken_for_lost_keeps_its_bytes(
        self, place: Place, store: S3Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The library repeats a put whose first try still runs, and is told of a conflict."""
        put_new, get = store._bucket.put_new, store._bucket.get
        late: dict[str, bytes] = {}

        def in_conflict(key: str, data: bytes) -> bool:
            if key.startswith("values/") or late:
                return put_new(key, data)
            late[key] = data
            return False

        def not_yet(key: str, *size: int, **more: int) -> Any:
            if key in late and get(key) is None:
                put_new(key, late[key])
                return None
            return get(key, *size, **more)

        monkeypatch.setattr(store._bucket, "put_new", in_conflict)
        monkeypatch.setattr(store._bucket, "get", not_yet)
        ref = Write.of("entry").to(store)
        assert late
        store.commit_entry("", "entry")
        assert store.read_latent("", ref).ref == ref
        place.audit(place.open())

    def test_a_write_that_fails_leaves_what_was_there_before(
        self, place: Place, store: S3Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ref = save(store, "entry")

        def away(*arguments: Any) -> bool:
            raise Unavailable("S3 is away")

        with monkeypatch.context() as patch:
            patch.setattr(store._bucket, "put_new", away)
            with pytest.raises(Unavailable):
                Write.of("entry", latents(1)).to(store)
            with pytest.raises(Unavailable):
                store.delete_entries("", ["entry"])
        assert store.read_latent("", ref).ref == ref
        assert list_ids(store) == ["entry"]

    def test_a_broken_upload_leaves_nothing(
        self, place: Place, store: S3Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def away(**arguments: Any) -> None:
            raise Unavailable("S3 is away")

        monkeypatch.setattr(store._bucket._client, "complete_multipart_upload", away)
        with pytest.raises(Unavailable):
            Write.of("large", latents(size_bytes=17 * MIB)).to(store)
        assert list_ids(store) == []
        assert place.value_keys() == []
        uploads = place.client.list_multipart_uploads(
            Bucket=place.server.address.bucket, Prefix=place.prefix
        )
        assert not uploads.get("Uploads")


class TestLikeTheStoreInMemory:
    """Leases, order and events are what they are elsewhere, whatever a record brings."""

    @pytest.mark.parametrize(
        "policy",
        [POLICIES[0], *(pytest.param(policy, marks=pytest.mark.long) for policy in POLICIES[1:])],
        ids=lambda policy: type(policy).__name__,
    )
    def test_any_sequence_of_calls_has_the_same_outcome(
        self, place: Place, policy: EvictionPolicy
    ) -> None:
        rng = random.Random(type(policy).__name__)
        quotas = Quotas(12 * LATENT_BYTES, 7 * LATENT_BYTES, high_water=0.9, low_water=0.6)
        ours = place.open(quotas=quotas, policy=policy, ttl_s=50.0)
        reference = MemoryStore(quotas=quotas, policy=policy, ttl_s=50.0, clock=place.clock)
        for store in (ours, reference):  # Removed first: the event that watching begins behind.
            save(store, "the-start", namespace="z")
            store.delete_entries("z", ["the-start"])
        for _ in range(100):
            call = a_call(rng)
            assert outcome(call, ours) == outcome(call, reference)
            if rng.random() < 0.2:
                # What ended goes at once: when else it goes is up to each store.
                place.clock.advance(rng.choice([1.0, 20.0, 40.0]))
                assert ours.sweep() == reference.sweep()
        for namespace in ("x", "y"):
            pages = [s.list_entries(namespace, 1000, "", True) for s in (ours, reference)]
            assert pages[0] == pages[1]
        # Else there might be no room for the event that ends them all.
        for store, namespace in itertools.product((ours, reference), "xy"):
            store.pin_entries(namespace, [f"e{i}" for i in range(8)], False)
        place.clock.advance(100.0)
        assert ours.sweep() == reference.sweep()
        assert events_of(ours) == events_of(reference)
        place.audit(ours)
        place.audit(place.open())
