"""The table of what each rpc needs is whole: a new rpc or a new reference breaks these tests."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

import skipstone
from skipstone_shared.access import Caller, Right
from skipstone_shared.access_rules import RULES, rule_of
from skipstone_shared.errors import PermissionDenied

DEPTH = 5
"""Levels of messages inside each other that are filled; references lie at most 4 deep."""


def rpcs() -> Iterator[tuple[str, MethodDescriptor]]:
    """Every rpc of every proto of Skipstone."""
    for found in pkgutil.walk_packages(skipstone.__path__, "skipstone."):
        if found.name.endswith("_pb2"):
            file = importlib.import_module(found.name).DESCRIPTOR
            for service in file.services_by_name.values():
                for method in service.methods:
                    yield f"/{service.full_name}/{method.name}", method


def filled(descriptor: Descriptor, depth: int = DEPTH) -> Message:
    """A message in which every namespace names itself, wherever it lies."""
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if field.type == FieldDescriptor.TYPE_MESSAGE and depth:
            if field.message_type.GetOptions().map_entry:
                continue
            inner = filled(field.message_type, depth - 1)
            if field.is_repeated:
                getattr(message, field.name).append(inner)
            else:
                getattr(message, field.name).CopyFrom(inner)
        elif field.name == "namespace":
            setattr(message, field.name, f"of.{descriptor.name}.{depth}")
    return message


def named(message: Any) -> set[str]:
    """Every namespace that is named anywhere in a message."""
    found: set[str] = set()
    for field, value in message.ListFields():
        if field.name == "namespace":
            found.add(value)
        elif field.type == FieldDescriptor.TYPE_MESSAGE and not (
            field.message_type.GetOptions().map_entry
        ):
            for inner in value if field.is_repeated else [value]:
                found |= named(inner)
    return found


def test_every_rpc_has_a_rule_and_every_rule_an_rpc() -> None:
    assert {name for name, _ in rpcs()} == set(RULES)


@pytest.mark.parametrize(("name", "method"), list(rpcs()))
def test_every_namespace_that_a_request_names_is_checked(
    name: str, method: MethodDescriptor
) -> None:
    request = filled(method.input_type)
    expected = named(request)
    rule = RULES[name]
    asked: Any = request.SerializeToString() if name.endswith("/WriteLatent") else request
    if rule.right is None:
        assert not expected, "any token will do only where no namespace is touched"
    elif not expected:
        assert list(rule.namespaces(asked)) == [None]
    else:
        touched = set(rule.namespaces(asked))
        assert touched >= expected or touched == {None}


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.right])
def test_a_caller_of_another_namespace_is_refused_everywhere(name: str) -> None:
    descriptor = dict(rpcs())[name].input_type
    request = GetMessageClass(descriptor)()
    if "namespace" in descriptor.fields_by_name:
        request.namespace = "theirs"  # type: ignore[attr-defined]
    asked: Any = request
    if name.endswith("/WriteLatent"):
        request.header.SetInParent()  # type: ignore[attr-defined]
        asked = request.SerializeToString()
    with pytest.raises(PermissionDenied):
        RULES[name].check(Caller("me", frozenset({"mine"}), frozenset(Right)), asked)


def test_what_has_no_rule_is_refused_to_everyone() -> None:
    with pytest.raises(PermissionDenied, match="no rule"):
        rule_of("/skipstone.new.v1.New/Call")


def test_who_is_connected_is_shown_to_administrators_of_everything_alone() -> None:
    rule = rule_of("/grpc.channelz.v1.Channelz/GetServers")
    rule.check(Caller("root", frozenset({"*"}), frozenset({Right.ADMIN})), None)
    for caller in (
        Caller("a", frozenset({"*"}), frozenset({Right.READ})),
        Caller("b", frozenset({"b"}), frozenset(Right)),
    ):
        with pytest.raises(PermissionDenied):
            rule.check(caller, None)
