"""Templates changed while no scheduler runs: the next leader decides what the previous one would have decided."""

import asyncio
from collections.abc import Collection
from typing import Any

import msgspec
import pytest

from support.live_controller import NOW, reported, resource, taken_over, written
from tranche.kube.api.core_types import Pod
from tranche.kube.api.resources import SiteObject, TrainingJob
from tranche.live.controller import Controller
from tranche.live.informers import Informers
from tranche.live.job_events import submission
from tranche.live.planner_config import PlannerConfig
from tranche.metrics.scheduler import Metrics
from tranche.planner import Planner
from tranche.planner.events import JobSubmitted
from tranche.policies import get_policy
from tranche_operator.manifests.pod import Manifest, server_pod, staging_pod, worker_pod
from tranche_operator.settings import Settings

GPU = "nvidia.com/gpu"


def pod(number: int, cpu: str) -> Pod:
    """Return a worker of job j, made from a template that requests ``cpu``."""
    name = f"j-worker-{number}-{number + 1}"
    labels = {"job": "j", "role": "worker", "index": str(number), "attempt": str(number + 1)}
    owner = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "uid": "j", "controller": True}
    metadata = {"labels": {f"tranche.dev/{key}": value for key, value in labels.items()}, "ownerReferences": [owner]}
    container = {"name": "t", "resources": {"requests": {GPU: "1", "cpu": cpu}}}
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "default", "uid": name, **metadata},
            "spec": {"nodeName": "n1", "containers": [container]},
            "status": {"phase": "Running"},
        },
        Pod,
    )


def changed(job: TrainingJob, status: dict[str, Any], cpu: str) -> TrainingJob:
    body = job.model_dump(mode="json", by_alias=True)
    body["metadata"]["generation"] = 2
    body["spec"]["workers"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    return TrainingJob.model_validate({**body, "status": status})


def states(plan: dict[str, Any]) -> list[str]:
    return [window["state"] for window in plan["workers"]]


@pytest.mark.parametrize(("cpu", "state"), [("2", "Closing"), ("1", "Open")], ids=["resized", "something else"])
def test_outdated_pods_are_stopped_live_and_after_takeover_alike(cpu: str, state: str) -> None:
    job = resource("j")
    first = asyncio.run(taken_over(job, policy="chunk"))
    for number in range(2):
        reported(first, "pods", f"default/j-worker-{number}-{number + 1}", pod(number, "1"))
    status = written(first, "j")
    assert states(status["plan"]) == ["Open", "Open"]
    new = changed(job, status, cpu)

    event = submission(new, (GPU,), first.watches.pods.store)
    following = Planner(get_policy("chunk"))
    for node in first.planner.cluster.nodes.values():
        following.cluster.nodes[node.node.name] = type(node)(node.node)
    following.restore([event], 0.0)
    assert [str(one.state) for one in following.plan_of("default/j", 0.0).windows] == [state, state]

    reported(first, "jobs", "default/j", new)
    assert states(written(first, "j")["plan"]) == [state, state]


def test_pods_of_current_template_with_defaulted_fields_stay() -> None:
    job = resource("j")
    first = asyncio.run(taken_over(job, policy="chunk"))
    status = written(first, "j")
    same = TrainingJob.model_validate({**job.model_dump(mode="json", by_alias=True), "status": status})
    found: JobSubmitted = submission(same, (GPU,), {"default/j-worker-0-1": pod(0, "3")})
    assert found.outdated == frozenset()


def edited(job: TrainingJob, status: dict[str, Any], **changes: Any) -> TrainingJob:
    """Return the next generation of a job; ``image`` belongs to its container, everything else to its specification."""
    body = job.model_dump(mode="json", by_alias=True)
    body["metadata"]["generation"] = 2
    image = changes.pop("image", None)
    if image is not None:
        body["spec"]["workers"]["template"]["spec"]["containers"][0]["image"] = image
    body["spec"] |= changes
    return TrainingJob.model_validate({**body, "status": status})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({"image": "trainer:2"}, ["Closing", "Open"]), ({"weight": 2}, ["Open", "Open"])],
    ids=["another image", "another weight"],
)
def test_pod_that_has_not_started_gets_the_changed_template(changes: dict[str, Any], expected: list[str]) -> None:
    job = resource("j")
    controller = asyncio.run(taken_over(job, policy="chunk"))
    waiting, running = pod(0, "1"), pod(1, "1")
    pending = msgspec.structs.replace(waiting.status, phase="Pending")
    reported(controller, "pods", waiting.key, msgspec.structs.replace(waiting, status=pending))
    container = {"name": "t", "state": {"running": {"startedAt": "2027-01-15T08:00:00Z"}}}
    started = msgspec.convert({"phase": "Running", "containerStatuses": [container]}, type(running.status))
    reported(controller, "pods", running.key, msgspec.structs.replace(running, status=started))
    reported(controller, "jobs", "default/j", edited(job, written(controller, "j"), **changes))
    assert states(written(controller, "j")["plan"]) == expected


