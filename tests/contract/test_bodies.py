"""Requests that kube-scheduler really sends (recorded by record.py) are read, and answered in its format."""

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from support.extender_objects import Stores, job, window
from tranche.extender.app import create_app
from tranche.extender.wire_format import decode_binding, decode_candidates, decode_names
from tranche.kube.convert.pod_identity import Identity, controlled_identity, plan_stamp
from tranche.kube.convert.pod_shape import pod_constraints, pod_requests
from tranche.metrics.scheduler import Metrics
from tranche.model import Resources

HERE = Path(__file__).parent
RECORDED = sorted(HERE.glob("*-v*.json"))
NODES = ["edge-a-0", "edge-a-1", "edge-a-2"]


def recorded(verb: str) -> list[Path]:
    return [file for file in RECORDED if file.name.startswith(f"{verb}-")]


def test_every_verb_was_recorded() -> None:
    assert all(recorded(verb) for verb in ("filter", "prioritize", "preempt", "bind"))


@pytest.mark.parametrize("file", recorded("filter") + recorded("prioritize"), ids=lambda file: file.stem)
def test_pod_and_names_are_read(file: Path) -> None:
    asked = decode_names(file.read_bytes())
    assert controlled_identity(asked.pod) == Identity("default/cats", "worker", 0, 1)
    assert plan_stamp(asked.pod) == (1, 7)
    assert pod_requests(asked.pod) == Resources(cpu=500, memory=64 * 2**20, gpus=2, pods=1)
    assert pod_constraints(asked.pod).objection(NODES[1], {}, ()) is None
    assert pod_constraints(asked.pod).objection("other", {}, ()) is not None
    assert sorted(asked.nodes) == NODES


@pytest.mark.parametrize("file", recorded("preempt"), ids=lambda file: file.stem)
def test_victims_are_read(file: Path) -> None:
    asked = decode_candidates(file.read_bytes())
    assert asked.pod.metadata.name == "evictor"
    assert sorted(asked.victims) == NODES
    assert all(victims.pods[0].uid for victims in asked.victims.values())


@pytest.mark.parametrize("file", recorded("bind"), ids=lambda file: file.stem)
def test_binding_args_with_any_field_case_are_decoded(file: Path) -> None:
    body = json.loads(file.read_bytes())
    asked = decode_binding(file.read_bytes())
    assert (asked.pod_namespace, asked.pod_name, asked.pod_uid) == ("default", "cats-worker-0-1", body["PodUID"])
    assert asked.node in NODES
    assert decode_binding(json.dumps({name.lower(): value for name, value in body.items()}).encode()) == asked


@pytest.mark.parametrize("file", [f for f in RECORDED if f not in recorded("bind")], ids=lambda file: file.stem)
def test_the_answer_is_the_same_however_the_names_are_written(file: Path) -> None:
    stores = Stores(NODES)
    made = job("cats", window(0, 1, NODES[1], NODES[2]), stamp=(1, 7), namespace="default")
    stores.jobs.put(made.key, made)
    client = TestClient(create_app(stores, Metrics(), list))
    body: dict[str, Any] = json.loads(file.read_bytes())
    verb = file.name.split("-")[0]
    answers = [
        client.post(f"/{verb}", json=body).json(),
        client.post(f"/{verb}", json={name.lower(): value for name, value in body.items()}).json(),
    ]
    assert answers[0] == answers[1]
    assert NODES[1] in json.dumps(answers[0])
