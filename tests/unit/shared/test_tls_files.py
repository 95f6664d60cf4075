"""Certificates from files: what is refused, with whose name, and what a change does."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from tests.certificates import Authority, key_pem

from skipstone_shared.credentials import Credentials
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.reloaded import CHECK_INTERVAL_S, Reloaded
from skipstone_shared.tls_files import TlsFiles, read_tls


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_good_files_are_read_whole(authority: Authority) -> None:
    files = authority.write("server")
    assert files.cert_file is not None
    material = read_tls(files)
    assert material.cert == files.cert_file.read_bytes()
    assert material.ca == authority.file.read_bytes()


def test_the_key_is_in_no_text_of_it(authority: Authority) -> None:
    material = read_tls(authority.write("server"))
    assert material.key is not None
    assert "PRIVATE KEY" not in repr(material)


@pytest.mark.parametrize("kind", ["cert", "key", "ca"])
def test_a_missing_file_is_told_with_its_setting(authority: Authority, kind: str) -> None:
    files = authority.write("server")
    path: Path = getattr(files, f"{kind}_file")
    path.unlink()
    with pytest.raises(InvalidArgument, match=rf"tls_{kind}_file: cannot read .*no such file") as e:
        read_tls(files)
    assert e.value.field == f"tls_{kind}_file"


@pytest.mark.parametrize("kind", ["cert", "key", "ca"])
@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff\x00", b"-----BEGIN CERTIFICATE-----"])
def test_a_file_of_something_else_is_told_with_its_setting(
    authority: Authority, kind: str, content: bytes
) -> None:
    files = authority.write("server")
    path: Path = getattr(files, f"{kind}_file")
    path.write_bytes(content)
    with pytest.raises(InvalidArgument) as caught:
        read_tls(files)
    assert caught.value.field == f"tls_{kind}_file"
    assert str(path) in str(caught.value)


def test_the_key_of_another_certificate_is_refused(authority: Authority, tmp_path: Path) -> None:
    files, other = authority.write("server"), authority.write("other")
    with pytest.raises(InvalidArgument, match=r"tls_key_file: .*is not the unencrypted PEM key of"):
        read_tls(TlsFiles(files.cert_file, other.key_file))


def test_an_encrypted_key_is_refused_and_asks_nobody_for_a_password(
    authority: Authority, tmp_path: Path
) -> None:
    """OpenSSL would ask on the terminal, and a service would wait for ever."""
    files = authority.write("server")
    assert files.key_file is not None
    files.key_file.write_bytes(key_pem(ec.generate_private_key(ec.SECP256R1()), b"secret"))
    with pytest.raises(InvalidArgument, match="unencrypted"):
        read_tls(files)


def test_a_certificate_without_a_key_is_refused(authority: Authority) -> None:
    files = authority.write("server")
    with pytest.raises(InvalidArgument, match="tls_key_file"):
        read_tls(TlsFiles(cert_file=files.cert_file))


def test_a_client_shows_its_certificate_only_to_services_that_it_checks(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="client_tls_ca_file"):
        Credentials(tls_cert_file=tmp_path, tls_key_file=tmp_path, prefix="client_")


def test_a_changed_file_is_read_again_after_the_interval(tmp_path: Path) -> None:
    path, clock = tmp_path / "value", Clock()
    path.write_text("one")
    value = Reloaded("value", [path], path.read_text, clock)
    path.write_text("another")
    assert value.get() == "one"
    clock.now += CHECK_INTERVAL_S
    assert value.get() == "another"


def test_a_secret_that_is_switched_by_a_link_is_seen(tmp_path: Path) -> None:
    """Kubernetes does so: the path stays, its target changes."""
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "value").write_text(name)
    link, clock = tmp_path / "data", Clock()
    link.symlink_to(tmp_path / "old")
    path = link / "value"
    value = Reloaded("value", [path], path.read_text, clock)
    (tmp_path / "next").symlink_to(tmp_path / "new")
    (tmp_path / "next").replace(link)
    clock.now += CHECK_INTERVAL_S
    assert value.get() == "new"


def test_what_cannot_be_read_leaves_the_value_before_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, clock = tmp_path / "value", Clock()
    path.write_text("7")
    value = Reloaded("value", [path], lambda: int(path.read_text()), clock)
    path.write_text("nonsense")
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            clock.now += CHECK_INTERVAL_S
            assert value.get() == 7
    assert len(caplog.records) == 1
    assert "cannot reload value" in caplog.text
    path.write_text("12")
    clock.now += CHECK_INTERVAL_S
    assert value.get() == 12


def test_half_of_a_new_pair_leaves_the_old_pair(authority: Authority) -> None:
    files, clock = authority.write("server"), Clock()
    assert files.key_file is not None
    material = Reloaded("pair", files.paths, lambda: read_tls(files), clock)
    old, old_key = material.get(), files.key_file.read_bytes()
    authority.write("server")
    new_key = files.key_file.read_bytes()
    files.key_file.write_bytes(old_key)
    clock.now += CHECK_INTERVAL_S
    assert material.get() is old
    files.key_file.write_bytes(new_key)
    clock.now += CHECK_INTERVAL_S
    assert material.get().key == new_key
