"""Staging pods bring the data of chunks to another site; windows open there only when they have succeeded."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support.full_stack import API, System, declare_site, is_running
from support.object_history import History, revision
from tranche.kube.client.leader_election import LeaseSettings

PODS = "/api/v1/namespaces/default/pods"
JOBS = f"{API}/namespaces/default/trainingjobs"
STAGING_SECONDS = 4.0
LONG = 600.0
"""Seconds of a chunk, or of a copy, that the test ends itself, after what has to happen meanwhile."""
CHUNKS = 5


@pytest.fixture(scope="module", autouse=True)
def _two_sites(system: System) -> None:
    """A link of one second a chunk by its promise; pods take four for all five."""
    for name, other in (("edge-a", "edge-b"), ("edge-b", "edge-a")):
        links = [{"to": other, "bandwidth": "8M"}]
        declare_site(system.cluster, name, links=links)


def submit(
    system: System,
    name: str,
    *,
    exit_code: int = 0,
    staging_seconds: float = STAGING_SECONDS,
    **spec: Any,
) -> None:
    """Five chunks, of which two find a GPU where the data are; the rest of the GPUs are at the other site."""
    annotations = {
        "kwok.tranche.dev/run-seconds": str(staging_seconds),
        "kwok.tranche.dev/exit-code": str(exit_code),
    }
    container = {"name": "copy", "image": "copier:1", "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}}}
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}
    data = {"chunks": CHUNKS, "batchesPerChunk": 50, "chunkSize": "1Mi", "site": "edge-a"}
    system.submit(name, chunks=CHUNKS, seconds=LONG, data={**data, "staging": {"template": template}}, **spec)


def staging_pods(system: System, name: str) -> list[dict[str, Any]]:
    return [pod for pod in system.pods(name) if pod["metadata"]["labels"]["tranche.dev/role"] == "staging"]


def until_staging(system: System, name: str) -> dict[str, Any]:
    """Wait until a staging pod of a job runs, and return it."""
    (pod,) = system.until("a staging pod runs", lambda: [p for p in staging_pods(system, name) if is_running(p)])
    return dict(pod)


def sites_of_windows(job: dict[str, Any]) -> set[str]:
    return {window["site"] for window in job.get("status", {}).get("plan", {}).get("workers", ())}


def success(history: History, name: str) -> int:
    """Return the revision at which the job's staging pod succeeded."""
    return min(
        revision(pod)
        for pod in history.events[PODS]
        if pod["metadata"]["labels"].get("tranche.dev/role") == "staging"
        and pod["metadata"]["labels"]["tranche.dev/job"] == name
        and pod["status"].get("phase") == "Succeeded"
    )


def assert_windows_waited(history: History, name: str) -> None:
    """No plan had a window at the other site before the staging pod had succeeded, and some had one after it."""
    succeeded = success(history, name)
    plans = history.of(JOBS, name)
    there = [revision(job) for job in plans if "edge-b" in sites_of_windows(job)]
    assert there, "nothing trained where the data were brought"
    assert min(there) > succeeded
    trained = [
        revision(pod)
        for pod in history.events[PODS]
        if pod["metadata"]["labels"].get("tranche.dev/role") == "worker"
        and pod["metadata"]["labels"]["tranche.dev/job"] == name
        and pod["spec"].get("nodeName", "").startswith("edge-b")
    ]
    assert min(trained) > succeeded


def assert_one_pod_brought_the_data(history: History, name: str) -> None:
    pods = {
        (pod["metadata"]["name"], pod["metadata"]["uid"])
        for pod in history.events[PODS]
        if pod["metadata"]["labels"].get("tranche.dev/role") == "staging"
        and pod["metadata"]["labels"]["tranche.dev/job"] == name
    }
    assert len(pods) == 1, pods


def test_window_at_other_site_opens_after_staging_pod_succeeds(system: System) -> None:
    with History(str(system.cluster.kubeconfig), PODS, JOBS) as history:
        submit(system, "staged", staging_seconds=LONG)
        pod, job = until_staging(system, "staged"), system.job("staged")
        assert pod["metadata"]["name"].startswith("staged-staging-edge-b-")
        assert pod["spec"]["nodeName"].startswith("edge-b")
        variables = {v["name"]: v.get("value", "") for v in pod["spec"]["containers"][0]["env"]}
        assert (variables["TRANCHE_DATA_SITE"], variables["TRANCHE_SITE"]) == ("edge-a", "edge-b")
        assert variables["TRANCHE_CHUNKS"] == "0,1,2,3,4"
        assert job["status"]["plan"]["staging"][0]["chunks"] == "0-4"
        assert sites_of_windows(job) == {"edge-a"}
        system.end_worker(pod)
        status = system.complete("staged")
    assert status["progress"]["failures"] == 0
    assert_windows_waited(history, "staged")
    assert_one_pod_brought_the_data(history, "staged")
    system.until(
        "staging pods are counted",
        lambda: all(
            "tranche.dev/ledger" not in pod["metadata"].get("finalizers", ()) for pod in staging_pods(system, "staged")
        ),
    )
    system.delete("staged")


