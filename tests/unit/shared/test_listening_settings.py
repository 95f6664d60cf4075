"""Settings of certificates that make no sense together are refused before anything starts."""

from __future__ import annotations

import pytest

from skipstone_shared.config import ConfigError, ServiceSettings, resolve_settings
from skipstone_shared.grpc_listening import is_loopback


class Settings(ServiceSettings):
    """A service."""

    service_name = "latent_kv"


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--tls-cert-file", "a"], "tls_cert_file and tls_key_file need each other"),
        (["--tls-key-file", "a"], "tls_cert_file and tls_key_file need each other"),
        (["--tls-ca-file", "a"], "tls_ca_file needs tls_cert_file and tls_key_file"),
    ],
)
def test_half_of_what_tls_needs_is_refused(flags: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        resolve_settings(Settings, flags, {})


def test_by_default_only_this_machine_is_listened_to() -> None:
    assert is_loopback(Settings().host)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("gallery.example", False),
        ("", False),
    ],
)
def test_what_others_reach_is_known(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
