"""What a store wants of the bucket it starts on."""

from __future__ import annotations

import uuid

from skipstone_latent_kv.s3_bucket import S3Bucket
from skipstone_latent_kv.s3_values import LEFTOVER_S, VALUES
from skipstone_shared.errors import FailedPrecondition
from skipstone_shared.structured_logging import get_logger

_ARCHIVES = ("GLACIER", "DEEP_ARCHIVE")
"""Storage classes from which nothing can be read before it is restored."""
_FORMAT = "format"
_VERSION = b"1"


def check_bucket(bucket: S3Bucket) -> None:
    """Refuses a bucket that cannot keep what a store promises.

    Raises:
        FailedPrecondition: it cannot; the message says why.
        Unavailable: S3 does not answer.
    """
    versions = bucket.keeps_versions()
    if versions:
        raise FailedPrecondition(
            f"s3_bucket {bucket.name} keeps versions, so that what is deleted would stay: name a "
            "bucket without versioning"
        )
    if versions is None:
        get_logger(store="s3").warning(
            "nobody says whether the bucket keeps versions",
            hint="what is deleted stays in a bucket with versions; allow s3:GetBucketVersioning",
        )
    _check_lifecycle(bucket)
    _check_conditions(bucket)
    _check_format(bucket)
    # A sweep that may not ask for them would never come further; here it is told at once.
    bucket.abandon_uploads(VALUES, LEFTOVER_S)


def _check_lifecycle(bucket: S3Bucket) -> None:
    """A rule that takes checkpoints away would make a store look empty that is not."""
    rules = bucket.lifecycle_rules()
    if rules is None:
        get_logger(store="s3").warning(
            "nobody says whether lifecycle rules of the bucket expire objects",
            hint="one that does would damage entries; allow s3:GetLifecycleConfiguration",
        )
    for rule in rules or ():
        ends = "Days" in (of := rule.get("Expiration", {})) or "Date" in of
        if ends or any(to.get("StorageClass") in _ARCHIVES for to in rule.get("Transitions", ())):
            raise FailedPrecondition(
                f"the lifecycle rule {rule.get('ID', 'without an id')!r} of s3_bucket "
                f"{bucket.name} {'expires' if ends else 'archives'} objects below s3_prefix, which "
                "would damage the store: end the rule, or name another prefix or bucket; ttl_s "
                "ends entries in time"
            )


def _check_conditions(bucket: S3Bucket) -> None:
    """Two processes would both believe that a change was theirs, were conditions ignored."""
    key = f"probes/{uuid.uuid4().hex}"
    # It says that one is there where the library repeated a put whose answer was lost.
    bucket.put_new(key, b"")
    ignored = bucket.put_new(key, b"")
    bucket.delete([key])
    if ignored:
        raise FailedPrecondition(
            "this S3 ignores the condition If-None-Match of a put, which the store s3 cannot do "
            "without: use a server that knows it, or another store"
        )


def _check_format(bucket: S3Bucket) -> None:
    bucket.put_new(_FORMAT, _VERSION)
    found = bytes(bucket.get(_FORMAT) or _VERSION)
    if found != _VERSION:
        raise FailedPrecondition(
            f"what is below s3_prefix has layout {found[:20].decode('ascii', 'replace')}, this "
            f"program knows {_VERSION.decode()}; use the program that wrote it or another s3_prefix"
        )