def test_a_parameter_server_starts_near_the_data(system: System) -> None:
    server = {"containers": [{"name": "ps", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}
    data = {"chunks": 1, "batchesPerChunk": 50, "chunkSize": "1Mi", "site": "edge-b"}
    system.submit("near", seconds=60.0, data=data, parameterServers={"template": {"spec": server}})
    plan = system.until("a server", lambda: (p := system.status("near").get("plan", {})).get("parameterServers") and p)
    assert [one["site"] for one in plan["parameterServers"]] == ["edge-b"], "any site has room for it"
    system.delete("near")


def test_staging_survives_killed_scheduler_and_operator(system: System) -> None:
    with History(str(system.cluster.kubeconfig), PODS, JOBS) as history:
        submit(system, "killed", staging_seconds=LONG)
        pod = until_staging(system, "killed")
        for process in ("scheduler", "operator"):
            system.stack.kill(process)
        system.stack.start_scheduler()
        system.stack.start_operator()
        system.end_worker(pod)
        system.until("windows at edge-b", lambda: "edge-b" in sites_of_windows(system.job("killed")))
        system.complete("killed")
    assert_windows_waited(history, "killed")
    assert_one_pod_brought_the_data(history, "killed")
    system.delete("killed")


def test_staging_finished_without_scheduler_counts_after_restart(system: System) -> None:
    with History(str(system.cluster.kubeconfig), PODS, JOBS) as history:
        submit(system, "unseen", staging_seconds=LONG)
        pod = until_staging(system, "unseen")
        system.stack.kill("scheduler")
        system.end_worker(pod)
        (pod,) = staging_pods(system, "unseen")
        assert pod["metadata"]["finalizers"] == ["tranche.dev/ledger"]
        system.stack.start_scheduler()
        system.until("windows at edge-b", lambda: "edge-b" in sites_of_windows(system.job("unseen")))
        system.complete("unseen")
    assert_windows_waited(history, "unseen")
    assert_one_pod_brought_the_data(history, "unseen")
    system.delete("unseen")


def has_failed_staging(job: dict[str, Any]) -> bool:
    conditions = job.get("status", {}).get("conditions", ())
    return any((one["type"], one["status"]) == ("StagingFailed", "True") for one in conditions)


def test_job_with_failed_staging_trains_at_its_data_site(system: System) -> None:
    with History(str(system.cluster.kubeconfig), PODS, JOBS) as history:
        submit(system, "failing", exit_code=3, runPolicy={"backoffLimit": 0})
        system.until("its staging pod has failed", lambda: has_failed_staging(system.job("failing")))
        status = system.complete("failing")
    plans = history.of(JOBS, "failing")
    conditions = [one for job in plans for one in job.get("status", {}).get("conditions", ())]
    pause = "no more are created for an hour or longer, so chunks train where their data is"
    text = f"1 staging pod for site edge-b failed; {pause}"
    told = [(one["status"], one["reason"], one["message"]) for one in conditions if one["type"] == "StagingFailed"]
    assert ("True", "GivenUp", text) in told
    assert told[-1] == ("False", "NoneFailing", "the job has succeeded")
    assert status["progress"]["failures"] == 0
    assert set().union(*map(sites_of_windows, plans)) == {"edge-a"}
    path = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=failing,reason=StagingFailed"
    system.until("the event", lambda: system.cluster.request("GET", path)[1]["items"])
    system.delete("failing")


def learnt_factor(system: System) -> float | None:
    """Return measured over promised time of uploads from the leader's Lease; None if nothing was learned."""
    told = json.loads(system.lease()["metadata"].get("annotations", {}).get("tranche.dev/memory", "{}"))
    found = [one["factor"] for one in told.get("links", ()) if (one["origin"], one["target"]) == ("edge-a", "edge-b")]
    return float(found[0]) if found else None


def test_restarted_scheduler_keeps_learnt_transfer_factor(system: System) -> None:
    submit(system, "teacher", staging_seconds=LONG)
    pod = until_staging(system, "teacher")
    began = datetime.fromisoformat(pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"])
    # Much less than the five seconds that the link promises: the Lease has no factor that is about 1.
    system.until("the copy has taken a second", lambda: datetime.now(UTC) - began >= timedelta(seconds=1))
    system.end_worker(pod)
    system.until("windows at edge-b", lambda: "edge-b" in sites_of_windows(system.job("teacher")))
    system.complete("teacher")
    system.delete("teacher")  # only the Lease has a record of it now
    deleted = datetime.now(UTC)
    system.until("a renewal after that", lambda: datetime.fromisoformat(system.lease()["spec"]["renewTime"]) > deleted)
    factor, term = learnt_factor(system), system.term()
    assert factor is not None
    system.stack.kill("scheduler")
    system.stack.start_scheduler()
    system.until(
        "a renewal by who has taken over",
        lambda: (
            (spec := system.lease()["spec"])["leaseTransitions"] > term
            and spec["leaseDurationSeconds"] == LeaseSettings().duration_seconds
        ),
    )
    assert learnt_factor(system) == pytest.approx(factor, 1e-5), "the new one writes the factor that it uses"
