"""Which flags the services of a local cluster are started with."""

from __future__ import annotations

import pytest

from skipstone_client._launch_flags import DEPENDENCIES, ClusterError, LaunchFlags, reachable
from skipstone_client.local_cluster import LocalCluster

TARGETS = {name: f"127.0.0.1:{5000 + i}" for i, name in enumerate(DEPENDENCIES)}


def flags_of(service, environ=None, file="", tmp_path=None, targets=TARGETS, **kwargs):
    config = None
    if file:
        config = tmp_path / "skipstone.toml"
        config.write_text(file)
    given = {"data_dir": None, "model": None, "flags": {}, "free_ports": False} | kwargs
    launch = LaunchFlags(environ or {}, config=config, **given)
    words = launch.of(service, targets)
    return dict(zip(words[::2], words[1::2], strict=True))


def test_services_get_the_targets_of_those_they_call():
    flags = flags_of(
        "orchestrator", targets={k: v for k, v in TARGETS.items() if k != "orchestrator"}
    )
    assert flags["--latent-kv-target"] == TARGETS["latent_kv"]
    assert flags["--vector-index-target"] == TARGETS["vector_index"]
    assert "--port" not in flags


def test_a_service_that_was_there_keeps_its_port():
    assert flags_of("latent_kv")["--port"] == TARGETS["latent_kv"].rpartition(":")[2]
    assert flags_of("latent_kv", targets={}, free_ports=True)["--port"] == "0"


def test_a_target_that_the_user_set_is_left_alone(tmp_path):
    file = '[orchestrator]\ndenoise_target = "gpu-host:50054"\n'
    assert "--denoise-target" not in flags_of("orchestrator", file=file, tmp_path=tmp_path)
    environ = {"SKIPSTONE_ORCHESTRATOR_EMBEDDING_TARGET": "other:1"}
    flags = flags_of("orchestrator", environ)
    assert "--embedding-target" not in flags
    assert "--denoise-target" in flags


def test_the_data_directory_is_the_flag_then_the_users_setting_then_the_default(tmp_path):
    environ = {"SKIPSTONE_LATENT_KV_DATA_DIR": "/elsewhere"}
    assert flags_of("latent_kv", environ, data_dir="d")["--data-dir"] == "d/latent_kv"
    assert "--data-dir" not in flags_of("latent_kv", environ)
    assert flags_of("latent_kv")["--data-dir"] == "out/data/latent_kv"
    assert "--data-dir" not in flags_of("denoise", data_dir="d")


def test_the_model_goes_to_the_executor_alone():
    assert flags_of("denoise", model="m")["--model"] == "m"
    assert "--model" not in flags_of("orchestrator", model="m")


def test_a_configuration_file_that_is_missing_or_broken_is_named(tmp_path):
    with pytest.raises(ClusterError, match=r"cannot read configuration file .*missing\.toml"):
        LocalCluster(config=tmp_path / "missing.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("[denoise\n")
    with pytest.raises(ClusterError, match="not valid TOML"):
        LocalCluster(config=broken)


def test_flags_for_a_service_that_does_not_exist_are_refused():
    with pytest.raises(ClusterError, match="latent_vk is no service"):
        LocalCluster(flags={"latent_vk": ["--port", "1"]})


def test_a_service_that_listens_everywhere_is_reached_on_this_machine():
    assert reachable("0.0.0.0:50050") == "127.0.0.1:50050"
    assert reachable("10.0.0.3:50050") == "10.0.0.3:50050"


def test_a_service_that_speaks_tls_is_asked_on_a_port_of_its_own() -> None:
    """The cluster has no certificate, and need not have one to see that a service serves."""
    environ = {"SKIPSTONE_LATENT_KV_TLS_CERT_FILE": "server.crt"}
    given = {"vector_index": ["--tls-cert-file", "server.crt"]}
    flags = LaunchFlags(environ, None, None, None, given, free_ports=False)
    for service, speaks_tls in (("latent_kv", True), ("vector_index", True), ("embedding", False)):
        assert ("--health-port" in flags.of(service, {})) is speaks_tls
