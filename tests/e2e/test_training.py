"""TrainingJobs whose workers train in real containers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.full_stack import VALIDATED, Whole
from support.real_pods import MOUNTS, VOLUMES, container
from tranche.demo.local_stack import Stack, apply_manifests
from tranche_testcluster import Cluster
from tranche_testcluster.node import HostState, RealNode
from tranche_testcluster.node.reservation import Reservation

LIBRARY = Path(__file__).resolve().parents[2] / "worker"
TRAINS = f"""
import sys, time
sys.path.insert(0, {str(LIBRARY)!r})
from tranche_worker import Session, assignment
with Session(assignment()) as session:
    for chunk, batch in session.batches():
        time.sleep(SECONDS)
        session.trained({{chunk: batch + 1}})
        print(batch, flush=True)
    session.saved()
sys.exit(session.exit_code)
"""
"""Program that trains with the worker library; a batch takes SECONDS."""
BATCHES = 50


@pytest.fixture(scope="module")
def whole() -> Iterator[Whole]:
    """tranche on a cluster with one real node; afterwards the machine is as before."""
    Reservation().close()  # removes what earlier processes have left
    before = HostState.read()
    with Cluster() as cluster:
        apply_manifests(cluster)
        with (
            RealNode(cluster, "real-0", site="edge-a", gpus=1),
            Stack(cluster, scheduler_options=VALIDATED) as stack,
        ):
            yield Whole(cluster, stack)
    assert before.changes(HostState.read()) == []


def submit(whole: Whole, name: str, chunks: int, seconds: float) -> None:
    """Submit a job whose chunks take some seconds each, on the network of the node, where the report API is."""
    mounts = [*MOUNTS, {"name": "library", "mountPath": str(LIBRARY), "readOnly": True}]
    main = container(TRAINS.replace("SECONDS", str(seconds / BATCHES)), volumeMounts=mounts)
    volumes = [*VOLUMES, {"name": "library", "hostPath": {"path": str(LIBRARY), "type": "Directory"}}]
    pod = {"hostNetwork": True, "dnsPolicy": "Default", "volumes": volumes}
    whole.submit(name, chunks=chunks, seconds=seconds, container=main, pod=pod)


def resume_points(whole: Whole, job: str) -> list[str]:
    """Return TRANCHE_RESUME of the pods of a job that have one."""
    variables = [one for pod in whole.pods(job) for one in pod["spec"]["containers"][0]["env"]]
    return [one["value"] for one in variables if one["name"] == "TRANCHE_RESUME" and one.get("value")]


def test_job_trains_all_chunks_in_real_containers(whole: Whole) -> None:
    submit(whole, "first", chunks=2, seconds=2.0)
    progress = whole.until_phase("first", "Succeeded", 60)["progress"]
    assert (progress["chunks"], progress["done"]) == ("2/2", "0-1")
    whole.delete("first")


def test_preempted_worker_saves_and_resumes_in_a_new_container(whole: Whole) -> None:
    submit(whole, "large", chunks=1, seconds=20.0)
    whole.until("large runs", lambda: whole.status("large").get("activeWorkers") == 1, 30)
    whole.until("ten batches", lambda: len(whole.cluster.kubectl("logs", "large-worker-0-1").split()) >= 10, 30)
    submit(whole, "small", chunks=1, seconds=1.0)
    whole.until_phase("small", "Succeeded", 60)
    resumed = whole.until("a second attempt", lambda: resume_points(whole, "large"), 30)
    assert 10 <= int(resumed[0].removeprefix("0:")) < BATCHES
    status = whole.until_phase("large", "Succeeded", 60)
    assert status["progress"]["preemptions"] == 1
    assert "Preempted" in {attempt["reason"] for attempt in status["progress"]["attempts"]}
    whole.delete("large", "small")
