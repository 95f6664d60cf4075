"""Whatever a message holds, making a value of it gives one or says what is bad: both ways."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import pkgutil
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.message_strategies import messages

import skipstone_shared
from skipstone_shared.errors import SkipstoneError


def readers() -> Iterator[tuple[str, Callable[[Any], object], type[Message]]]:
    """Every function that makes a value of one message."""
    for found in pkgutil.iter_modules(skipstone_shared.__path__, "skipstone_shared."):
        if not found.name.endswith("_messages"):
            continue
        module = importlib.import_module(found.name)
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if not name.endswith("_from_message") or function.__module__ != found.name:
                continue
            parameters = list(inspect.signature(function).parameters.values())
            required = [p for p in parameters if p.default is inspect.Parameter.empty]
            of = typing.get_type_hints(function)[parameters[0].name]
            if len(required) == 1 and isinstance(of, type) and issubclass(of, Message):
                yield name, function, of


DEPTH = 2
READERS = list(readers())


def test_most_messages_have_a_reader_that_is_tested_here() -> None:
    assert len(READERS) >= 25


@pytest.mark.parametrize(("name", "read", "of"), READERS, ids=[name for name, _, _ in READERS])
@settings(
    max_examples=5,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_any_message_gives_a_value_or_says_what_is_bad(
    name: str, read: Callable[[Any], object], of: type[Message], data: st.DataObject
) -> None:
    with contextlib.suppress(SkipstoneError):
        read(data.draw(messages(of.DESCRIPTOR, DEPTH)))


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "read", "of"), READERS, ids=[name for name, _, _ in READERS])
@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_message_gives_a_value_or_says_what_is_bad_at_length(
    name: str, read: Callable[[Any], object], of: type[Message], data: st.DataObject
) -> None:
    with contextlib.suppress(SkipstoneError):
        read(data.draw(messages(of.DESCRIPTOR)))
