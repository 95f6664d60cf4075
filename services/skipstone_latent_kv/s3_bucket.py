"""The objects of a store in S3: those of one bucket below one prefix."""

from __future__ import annotations

import contextlib
import dataclasses
import email.utils
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from botocore.exceptions import BotoCoreError, ClientError

from skipstone_latent_kv.s3_connection import S3Address, connect
from skipstone_latent_kv.s3_errors import code_of, is_no_answer, s3_trouble, status_of
from skipstone_shared.errors import FailedPrecondition, SkipstoneError, Unavailable

_PART_BYTES = 8 << 20
"""Bytes of a part of a large object; Amazon wants at least 5 MiB and at most 10,000 parts."""
_WHOLE_BYTES = 2 * _PART_BYTES
"""Largest object that goes in one request; larger ones go in parts at the same time."""
_REQUESTS_AT_A_TIME = 16
"""Of parts and of records, for all callers together."""
_DELETED_AT_A_TIME = 1000
"""What one request may delete."""
_READ_AGAIN = 2
"""Tries to read a body, which the library does not repeat once it has begun."""


@dataclasses.dataclass(frozen=True, slots=True)
class ListedObject:
    """An object in a listing; ``age_s`` by the clock of the server."""

    key: str
    age_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class ListedPart:
    """A page of a listing; an empty token means that it was the last."""

    objects: Sequence[ListedObject]
    next_token: str


