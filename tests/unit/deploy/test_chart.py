"""The chart renders, its values are checked, and its objects are what Kubernetes knows."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

import kubernetes_validate
import pytest
import yaml
from helm.values_schema import SCHEMA, SETTINGS, never_set, set_by_the_chart, whole_schema
from helm_python.chart import lint
from helm_python.errors import HelmError
from pydantic import ValidationError
from tests.unit.deploy.combinations import ALL_RELEASES, COMBINATIONS, PAIRS, SWITCHES, any_release
from tests.unit.deploy.rendered import (
    CHART,
    RELEASES,
    Manifest,
    of_kind,
    release,
    render,
    workloads,
)

SHAPES = ("defaults", "everything", "nothing kept", "stores outside", "as little as possible")
"""Releases that have every field between them; a schema takes a tenth of a second per object."""

LOWEST = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["kubeVersion"]


def long(names: Iterable[str]) -> Iterator[Any]:
    """Cases for the long suite."""
    return (pytest.param(name, marks=pytest.mark.long) for name in names)


@pytest.mark.parametrize("name", [*RELEASES, *long(COMBINATIONS)])
def test_every_release_passes_lint(name: str) -> None:
    report = lint(CHART, dict(ALL_RELEASES[name]), strict=True)
    told = [message for message in report["messages"] if message["severity"] > 1]
    assert (told, report["errors"], report["total_charts_linted"]) == ([], [], 1)


@pytest.mark.parametrize("version", ["lowest", "highest"])
@pytest.mark.parametrize("name", [*SHAPES, *long(ALL_RELEASES.keys() - SHAPES)])
def test_every_object_is_valid_in_the_lowest_and_the_highest_version(
    name: str, version: str
) -> None:
    lowest = LOWEST.removeprefix(">=").removesuffix(".0-0")
    wanted = lowest if version == "lowest" else kubernetes_validate.latest_version()
    manifests = any_release(name)
    assert manifests
    for manifest in manifests:
        if manifest["kind"] != "PodMonitor":  # of the Prometheus operator
            kubernetes_validate.validate(manifest, wanted, strict=True)


def check_by_the_operator(monitor: Manifest) -> None:
    """Raises what the schema of the operator (v0.80.1) would; unknown fields count too."""
    # Here, since it takes seconds to import.
    from cloudcoil.models.prometheus_operator.v1 import PodMonitor

    known = PodMonitor.model_validate(monitor).model_dump(
        mode="json", by_alias=True, exclude_unset=True
    )
    assert known == monitor


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [name for name, values in ALL_RELEASES.items() if "podMonitor" in values.get("metrics", {})],
)
def test_the_pod_monitor_is_one_of_the_prometheus_operator(name: str) -> None:
    is_measured = ALL_RELEASES[name]["metrics"].get("enabled", True)
    monitors = list(of_kind(any_release(name), "PodMonitor"))
    assert len(monitors) == is_measured
    for monitor in monitors:
        check_by_the_operator(monitor)


@pytest.mark.long
def test_a_pod_monitor_with_a_wrong_field_or_value_would_be_noticed() -> None:
    for wrong in ({"sourceLabel": ["x"]}, {"action": "rename"}):
        (monitor,) = of_kind(copy.deepcopy(release("everything")), "PodMonitor")
        monitor["spec"]["podMetricsEndpoints"][0]["relabelings"][0].update(wrong)
        with pytest.raises((AssertionError, ValidationError)):
            check_by_the_operator(monitor)


def test_any_two_choices_meet_in_a_release() -> None:
    """Written down in the names of the combinations, which have the choices but the defaults."""
    found = {frozenset(name.split(", ")) for name in PAIRS}
    defaults = {next(iter(choices)) for choices in SWITCHES.values()}
    for first, second in itertools.combinations(SWITCHES.values(), 2):
        for pair in itertools.product(first.keys() - defaults, second.keys() - defaults):
            assert any(chosen.issuperset(pair) for chosen in found), pair


def test_an_older_version_is_refused_for_a_reason() -> None:
    """preStop.sleep is on by default from 1.30, and unknown before 1.29."""
    (deployment, *_) = of_kind(release("defaults"), "Deployment")
    with pytest.raises(kubernetes_validate.ValidationError, match="sleep"):
        kubernetes_validate.validate(deployment, "1.28", strict=True)


def test_the_schema_is_up_to_date() -> None:
    """`make chart` writes it anew after a change of settings."""
    assert yaml.safe_load(SCHEMA.read_text(encoding="utf-8")) == whole_schema(), "run `make chart`"


@pytest.mark.parametrize("key", SETTINGS)
def test_every_setting_can_be_set_or_is_set_by_the_chart(key: str) -> None:
    schema = whole_schema()["$defs"][f"{key}Settings"]["properties"].keys()
    own = set_by_the_chart(key) | never_set(key)
    assert not own & schema
    secrets = {
        name
        for name, field in SETTINGS[key].model_fields.items()
        if "Secret" in str(field.annotation)
    }
    assert own | schema | secrets == SETTINGS[key].model_fields.keys()


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"latentKv": {"settings": {"quota_byte": 1}}}, "quota_byte"),
        ({"latentKv": {"settings": {"quota_bytes": -1}}}, "quota_bytes"),
        ({"latentKv": {"settings": {"port": 50053}}}, "port"),
        ({"denoise": {"settings": {"dtype": "int8"}}}, "dtype"),
        ({"latentkv": {}}, "latentkv"),
        ({"common": {"drainSecond": 1}}, "drainSecond"),
        ({"common": {"settings": {"quota_bytes": 1}}}, "quota_bytes"),
        ({"embedding": {"target": "somewhere"}}, "target"),
        ({"tls": {"enabled": True}}, "secretName"),
        ({"metrics": {"port": 99_999}}, "port"),
        ({"latentKv": {"replicas": 2}}, "replicas must be 1"),
        ({"vectorIndex": {"autoscaling": {"enabled": True}}}, "replicas must be 1"),
        ({"embedding": {"enabled": False}}, "embedding.target"),
        ({"gateway": {"settings": {"access_file": "callers"}}}, "access_file"),
        ({"gateway": {"ingress": {"enabled": True}}}, "host"),
        (
            {key: {"enabled": key == "gateway"} for key in SETTINGS},
            "gateway calls orchestrator: enable it, or set orchestrator.target",
        ),
        ({"embedding": {"target": "dns:///other:50051"}}, "embedding.target"),
        ({key: {"enabled": False} for key in SETTINGS}, "no service"),
    ],
)
def test_values_that_cannot_work_are_refused_by_name(values: Mapping[str, Any], told: str) -> None:
    with pytest.raises(HelmError, match=told):
        render(values)


def test_whatever_is_refused_as_the_charts_own_is_set_by_it() -> None:
    """Else there would be settings that nobody can reach."""
    found = workloads(release("everything"))
    assert len(found) == len(SETTINGS)
    for workload in found:
        prefix = f"SKIPSTONE_{workload.settings_class.service_name}_".upper()
        given = {variable.removeprefix(prefix).lower() for variable in workload.own_environment}
        assert set_by_the_chart(workload.key) <= given
        assert not never_set(workload.key) & given


@pytest.mark.parametrize(
    ("key", "setting", "own"),
    [("latentKv", "store", {"lmdb", "memory"}), ("vectorIndex", "engine", {"hnswlib"})],
)
def test_whoever_keeps_data_itself_has_one_writer(key: str, setting: str, own: set[str]) -> None:
    field = SETTINGS[key].model_fields[setting]
    engines = get_args(field.annotation)
    assert field.default in own < set(engines)
    for engine in engines:
        (workload,) = (
            found
            for found in workloads(render({key: {"settings": {setting: engine}}}))
            if found.key == key
        )
        assert (workload.manifest["kind"] == "StatefulSet") == (engine in own)