SERVERS = {"template": {"spec": {"containers": [{"name": "t", "resources": {"requests": {"cpu": "1"}}}]}}}
COPIES = {
    "chunks": 2,
    "chunkSize": "1Gi",
    "site": "elsewhere",
    "staging": {"template": {"spec": {"containers": [{"name": "t"}]}}},
}


def created_pods(job: TrainingJob, started: Collection[str] = ()) -> list[Pod]:
    """Return the pods of a job's plan as the operator creates them; those of `started` roles run."""
    plan, made = job.status.plan, list[Manifest]()
    assert plan is not None
    made += [worker_pod(job, window, Settings()) for window in plan.workers]
    made += [server_pod(job, server, Settings()) for server in plan.parameter_servers]
    made += [staging_pod(job, one, Settings()) for one in plan.staging if one.attempt]
    pods = []
    for one in made:
        runs = one["metadata"]["labels"]["tranche.dev/role"] in started
        state = {"running": {"startedAt": "2027-01-15T08:00:00Z"}} if runs else {}
        status = {"phase": "Running" if runs else "Pending", "containerStatuses": [{"name": "t", "state": state}]}
        metadata, spec = {**one["metadata"], "uid": one["metadata"]["name"]}, {**one["spec"], "nodeName": "n1"}
        pods.append(msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Pod))
    return pods


def corrected(job: TrainingJob, status: dict[str, Any], *path: str) -> TrainingJob:
    """Return the next generation of a job, with another image in the template below `path` of its specification."""
    body = job.model_dump(mode="json", by_alias=True)
    body["metadata"]["generation"] = 2
    part = body["spec"]
    for key in path:
        part = part[key]
    part["template"]["spec"]["containers"][0]["image"] = "trainer:2"
    return TrainingJob.model_validate({**body, "status": status})


VOLUME = {"nfs": {"server": "typo", "path": "/ckpt"}}
WIDE: dict[str, Any] = {
    "checkpoint": {"volume": VOLUME},
    "communication": {"workerBandwidth": "1G"},
    "parameterServers": SERVERS,
}


@pytest.mark.parametrize("takeover", [False, True], ids=["live", "takeover"])
@pytest.mark.parametrize(
    ("changes", "replaced"),
    [
        ({"checkpoint": {"volume": {"nfs": {"server": "nas", "path": "/ckpt"}}}}, True),
        ({"checkpoint": {"volume": VOLUME, "resumeFrom": "earlier"}}, True),
        ({"communication": {"workerBandwidth": "2G"}}, True),
        ({"checkpoint": {"volume": VOLUME, "scope": "Site"}}, False),
    ],
)
def test_corrected_volume_replaces_pods_that_have_not_started(
    changes: dict[str, Any], replaced: bool, takeover: bool
) -> None:
    """A pod waits half an hour for a volume that cannot be mounted, and then counts as a failure."""
    first = asyncio.run(taken_over(resource("j", **WIDE), policy="chunk"))
    job = first.watches.jobs.store["default/j"]
    known = TrainingJob.model_validate(
        {**job.model_dump(mode="json", by_alias=True), "status": written(first, "j") | {"checkpointDirectory": "j-j"}}
    )
    reported(first, "jobs", "default/j", known)
    for one in created_pods(known):
        reported(first, "pods", one.key, one)
    new = edited(known, written(first, "j"), **changes)
    if takeover:
        first = followed(first, new)
    else:
        reported(first, "jobs", "default/j", new)
    plan = written(first, "j")["plan"]
    assert closing(plan) == {"worker": [replaced, replaced], "ps": [replaced], "staging": []}


