"""The configuration of kube-state-metrics asks for fields that a TrainingJob has, as its CRD says."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from support.yaml_text import load_yaml
from tranche.metrics.scheduler import PHASES

CHART = Path(__file__).resolve().parents[3] / "helm/tranche/files"
CONFIG: dict[str, Any] = load_yaml((CHART / "kube-state-metrics.yaml").read_text())
RESOURCE: dict[str, Any] = CONFIG["spec"]["resources"][0]


@pytest.fixture(scope="module")
def definition() -> dict[str, Any]:
    text = (CHART / "crds/trainingjobs.yaml").read_text()
    return dict(yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def field(definition: dict[str, Any], path: list[str]) -> dict[str, Any]:
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for part in path:
        assert part in schema["properties"], path
        schema = schema["properties"][part]
    return dict(schema)


def test_it_names_the_resource_of_the_crd(definition: dict[str, Any]) -> None:
    kind, spec = RESOURCE["groupVersionKind"], definition["spec"]
    assert (kind["group"], kind["kind"]) == (spec["group"], spec["names"]["kind"])
    assert kind["version"] in [version["name"] for version in spec["versions"]]


def test_every_gauge_is_a_number_or_a_time_of_the_crd(definition: dict[str, Any]) -> None:
    for metric in RESOURCE["metrics"]:
        if metric["each"]["type"] == "Gauge":
            gauge = metric["each"]["gauge"]
            assert field(definition, gauge["path"])["type"] == "object"
            assert len(gauge["valueFrom"]) == 1, "longer ones are not read below a map"
            found = field(definition, [*gauge["path"], *gauge["valueFrom"]])
            assert found["type"] in ("integer", "number") or found["format"] == "date-time", metric["name"]


def test_the_phases_are_those_of_the_crd(definition: dict[str, Any]) -> None:
    listed = RESOURCE["metrics"][0]["each"]["stateSet"]["list"]
    assert listed == field(definition, ["status", "phase"])["enum"] == list(PHASES)


def test_names_do_not_collide_with_the_processes_own() -> None:
    assert RESOURCE["metricNamePrefix"] == "tranche_trainingjob"
    names = [metric["name"] for metric in RESOURCE["metrics"]]
    assert len(set(names)) == len(names)
    assert all(metric["help"] for metric in RESOURCE["metrics"])
