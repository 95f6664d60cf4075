"""No secret of any service is taken where lists of processes show it, and none is printed."""

from __future__ import annotations

import pytest
from tests.service_settings import SETTINGS

from skipstone_shared.config import ServiceSettings, resolve_settings
from skipstone_shared.config_sources import ConfigError, flag_name, has_flag, is_secret
from skipstone_shared.url_secrets import holds_password, without_login, without_secrets

SECRET = "a-word-nobody-may-see"
WITH_PASSWORD = [f"http://user:{SECRET}@host:1/x", f"postgresql://host/db?password={SECRET}"]


SECRETS = [
    (cls, name) for cls in SETTINGS for name, field in cls.model_fields.items() if is_secret(field)
]


def test_there_are_secrets_to_look_at() -> None:
    assert {"redis_password", "url", "api_key"} <= {name for _, name in SECRETS}


@pytest.mark.parametrize(("cls", "name"), SECRETS)
@pytest.mark.parametrize("value", WITH_PASSWORD)
def test_a_secret_is_refused_as_a_flag_without_repeating_it(
    cls: type[ServiceSettings], name: str, value: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        resolve_settings(cls, [flag_name(name), value], {})
    assert SECRET not in str(refused.value)
    if has_flag(cls.model_fields[name]):
        assert "holds a password" in str(refused.value)


@pytest.mark.parametrize(
    ("url", "holds", "shown"),
    [
        ("redis://u:p@h:1/2", True, "redis://h:1/2"),
        ("redis://h:1?password=p", True, "redis://h:1"),
        ("postgresql://h/d?sslPassword=p", True, "postgresql://h/d"),
        ("redis://u@h:1/2", False, "redis://h:1/2"),
        ("redis://h:1?db=2", False, "redis://h:1"),
        ("unix:///run/redis.sock?password=p", True, "unix:///run/redis.sock"),
        ("http://[::1:80/p@x", True, "a value"),
        ("nothing", False, "a value"),
    ],
)
def test_passwords_of_urls_are_found_and_not_shown(url: str, holds: bool, shown: str) -> None:
    assert (holds_password(url), without_secrets(url)) == (holds, shown)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://u:p@h:1/2", "redis://h:1/2"),
        ("redis://h:1?username=u&db=2&password=p", "redis://h:1?db=2"),
        ("redis://h:1?db=2&a=", "redis://h:1?a=&db=2"),
        ("postgresql://h/d?User=u&sslPassword=p&host=%2Frun", "postgresql://h/d?host=%2Frun"),
        ("http://[::1:80/p@x?db=1", "a value"),
        ("nothing?db=1", "a value"),
    ],
)
def test_a_place_is_told_by_all_of_a_url_but_who_asks(url: str, place: str) -> None:
    assert without_login(url) == place