class S3Bucket:
    """Gets, puts, lists and deletes objects; keys are those after the prefix.

    Every method may be called from any thread and raises what ``s3_trouble`` does.
    """

    def __init__(self, address: S3Address, prefix: str) -> None:
        """Prepares a client; nothing is asked yet.

        Args:
            address: Where the bucket is.
            prefix: Beginning of all keys, without a slash at its end.

        Raises:
            FailedPrecondition: the address cannot be one.
        """
        self.name = address.bucket
        self._prefix = f"{prefix}/"
        self._client = connect(address)
        self._client.meta.events.register("after-call.s3", self._note_time)
        self.server_time = 0.0
        """Latest time that S3 has told in an answer, in seconds since the epoch; 0 for none."""
        self._pool = ThreadPoolExecutor(_REQUESTS_AT_A_TIME, "s3-part")

    def get(
        self, key: str, size_bytes: int | None = None, at_most: int | None = None
    ) -> memoryview | None:
        """An object, None when there is none.

        Args:
            key: Which one.
            size_bytes: Its size where that is known: large objects are then read in ranges at the
                same time. One of another size is returned as far as it goes.
            at_most: Where it is not known: bytes after which no more is read.
        """
        if size_bytes is None or size_bytes <= _WHOLE_BYTES:
            body = self._get(key, at_most)
            return None if body is None else memoryview(body)
        data = np.empty(size_bytes, np.uint8).data

        def fill(start: int) -> int:
            end = min(start + _PART_BYTES, size_bytes)
            part = self._get(key, None, Range=f"bytes={start}-{end - 1}")
            if part is None or len(part) != end - start:
                return 0
            data[start:end] = part
            return len(part)

        filled = sum(self._pool.map(fill, range(0, size_bytes, _PART_BYTES)))
        return data if filled == size_bytes else None

    def put(self, key: str, data: bytes | memoryview, notes: Mapping[str, str]) -> None:
        """Puts an object; nobody sees it before it is whole.

        Args:
            key: Where.
            data: Its bytes. The library sends their CRC32 along, and S3 compares.
            notes: What stands beside the object, for people.
        """
        place = {"Bucket": self.name, "Key": self._prefix + key}
        with s3_trouble():
            if len(data) <= _WHOLE_BYTES:
                self._client.put_object(**place, Body=bytes(data), Metadata=notes)
            else:
                self._put_in_parts(place, memoryview(data), notes)

    def put_new(self, key: str, data: bytes) -> bool:
        """Puts an object where none is; False when one is there already, which stays."""
        place = {"Bucket": self.name, "Key": self._prefix + key}
        with s3_trouble():
            try:
                self._client.put_object(**place, Body=data, IfNoneMatch="*")
            except ClientError as error:
                # 409: another one is being put there just now.
                if status_of(error) == 412 or code_of(error) == "ConditionalRequestConflict":
                    return False
                raise
        return True

    def delete(self, keys: Sequence[str]) -> None:
        """Deletes objects; what is not there is no error."""
        for first in range(0, len(keys), _DELETED_AT_A_TIME):
            some = keys[first : first + _DELETED_AT_A_TIME]
            objects = [{"Key": self._prefix + key} for key in some]
            with s3_trouble():
                answer = self._client.delete_objects(
                    Bucket=self.name, Delete={"Objects": objects, "Quiet": True}
                )
            for error in answer.get("Errors", ()):
                problem = f"S3 does not delete {error.get('Key')}: {error.get('Code')}"
                if error.get("Code") == "AccessDenied":
                    raise FailedPrecondition(f"{problem}: the credentials must be allowed to")
                raise Unavailable(problem)

    def page(self, below: str, token: str = "", after: str = "") -> ListedPart:
        """Up to 1000 objects whose keys begin with ``below``, those after ``after``."""
        more = {"ContinuationToken": token} if token else {}
        if after:
            more["StartAfter"] = self._prefix + after
        with s3_trouble():
            answer = self._client.list_objects_v2(
                Bucket=self.name, Prefix=self._prefix + below, **more
            )
        now = _time_of(answer)
        objects = [
            ListedObject(
                found["Key"].removeprefix(self._prefix), now - found["LastModified"].timestamp()
            )
            for found in answer.get("Contents", ())
        ]
        return ListedPart(objects, answer.get("NextContinuationToken", ""))

    def keys(self, below: str, after: str = "") -> Iterator[str]:
        """All keys that begin with ``below``, ascending, those after ``after``."""
        token, first = "", after
        while True:
            part = self.page(below, token, first)
            yield from (found.key for found in part.objects)
            token, first = part.next_token, ""
            if not token:
                return

    def get_many(self, keys: Sequence[str], at_most: int) -> list[memoryview | None]:
        """Several small objects, asked for at the same time; no more of each than so many bytes."""
        return list(self._pool.map(functools.partial(self.get, at_most=at_most), keys))

    def abandon_uploads(self, below: str, age_s: float) -> int:
        """Ends uploads in parts that were begun so long ago; returns how many."""
        with s3_trouble():
            answer = self._client.list_multipart_uploads(
                Bucket=self.name, Prefix=self._prefix + below
            )
            now = _time_of(answer)
            old = [
                upload
                for upload in answer.get("Uploads", ())
                if now - upload["Initiated"].timestamp() > age_s
            ]
            for upload in old:
                self._client.abort_multipart_upload(
                    Bucket=self.name, Key=upload["Key"], UploadId=upload["UploadId"]
                )
        return len(old)

    def keeps_versions(self) -> bool | None:
        """Whether what is deleted or replaced stays as a version; None when nobody says."""
        with s3_trouble():
            try:
                answer = self._client.get_bucket_versioning(Bucket=self.name)
            except ClientError as error:
                if is_no_answer(error):
                    return None
                raise
        return bool(answer.get("Status") == "Enabled")

    def lifecycle_rules(self) -> Sequence[Mapping[str, Any]] | None:
        """Rules in force by which S3 itself changes objects here; None when nobody says."""
        with s3_trouble():
            try:
                answer = self._client.get_bucket_lifecycle_configuration(Bucket=self.name)
            except ClientError as error:
                if code_of(error) == "NoSuchLifecycleConfiguration":
                    return []
                if is_no_answer(error):
                    return None
                raise
        return [rule for rule in answer.get("Rules", ()) if _concerns(rule, self._prefix)]

    def close(self) -> None:
        """Ends threads and connections."""
        self._pool.shutdown()
        self._client.close()

    def _note_time(self, parsed: Mapping[str, Any], **_: Any) -> None:
        # Answers that say what is wrong have a date too.
        if "date" in parsed["ResponseMetadata"].get("HTTPHeaders", {}):
            self.server_time = max(self.server_time, _time_of(parsed))

    def _get(self, key: str, at_most: int | None, **more: str) -> bytes | None:
        for attempt in range(_READ_AGAIN):
            with s3_trouble():
                try:
                    answer = self._client.get_object(
                        Bucket=self.name, Key=self._prefix + key, **more
                    )
                except ClientError as error:
                    # 416: shorter than the range; a value that is not whole is none.
                    if code_of(error) in ("NoSuchKey", "404") or status_of(error) == 416:
                        return None
                    raise
                try:
                    if at_most is None or answer["ContentLength"] <= at_most:
                        body: bytes = answer["Body"].read()
                    else:
                        with contextlib.closing(answer["Body"]) as stream:
                            body = stream.read(at_most)
                except BotoCoreError:
                    if attempt == _READ_AGAIN - 1:
                        raise
                    continue
                return body
        raise AssertionError("every try returns or raises")

    def _put_in_parts(
        self, place: Mapping[str, str], data: memoryview, notes: Mapping[str, str]
    ) -> None:
        upload = self._client.create_multipart_upload(**place, Metadata=notes)["UploadId"]

        def put_part(number: int) -> dict[str, Any]:
            start = (number - 1) * _PART_BYTES
            answer = self._client.upload_part(
                **place,
                UploadId=upload,
                PartNumber=number,
                Body=bytes(data[start : start + _PART_BYTES]),
            )
            told = {name: answer[name] for name in ("ETag", "ChecksumCRC32") if name in answer}
            return {"PartNumber": number, **told}

        try:
            count = -(-len(data) // _PART_BYTES)
            parts = list(self._pool.map(put_part, range(1, count + 1)))
            self._client.complete_multipart_upload(
                **place, UploadId=upload, MultipartUpload={"Parts": parts}
            )
        except BaseException:
            _quietly(lambda: self._client.abort_multipart_upload(**place, UploadId=upload))
            raise


def _concerns(rule: Mapping[str, Any], prefix: str) -> bool:
    """Whether a lifecycle rule is in force for objects below a prefix, which have no tags."""
    of = rule.get("Filter", {})
    of = of.get("And", of)
    below = of.get("Prefix", rule.get("Prefix", ""))  # Old rules name it outside of the filter.
    overlaps = below.startswith(prefix) or prefix.startswith(below)
    return rule.get("Status") == "Enabled" and overlaps and not ("Tag" in of or "Tags" in of)


def _time_of(answer: Mapping[str, Any]) -> float:
    """When the server answered, by its own clock where it tells it, in seconds since the epoch."""
    date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    return email.utils.parsedate_to_datetime(date).timestamp() if date else time.time()


def _quietly(call: Callable[[], object]) -> None:
    """For what a sweep does later if it fails now."""
    try:
        with s3_trouble():
            call()
    except SkipstoneError:
        pass
