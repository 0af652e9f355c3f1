"""The jobs and faults of a chaos round."""

import random

import pytest

from chaos.faults.catalog import FAULTS, draw
from chaos.rounds import Size
from chaos.workloads import TOLERANCES, tolerances
from chaos.workloads import draw as draw_jobs
from tranche.kube.api.resources import TrainingJob

SIZE = Size()


@pytest.mark.parametrize("staged", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_a_round_has_each_kind_of_job_and_all_can_be_read(seed: int, staged: bool) -> None:
    arrivals = draw_jobs(random.Random(seed), SIZE.jobs, SIZE.seconds, staged=staged)
    specs = [TrainingJob.model_validate(one.body).spec for one in arrivals]
    assert len({one.name for one in arrivals}) == SIZE.jobs + 1
    assert any(spec.chief and spec.parameter_servers and not spec.data for spec in specs)
    assert any(spec.data and spec.data.staging for spec in specs) is staged
    assert any(spec.data and spec.parameter_servers for spec in specs)
    assert any(not spec.data and not spec.chief for spec in specs)


def test_chief_gangs_vary_in_chief_gpus_and_worker_ends() -> None:
    arrivals = draw_jobs(random.Random(1), 100, SIZE.seconds, staged=True)
    gangs = [one.body["spec"] for one in arrivals if "chief" in one.body["spec"]]
    limits = {str(gang["chief"]["template"]["spec"]["containers"][0]["resources"]["limits"]) for gang in gangs}
    assert len(limits) == 2
    ends = ["kwok.tranche.dev/run-seconds" in g["workers"]["template"]["metadata"]["annotations"] for g in gangs]
    assert set(ends) == {True, False}


def test_faults_of_chief_gangs_cover_every_role() -> None:
    for role in ("worker", "parameter server", "chief"):
        assert f"failed {role}" in FAULTS
    assert {"deleted pod", "lost parameter server", "lost chief", "lost staging pod", "suspended job"} <= FAULTS.keys()
    drawn = {fault.name for seed in range(80) for fault in draw(random.Random(seed), SIZE.faults, SIZE.seconds)}
    assert drawn == FAULTS.keys()


def test_half_of_rounds_declare_sites_with_all_tolerances() -> None:
    drawn = [tolerances(random.Random(seed)) for seed in range(100)]
    assert 30 < sum(not one for one in drawn) < 70
    assert {tolerance for one in drawn for tolerance in one.values()} == set(TOLERANCES)
