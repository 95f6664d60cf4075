"""Who may do what: the file of callers, tokens, rights and namespaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from skipstone_shared import reloaded
from skipstone_shared.access import AccessList, Caller, Right, read_callers, token_hash
from skipstone_shared.credentials import Credentials, read_token
from skipstone_shared.errors import InvalidArgument, PermissionDenied, Unauthenticated

TOKEN = "sks_0123456789abcdef"
GALLERY = f"""
[gallery]
tokens = ["{token_hash(TOKEN)}", "{token_hash("old")}"]
namespaces = ["gallery"]
rights = ["generate", "read"]
"""


def bearer(token: str) -> list[tuple[str, str | bytes]]:
    return [("authorization", f"Bearer {token}")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "access.toml"
    found.write_text(GALLERY)
    return found


def test_each_of_a_callers_tokens_lets_them_in(path: Path) -> None:
    access = AccessList(path)
    for token in (TOKEN, "old"):
        caller = access.caller(bearer(token))
        assert caller.name == "gallery"
        assert caller.rights == {Right.GENERATE, Right.READ}


@pytest.mark.parametrize(
    "metadata",
    [
        [],
        bearer("another"),
        bearer(""),
        bearer(TOKEN + " "),
        bearer("tökén"),
        [("authorization", TOKEN)],
        [("authorization", f"Basic {TOKEN}")],
        [("authorization", f"Bearer {TOKEN}".encode())],
        [*bearer(TOKEN), *bearer(TOKEN)],
        bearer(token_hash(TOKEN)),
        bearer(token_hash(TOKEN).removeprefix("sha256:")),
    ],
)
def test_nothing_else_lets_anybody_in_and_no_token_is_in_the_answer(
    path: Path, metadata: list[tuple[str, str | bytes]]
) -> None:
    with pytest.raises(Unauthenticated) as caught:
        AccessList(path).caller(metadata)
    assert TOKEN not in str(caught.value)


def test_a_changed_file_counts_and_a_broken_one_leaves_everyone_as_they_were(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reloaded, "CHECK_INTERVAL_S", 0.0)
    access = AccessList(path)
    path.write_text("[gallery")
    assert access.caller(bearer(TOKEN)).name == "gallery"
    path.write_text(GALLERY.replace("gallery", "museum"))
    assert access.caller(bearer(TOKEN)).name == "museum"
    path.write_text("# nobody\n")
    with pytest.raises(Unauthenticated):
        access.caller(bearer(TOKEN))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('["generate", "read"]', '["generate", "paint"]', "'paint' is not a valid Right"),
        ('["generate", "read"]', '"read"', "[gallery] rights: it must be a list of strings"),
        ('rights = ["generate", "read"]', "", "[gallery] rights: it must be a list of strings"),
        ('["gallery"]', "[]", "[gallery] namespaces: it must be a list of strings"),
        ('["gallery"]', '["a b"]', "[gallery] namespaces: 'a b' is not a name"),
        ('["gallery"]', '[""]', "[gallery] namespaces: '' is not a name"),
        ("sha256:", "md5:", "[gallery] tokens: each is sha256: and 64 hexadecimal digits"),
        ("rights", "right", "[gallery] right: there is no such key"),
        ("[gallery]", "gallery = 1\n[b]", "gallery must be a table"),
        ("[gallery]", "[gallery", "is not valid TOML"),
        ("[gallery]", GALLERY + "[twin]", "[twin] tokens: one is also of gallery"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_place(
    path: Path, old: str, new: str, told: str
) -> None:
    path.write_text(GALLERY.replace(old, new, 1))
    with pytest.raises(InvalidArgument) as caught:
        read_callers(path)
    assert told in str(caught.value)
    assert str(caught.value).startswith("access_file: ")


def test_a_token_that_was_pasted_in_place_of_its_hash_is_not_repeated(path: Path) -> None:
    path.write_text(GALLERY.replace(token_hash(TOKEN), TOKEN))
    with pytest.raises(InvalidArgument) as caught:
        read_callers(path)
    assert TOKEN not in str(caught.value)


def test_a_missing_file_is_told_with_its_setting(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"access_file: cannot read .*no such file"):
        AccessList(tmp_path / "nothing.toml")


CALLER = Caller("a", frozenset({"one", "default"}), frozenset({Right.READ}))
ADMIN = Caller("b", frozenset({"*"}), frozenset(Right))


def test_a_caller_may_do_what_they_have_the_right_for_where_it_is_theirs() -> None:
    for namespace in ("one", "default", ""):
        CALLER.check(Right.READ, namespace)
    for right in Right:
        ADMIN.check(right, "anything")
        ADMIN.check(right, None)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(PermissionDenied, match="the right write"):
        CALLER.check(Right.WRITE, "one")
    with pytest.raises(PermissionDenied, match="the namespace 'two'"):
        CALLER.check(Right.READ, "two")
    with pytest.raises(PermissionDenied, match="all namespaces"):
        CALLER.check(Right.READ, None)


def test_a_star_inside_a_name_is_no_pattern() -> None:
    with pytest.raises(PermissionDenied):
        CALLER.check(Right.READ, "*")


def test_a_token_file_may_end_in_a_line_break(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    assert read_token(path, "token_file") == TOKEN


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", b"\xff\xfe", b"a\x00b", b"x" * 5000])
def test_a_file_that_holds_no_token_is_refused_without_showing_it(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(InvalidArgument, match="token_file: ") as caught:
        read_token(path, "token_file")
    assert "words" not in str(caught.value)


def test_a_token_is_in_no_text_of_the_credentials() -> None:
    assert TOKEN not in repr(Credentials(token=TOKEN))


def test_one_of_two_tokens_must_be_chosen(path: Path) -> None:
    with pytest.raises(InvalidArgument, match="one of token and token_file"):
        Credentials(token=TOKEN, token_file=path)
