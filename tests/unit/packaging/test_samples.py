"""Samples are jobs that are planned."""

from pathlib import Path

import pytest

from support.yaml_text import load_all_yaml
from tranche.kube.api.names import GPU_RESOURCE
from tranche.kube.api.resources import TrainingJob
from tranche.kube.convert.trainingjob import to_job
from tranche.planner.handlers.job import objection
from tranche.policies import get_policy

SAMPLES = Path(__file__).parents[3] / "manifests" / "samples"


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_sample_is_planned_on_a_default_installation(path: Path) -> None:
    for body in load_all_yaml(path.read_text()):
        if body["kind"] != "TrainingJob":
            continue
        created = {"namespace": "default", "uid": "u", "creationTimestamp": "2026-11-22T00:00:00Z"}
        job = to_job(TrainingJob.model_validate({**body, "metadata": {**body["metadata"], **created}}), (GPU_RESOURCE,))
        assert objection(get_policy("chunk"), job) is None
