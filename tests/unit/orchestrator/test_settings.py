"""Settings: defaults make the published policy; what cannot be right is refused with a sentence."""

from __future__ import annotations

import pytest

from skipstone_orchestrator.config import OrchestratorSettings
from skipstone_orchestrator.reuse_policy import ReusePolicy
from skipstone_shared.config import ConfigError, resolve_settings
from skipstone_shared.orchestration import CacheMode, ReuseKind


def settings_of(*flags: str, **environ: str) -> OrchestratorSettings:
    return resolve_settings(OrchestratorSettings, flags, environ)[0]


def test_the_defaults_make_the_published_policy() -> None:
    # The gate decides, so that the search only has to bring its candidates.
    assert settings_of().policy() == ReusePolicy(min_similarity=0.3)
    assert settings_of().gate == "rerank"


def test_a_flag_beats_the_environment_and_both_beat_the_default() -> None:
    name = "SKIPSTONE_ORCHESTRATOR_CACHE_MODE"
    assert settings_of(**{name: "off"}).default_mode is CacheMode.OFF
    both = settings_of("--cache-mode", "read_only", **{name: "off"})
    assert both.default_mode is CacheMode.READ_ONLY


def test_table_and_kind_can_be_set_by_flag() -> None:
    policy = settings_of(
        "--similarity-table", "0.9:20,0.8:10", "--reuse-kind", "trajectory"
    ).policy()
    assert [(t.above, t.level) for t in policy.tables.renoise] == [(0.9, 0.6), (0.8, 0.8)]
    assert policy.default_kind is ReuseKind.TRAJECTORY


@pytest.mark.parametrize(
    ("flag", "value", "says"),
    [
        ("--calibration-file", "missing.json", "missing.json cannot be read"),
        ("--similarity-table", "0.8:10,0.9:20", "both fall"),
        ("--similarity-table", "0.9:10,0.8:20", "both fall"),
        ("--similarity-table", "0.9", "score:k"),
        ("--similarity-table", "1.5:10", "score:k"),
        ("--similarity-table", "0.9:50", "score:k"),
        ("--similarity-table", "[]", "at least one row"),
        ("--cache-mode", "sometimes", "read_write"),
        ("--sigma-floor", "1", "less than 1"),
        ("--key-levels", "0.5,1.5", "between 0 and 1"),
        ("--lease-s", "0.5", "greater than or equal to 1"),
        ("--top-k", "101", "less than or equal to 100"),
        ("--embedding-timeout-s", "nan", "finite"),
    ],
)
def test_what_cannot_be_right_is_refused(flag: str, value: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        settings_of(flag, value)