def followed(first: Controller, job: TrainingJob) -> Controller:
    """Return a controller that takes over from the first one when it sees this version of its job."""
    watches = Informers(None)  # type: ignore[arg-type]
    for kind, reflector in first.watches:
        watches.by_kind(kind).store.update(reflector.store)
    watches.jobs.store[job.key] = job
    planner = PlannerConfig("chunk").planner(validate=True)
    following = Controller(None, watches, planner, Metrics(), clock=lambda: NOW + 60.0)  # type: ignore[arg-type]
    following.term = 3
    following.restore()
    return following


def closing(plan: dict[str, Any]) -> dict[str, list[bool]]:
    """Return which pods of each role are to stop; of a staging pod that is replaced, the attempt changes."""
    return {
        "worker": [one["state"] == "Closing" for one in plan.get("workers", [])],
        "ps": [one["state"] == "Closing" for one in plan.get("parameterServers", [])],
        "staging": [one.get("attempt") != 1 for one in plan.get("staging", [])],
    }


@pytest.mark.parametrize("takeover", [False, True], ids=["live", "takeover"])
@pytest.mark.parametrize(
    ("spec", "path", "started", "expected"),
    [
        ({}, ["workers"], [], {"worker": [True, True], "ps": []}),
        ({}, ["workers"], ["worker"], {"worker": [False, False], "ps": []}),
        ({"data": None}, ["workers"], [], {"worker": [True, True], "ps": []}),
        ({"data": None}, ["workers"], ["worker"], {"worker": [False, False], "ps": []}),
        ({"parameterServers": SERVERS}, ["workers"], ["ps"], {"worker": [True, True], "ps": [False]}),
        ({"parameterServers": SERVERS}, ["parameterServers"], [], {"worker": [True, True], "ps": [True]}),
        ({"parameterServers": SERVERS}, ["parameterServers"], ["worker"], {"worker": [True, True], "ps": [True]}),
        ({"parameterServers": SERVERS}, ["parameterServers"], ["ps"], {"worker": [False, False], "ps": [False]}),
        (
            {"parameterServers": SERVERS, "data": None},
            ["parameterServers"],
            ["worker"],
            {"worker": [True, True], "ps": [True]},
        ),
        ({"data": COPIES}, ["data", "staging"], ["staging"], {"staging": [True]}),
        ({"data": COPIES}, ["workers"], [], {"staging": [False]}),
    ],
)
def test_corrected_template_replaces_pods_that_have_not_started(
    spec: dict[str, Any], path: list[str], started: list[str], expected: dict[str, list[bool]], takeover: bool
) -> None:
    """No planner may lead while the template is corrected; the pods then wait for no timeout either."""
    site = SiteObject.model_validate({"metadata": {"name": "cluster"}, "spec": {"nodeSelector": {"zone": "good"}}})
    elsewhere = SiteObject.model_validate({"metadata": {"name": "elsewhere"}, "spec": {"nodeSelector": {"zone": "x"}}})
    first = asyncio.run(taken_over(resource("j", **spec), sites=(site, elsewhere), policy="chunk"))
    job = first.watches.jobs.store["default/j"]
    status = written(first, "j")
    known = TrainingJob.model_validate({**job.model_dump(mode="json", by_alias=True), "status": status})
    reported(first, "jobs", "default/j", known)
    for one in created_pods(known, started):
        reported(first, "pods", one.key, one)
    status = written(first, "j")
    new = corrected(job, status, *path)
    if takeover:
        first = followed(first, new)
    else:
        reported(first, "jobs", "default/j", new)
    found = closing(written(first, "j")["plan"])
    assert {role: found[role] for role in expected} == expected
    assert first.planner.cluster.jobs["default/j"].failures == 0


def test_template_of_an_earlier_operator_counts_as_unchanged() -> None:
    """Its pods do not have the digest of their template: an upgrade replaces no pod."""
    first = asyncio.run(taken_over(resource("j"), policy="chunk"))
    known = first.watches.jobs.store["default/j"]
    status = written(first, "j")
    new = corrected(known, status, "workers")
    for one in created_pods(
        TrainingJob.model_validate({**known.model_dump(mode="json", by_alias=True), "status": status})
    ):
        annotations = {key: text for key, text in one.metadata.annotations.items() if key != "tranche.dev/template"}
        metadata = msgspec.structs.replace(one.metadata, annotations=annotations)
        first.watches.pods.store[one.key] = msgspec.structs.replace(one, metadata=metadata)
    assert closing(written(followed(first, new), "j")["plan"])["worker"] == [False, False]
