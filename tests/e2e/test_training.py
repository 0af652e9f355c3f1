"""Training in real containers, by tranche as its chart installs it."""

from collections import Counter
from collections.abc import Iterator

import pytest

from support.real_lab import DIGIT_BATCHES, DIGIT_CHUNKS, Installed
from support.training_programs import trains

EPOCHS, WORKERS = 100, 3
EACH_ONCE = {(chunk, batch): 1 for chunk in range(DIGIT_CHUNKS) for batch in range(EPOCHS * DIGIT_BATCHES)}
SECONDS = 400
"""Limit of a training, which took more than 120 s beside three chaos rounds."""


def resume_points(installed: Installed, job: str) -> list[str]:
    """Return TRANCHE_RESUME of the pods of a job that have one."""
    variables = [one for pod in installed.pods(job) for one in pod["spec"]["containers"][0]["env"]]
    return [one["value"] for one in variables if one["name"] == "TRANCHE_RESUME" and one.get("value")]


def finish_digits(installed: Installed, name: str) -> float:
    """Wait until a job of the digits has succeeded and its server has saved; return its loss."""
    installed.until_phase(name, "Succeeded", SECONDS)
    installed.until("its server has ended", lambda: any(line[1] == "ps-0" for line in installed.ended(name)))
    return installed.loss(name)


@pytest.fixture(scope="module")
def calm(installed: Installed) -> Iterator[float]:
    """Loss of an undisturbed run of the example with a parameter server."""
    installed.submit_digits("calm", epochs=EPOCHS, workers=WORKERS)
    yield finish_digits(installed, "calm")
    installed.delete("calm")


def test_job_trains_all_chunks_in_real_containers(installed: Installed) -> None:
    installed.submit_program("first", trains(2.0, 50), chunks=3, seconds=2.0)
    progress = installed.until_phase("first", "Succeeded", SECONDS)["progress"]
    assert (progress["chunks"], progress["done"]) == ("3/3", "0-2")
    assert {line[3] for line in installed.ended("first")} == {"Succeeded"}
    assert "SidecarsStopped" not in installed.events("first")
    installed.delete("first")


def test_preempted_worker_saves_and_resumes_in_a_new_container(installed: Installed) -> None:
    both = ("large", "other")
    for name in both:
        installed.submit_program(name, trains(20.0, 50), chunks=2, seconds=20.0)
    installed.until("four workers", lambda: sum(installed.status(one).get("activeWorkers", 0) for one in both) == 4)
    running = [pod["metadata"]["name"] for name in both for pod in installed.pods(name)]
    installed.until("ten batches each", lambda: all(len(installed.logs(pod).split()) >= 20 for pod in running))
    installed.submit_program("small", trains(1.0, 50), seconds=1.0)
    installed.until_phase("small", "Succeeded", SECONDS)
    [victim] = [name for name in both if installed.status(name)["progress"].get("preemptions")]
    resumed = installed.until("a second attempt", lambda: resume_points(installed, victim))
    assert 10 <= int(resumed[0].partition(":")[2]) < 50
    for name in both:
        installed.until_phase(name, "Succeeded", SECONDS)
    history = installed.plugin("history", victim)
    assert "Preempted" in history
    assert "143" in history
    assert "default/small" in history
    installed.delete(*both, "small")


@pytest.mark.parametrize(("shares", "code"), [(True, "143"), (False, "137")])
def test_program_without_handler_stops_unless_it_is_first(installed: Installed, shares: bool, code: str) -> None:
    name = f"deaf-{code}"
    pod = {"shareProcessNamespace": shares, "terminationGracePeriodSeconds": 3}
    installed.submit_program(name, "import time; print('begun', flush=True); time.sleep(600)", pod=pod)
    installed.until(
        "it runs", lambda: any("begun" in installed.logs(one["metadata"]["name"]) for one in installed.pods(name))
    )
    installed.cluster.kubectl("delete", "pod", installed.pods(name)[0]["metadata"]["name"], "--wait=false")
    ended = installed.until("it has ended", lambda: installed.ended(name))
    assert ended[0][3:5] == ["Preempted", code]
    installed.delete(name)


def test_undisturbed_server_applies_each_batch_once(installed: Installed, calm: float) -> None:
    assert Counter(installed.applied("calm")) == EACH_ONCE
    assert calm < 1.0


def test_preempted_job_with_a_server_trains_as_well(installed: Installed, calm: float) -> None:
    installed.submit_digits("disturbed", epochs=EPOCHS, workers=WORKERS)
    installed.until("batches are applied", lambda: len(installed.applied("disturbed")) > 100)
    for number in range(2):
        installed.submit_program(f"small-{number}", trains(1.0, 50), seconds=1.0, priorityClassName="tranche-high")
    installed.submit_program("wide", trains(1.0, 50), seconds=1.0, chunks=4, priorityClassName="tranche-high")
    loss = finish_digits(installed, "disturbed")
    assert installed.status("disturbed")["progress"]["preemptions"] > 0
    assert Counter(installed.applied("disturbed")) == EACH_ONCE
    assert loss == pytest.approx(calm, rel=0.02)
    installed.delete("disturbed", "small-0", "small-1", "wide")


def test_killed_server_loses_only_what_it_had_not_saved(installed: Installed, calm: float) -> None:
    installed.submit_digits("killed", epochs=EPOCHS, workers=WORKERS)
    installed.until("batches are applied", lambda: len(installed.applied("killed")) > 200)
    [server] = [pod for pod in installed.pods("killed") if pod["metadata"]["labels"]["tranche.dev/role"] == "ps"]
    installed.kill(server)
    loss = finish_digits(installed, "killed")
    assert set(Counter(installed.applied("killed"))) == set(EACH_ONCE)
    failed = [line for line in installed.ended("killed") if line[3] == "Failed"]
    assert [line[4] for line in failed] == ["137"], failed
    assert installed.status("killed")["progress"]["failures"] == 1
    assert loss == pytest.approx(calm, rel=0.02)
    installed.delete("killed")
