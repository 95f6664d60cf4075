"""The executor's token goes to its own store, and not where a request would have it sent."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.client.fake_services import FakeLatentKV, deletion, serving

from skipstone_denoise.store_directory import StoreDirectory
from skipstone_shared.credentials import Credentials
from skipstone_shared.errors import InvalidArgument


def test_a_store_that_a_request_names_gets_no_token() -> None:
    """A caller could name a server of their own, and have every right of the executor then."""
    own, named = (FakeLatentKV(DeleteEntries=lambda *_: deletion(True)) for _ in range(2))
    with serving(own) as own_target, serving(named) as named_target:
        stores = StoreDirectory(own_target, Credentials(token="sks_secret"))
        for target in ("", own_target, named_target):
            stores(target).delete_entries("ns", ["e"])
        stores.close()
    assert [m.get("authorization") for m in own.metadata] == ["Bearer sks_secret"] * 2
    assert [m.get("authorization") for m in named.metadata] == [None]


def test_a_file_that_cannot_be_used_stops_the_start() -> None:
    credentials = Credentials(token_file=Path("/nothing"), prefix="client_")
    with pytest.raises(InvalidArgument, match="client_token_file"):
        StoreDirectory("127.0.0.1:1", credentials)
