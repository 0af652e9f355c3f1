"""Installation of the chart as real pods: images, upgrade, rollback, drain and removal with a job that trains."""

from collections.abc import Iterator

import pytest

from support import product_images
from support.real_lab import NAMESPACE, SETTINGS, Installed, await_system, is_ready, system_pods
from support.training_programs import trains
from support.waiting import WAIT_SECONDS

SECONDS = 180
LONG = 60.0
CONTAINERS = ("extender", "planner", "api", "kube-scheduler", "operator")
PROBES = """
import os
print(os.getuid())
try:
    open('/probe', 'w')
except OSError as error:
    print(error.errno)
open('/tmp/probe', 'w').close()
"""


@pytest.fixture
def long(installed: Installed) -> Iterator[str]:
    """Name of a job with two workers that trains for a minute, and trains already."""
    installed.submit_program("long", trains(LONG, 60), chunks=2, batches=60, seconds=LONG)
    installed.until("two workers", lambda: installed.status("long").get("activeWorkers") == 2)
    yield "long"
    installed.delete("long")


def starts(installed: Installed, job: str) -> set[str]:
    return {str(pod["metadata"]["uid"]) for pod in installed.pods(job)}


def finishes_without_a_restart(installed: Installed, job: str, pods: set[str]) -> bool:
    """Wait for the end of a job; return whether it has trained in these pods only."""
    installed.until(f"{job} Succeeded", lambda: installed.status(job).get("phase") == "Succeeded", SECONDS)
    progress = installed.status(job)["progress"]
    return progress["failures"] == 0 and len(installed.ended(job)) == len(pods)


@pytest.mark.parametrize(("target", "megabytes"), [("scheduler", 300), ("operator", 250)])
def test_image_is_within_its_size(target: str, megabytes: int) -> None:
    assert product_images.uncompressed_bytes(product_images.archive(target)) <= megabytes * 1e6


def test_two_replicas_run_on_different_nodes(installed: Installed) -> None:
    for component in ("scheduler", "operator"):
        pods = system_pods(installed.cluster, component)
        assert len({pod["spec"]["nodeName"] for pod in pods}) == len(pods) == 2
        assert all(map(is_ready, pods))


def test_containers_have_no_root_and_a_read_only_file_system(installed: Installed) -> None:
    for component, container in (("scheduler", "planner"), ("operator", "operator")):
        name = system_pods(installed.cluster, component)[0]["metadata"]["name"]
        words = ("exec", f"--namespace={NAMESPACE}", name, f"--container={container}", "--", "python", "-c", PROBES)
        assert installed.cluster.kubectl(*words).split() == ["65532", "30"], "EROFS"


def test_helm_test_succeeds(installed: Installed) -> None:
    assert "Succeeded" in installed.helm("test", "tranche")


def test_upgrade_and_rollback_leave_training_pods_alone(installed: Installed, long: str) -> None:
    pods = starts(installed, long)
    before = {pod["metadata"]["uid"] for pod in system_pods(installed.cluster)}
    installed.helm.install(*SETTINGS, "scheduler.logFormat=json", "operator.logFormat=json")
    after = {pod["metadata"]["uid"] for pod in await_system(installed.cluster)}
    assert not before & after
    installed.helm("rollback", "tranche", "1", "--wait", f"--timeout={WAIT_SECONDS:g}s")
    await_system(installed.cluster)
    assert finishes_without_a_restart(installed, long, pods)


def test_drain_of_a_node_moves_tranche_and_jobs_start(installed: Installed) -> None:
    leader = installed.cluster.kubectl(
        "get", "lease", "tranche-scheduler", f"--namespace={NAMESPACE}", "--output=jsonpath={.spec.holderIdentity}"
    )
    [node] = [
        pod["spec"]["nodeName"]
        for pod in system_pods(installed.cluster, "scheduler")
        if leader.startswith(pod["metadata"]["name"])
    ]
    options = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", f"--timeout={WAIT_SECONDS:g}s")
    try:
        installed.cluster.kubectl("drain", node, *options)
        installed.submit_program("after", trains(1.0, 50))
        installed.until_phase("after", "Succeeded", SECONDS)
        assert node not in {pod["spec"]["nodeName"] for pod in await_system(installed.cluster)}
    finally:
        installed.cluster.kubectl("uncordon", node)
    installed.delete("after")


def test_job_trains_through_removal_and_counts_afterwards(installed: Installed, long: str) -> None:
    pods = starts(installed, long)
    installed.helm("uninstall", "tranche", "--wait")
    installed.until("tranche is gone", lambda: not system_pods(installed.cluster), SECONDS)
    assert starts(installed, long) == pods
    installed.helm.install(*SETTINGS)
    assert finishes_without_a_restart(installed, long, pods)
