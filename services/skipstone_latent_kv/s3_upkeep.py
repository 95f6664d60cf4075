"""What a store in S3 needs now and then: checkpoints, a short log, no bytes that belong to nobody.

Not by the lifecycle rules of a bucket: they count in days, know neither leases nor pins, and say
nothing to those who watch evictions.
"""

from __future__ import annotations

import functools

from skipstone_latent_kv.s3_bucket import S3Bucket
from skipstone_latent_kv.s3_entries import S3Entries
from skipstone_latent_kv.s3_log import S3Log
from skipstone_latent_kv.s3_transaction import S3Transaction
from skipstone_latent_kv.s3_values import LEFTOVER_S, VALUES, ValueName
from skipstone_shared.structured_logging import get_logger

_CHECKPOINT_RECORDS = 512
_CHECKPOINT_SHARE = 50
"""A checkpoint comes after so many records, and after a fiftieth of the number of entries: writing
all of them costs more than reading some records at a start."""


class S3Upkeep:
    """Looks after a store little by little; not thread-safe, a sweeper's thread calls it."""

    def __init__(self, bucket: S3Bucket, log: S3Log, entries: S3Entries) -> None:
        """Begins with the first value.

        Args:
            bucket: Where the store is.
            log: Its log.
            entries: Its entries.
        """
        self._bucket = bucket
        self._log = log
        self._entries = entries
        self._logger = get_logger(store="s3")
        self._token = ""
        self._expected: set[ValueName] = set()

    def step(self) -> None:
        """Looks at some values, and shortens the log when it is time."""
        share = self._entries.table.entry_count() // _CHECKPOINT_SHARE
        if self._entries.checkpoint(max(_CHECKPOINT_RECORDS, share)):
            self._log.prune()
        if not self._token:
            self._begin()
        self._look_at_values()
        late = self._entries.delete_owed()
        if late:
            self._logger.warning("values deleted late", count=late)

    def _begin(self) -> None:
        """Begins a round: what is in use now and is listed nowhere in it is lost."""
        self._expected = {
            name for entry in self._entries.all_seen() for name in entry.value_names()
        }
        abandoned = self._bucket.abandon_uploads(VALUES, LEFTOVER_S)
        if abandoned:
            self._logger.warning("uploads abandoned", count=abandoned)

    def _look_at_values(self) -> None:
        # A token that the server no longer takes begins a new round with the next step.
        token, self._token = self._token, ""
        page = self._bucket.page(VALUES, token)
        found = {name: listed for listed in page.objects if (name := ValueName.parse(listed.key))}
        self._expected.difference_update(found)
        old = [name for name, listed in found.items() if listed.age_s > LEFTOVER_S]
        # What is of no entry by now never will be: its record would have come long ago.
        self._entries.refresh()
        strangers = [name for name in old if not self._entries.has_value(name)]
        if strangers:
            self._bucket.delete([name.key for name in strangers])
            self._logger.warning("values of no entry deleted", count=len(strangers))
        self._token = page.next_token
        if not self._token:
            self._remove_lost()

    def _remove_lost(self) -> None:
        """Ends a round: removes entries whose values somebody else has deleted."""
        for name in self._expected:
            if not self._entries.has_value(name) or self._bucket.get(name.key) is not None:
                continue
            if self._entries.change(functools.partial(S3Transaction.remove_lost, name=name)):
                namespace, entry_id = name.entry
                self._logger.error(
                    "corrupt entry",
                    namespace=namespace,
                    entry_id=entry_id,
                    error=f"value {name.key} is not in S3",
                )
