"""The protos are the manual: every element is explained, and the shared shape of requests holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import grpc_tools
import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[3]
PROTOS = ROOT / "protos"

# Field numbers inside the descriptors; a source location's path is made of them.
MESSAGES, ENUMS, SERVICES = 4, 5, 6
NESTED_MESSAGES, NESTED_ENUMS, FIELDS, ONEOFS = 3, 4, 2, 8
VALUES = METHODS = 2

# They ask about the server, or which namespaces there are, and not about anybody's data; or are
# about all of it, for who administers all namespaces.
REQUESTS_WITHOUT_NAMESPACE = {
    "GetCapabilitiesRequest",
    "ListNamespacesRequest",
    "GetMissedWritesRequest",
    "MigrateEntriesRequest",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[FileDescriptorProto]:
    """Our protos as descriptors with their comments."""
    out = tmp_path_factory.mktemp("descriptors") / "all.binpb"
    protos = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.glob("skipstone/**/*.proto"))
    code = protoc.main(
        [
            "protoc",
            f"-I{PROTOS}",
            f"-I{ROOT / 'third_party' / 'googleapis'}",
            f"-I{Path(grpc_tools.__file__).parent / '_proto'}",
            "--include_source_info",
            f"--descriptor_set_out={out}",
            *protos,
        ]
    )
    assert code == 0
    assert protos
    return list(FileDescriptorSet.FromString(out.read_bytes()).file)


def test_every_element_has_a_comment(files: list[FileDescriptorProto]) -> None:
    missing = [
        f"{file.name}: {name}"
        for file in files
        for name, comment in commented(file)
        if not comment.strip()
    ]
    assert not missing, "no leading comment:\n" + "\n".join(missing)


def test_every_rpc_says_its_errors(files: list[FileDescriptorProto]) -> None:
    missing = [
        f"{service.name}.{method.name}"
        for file in files
        for i, service in enumerate(file.service)
        for j, method in enumerate(service.method)
        if "Errors:" not in comments(file).get((SERVICES, i, METHODS, j), "")
    ]
    assert not missing, "rpc comments without an `Errors:` part: " + ", ".join(missing)


def test_namespace_is_field_1_of_every_request(files: list[FileDescriptorProto]) -> None:
    """A forgotten namespace would read or write another tenant's entries."""
    messages = {
        f".{file.package}.{message.name}": message
        for file in files
        for message in file.message_type
    }
    wrong = []
    for file in files:
        for service in file.service:
            for method in service.method:
                request = messages[method.input_type]
                first = next((f.name for f in request.field if f.number == 1), None)
                if first != "namespace" and request.name not in REQUESTS_WITHOUT_NAMESPACE:
                    wrong.append(f"{service.name}.{method.name}({request.name}): {first}")
    assert not wrong, "`namespace` is not field 1:\n" + "\n".join(wrong)


def test_every_rpc_has_its_own_request_and_response(files: list[FileDescriptorProto]) -> None:
    """Two rpcs that share a message cannot change apart."""
    for file in files:
        for service in file.service:
            for method in service.method:
                assert method.input_type.endswith(f".{method.name}Request")
                assert method.output_type.endswith(f".{method.name}Response")


def comments(file: FileDescriptorProto) -> dict[tuple[int, ...], str]:
    """Leading comments by location path."""
    return {tuple(loc.path): loc.leading_comments for loc in file.source_code_info.location}


def commented(file: FileDescriptorProto) -> Iterator[tuple[str, str]]:
    """Name and comment of every element of a file."""
    texts = comments(file)
    for i, service in enumerate(file.service):
        yield from in_service(service, texts, (SERVICES, i))
    for i, message in enumerate(file.message_type):
        yield from in_message(message, texts, (MESSAGES, i), "")
    for i, enum in enumerate(file.enum_type):
        yield from in_enum(enum, texts, (ENUMS, i), "")


def in_service(
    service: ServiceDescriptorProto, texts: dict[tuple[int, ...], str], path: tuple[int, ...]
) -> Iterator[tuple[str, str]]:
    yield service.name, texts.get(path, "")
    for i, method in enumerate(service.method):
        yield f"{service.name}.{method.name}", texts.get((*path, METHODS, i), "")


def in_message(
    message: DescriptorProto, texts: dict[tuple[int, ...], str], path: tuple[int, ...], parent: str
) -> Iterator[tuple[str, str]]:
    if message.options.map_entry:
        return  # made by protoc for map<,>, nobody can comment it
    name = f"{parent}{message.name}"
    yield name, texts.get(path, "")
    for i, field in enumerate(message.field):
        yield f"{name}.{field.name}", texts.get((*path, FIELDS, i), "")
    for i, oneof in enumerate(message.oneof_decl):
        if not is_synthetic(message.field, i):
            yield f"{name}.{oneof.name}", texts.get((*path, ONEOFS, i), "")
    for i, nested in enumerate(message.nested_type):
        yield from in_message(nested, texts, (*path, NESTED_MESSAGES, i), f"{name}.")
    for i, enum in enumerate(message.enum_type):
        yield from in_enum(enum, texts, (*path, NESTED_ENUMS, i), f"{name}.")


def in_enum(
    enum: EnumDescriptorProto, texts: dict[tuple[int, ...], str], path: tuple[int, ...], parent: str
) -> Iterator[tuple[str, str]]:
    name = f"{parent}{enum.name}"
    yield name, texts.get(path, "")
    for i, value in enumerate(enum.value):
        yield f"{name}.{value.name}", texts.get((*path, VALUES, i), "")


def is_synthetic(fields: Iterable[FieldDescriptorProto], oneof_index: int) -> bool:
    """Whether protoc made this oneof for an `optional` field."""
    members = [f for f in fields if f.HasField("oneof_index") and f.oneof_index == oneof_index]
    return len(members) == 1 and members[0].proto3_optional
